"""Robots on the ground: MuJoCo's scenes, actuators, soft constraints and frictional contact."""
