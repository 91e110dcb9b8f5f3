"""The border with XLA: the handler that it calls, and the table of loaded kernels."""
