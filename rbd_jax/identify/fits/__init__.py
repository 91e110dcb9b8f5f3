"""Nonlinear fits: to samples, to whole motions, and to motions of a scene with contact."""
