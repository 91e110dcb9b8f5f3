"""Recorded motions: the container, files, filters, and motions that excite a robot."""
