"""Reads scenes from MJCF: MuJoCo compiles the file, and these modules convert it."""
