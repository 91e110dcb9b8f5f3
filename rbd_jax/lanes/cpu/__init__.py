"""Kernels for CPUs: a block of W samples, work sharing between threads, and the call."""
