"""Readers and built-in samples: from a description to a model. The only NumPy → JAX border."""
