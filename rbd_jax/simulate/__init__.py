"""Integrators on the configuration manifold and rollouts."""
