"""The intermediate representation between JAX and machine code, and the analyses of it."""
