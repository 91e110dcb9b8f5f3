"""Kinematics and dynamics, one paper table a file; ``tree`` owns every loop over bodies."""
