"""Kernels for NVIDIA GPUs, with a team of threads for each sample: PTX and its launch."""
