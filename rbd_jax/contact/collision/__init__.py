"""Shapes and the points at which they touch."""
