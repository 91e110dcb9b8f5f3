"""The small program between JAX and machine code, and what is found out about it."""
