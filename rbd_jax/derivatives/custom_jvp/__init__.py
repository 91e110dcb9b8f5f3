"""Derivative rules that are written by hand and registered as ``custom_jvp``.

Each file has functions and their rules. The decorator is
:class:`rbd_jax.derivatives.custom_jvp.mechanism.custom_jvp`. What it decorates has ``custom_jvp``
in its name, and the rule follows below it.
"""
