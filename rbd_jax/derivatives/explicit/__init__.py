"""Derivatives as explicit matrices and tensors: IDSVA, FDSVA, Coriolis, second order.

No rule of the library is here, see :mod:`rbd_jax.derivatives.custom_jvp` for those.
"""
