"""Scenes from MuJoCo's models: MuJoCo compiles the file, these modules convert it."""
