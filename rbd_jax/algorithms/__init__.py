"""Kinematics and dynamics, one paper table a file; ``_tree`` owns every loop over bodies."""
