"""Judges of policies, in the simulation of this library and in MuJoCo."""
