"""Benchmarks of rbd_jax, with one command: ``python -m benchmarks --help``."""
