"""Descriptions of the robots that learn to walk."""
