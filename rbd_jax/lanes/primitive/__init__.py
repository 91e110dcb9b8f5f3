"""The traced function as a JAX primitive, and the programs that are derived from it."""
