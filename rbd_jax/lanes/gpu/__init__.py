"""Kernels for NVIDIA GPUs: one sample a thread, as PTX, launched by NVIDIA's driver."""
