"""Tolerances of the solvers in each precision."""

from typing import NamedTuple

import jax.numpy as jnp


class Tolerances(NamedTuple):
    """Numbers that depend on the precision and not on the problem."""

    decrease: float
    """iLQR, DDP, multiple shooting and the augmented Lagrangian end where the promised decrease of
    the cost is less, relative to one plus the cost."""
    slope: float
    """Greatest projected gradient at a solution of these solvers, relative to one plus the cost."""
    first_order: float
    """The same for single shooting, whose optimizers know no curvature."""
    violation: float
    """Greatest violation of a constraint that counts as none."""
    most_penalty: float
    """Greatest weight ρ of ``ρ/2 c²``."""
    least_damping: float
    """Least Levenberg–Marquardt parameter, relative to the scale of Quu."""
    at_bound: float
    """A control is at its bound if it is nearer than this, relative to one plus its size."""
    multiplier_penalty: float
    """Weight by which the method of multipliers solves the system of a solution's derivatives,
    relative to the scale of its matrix."""
    multiplier_error: float
    """Relative error at which that system counts as solved."""


DOUBLE = Tolerances(1e-9, 1e-6, 1e-5, 1e-6, 1e8, 1e-14, 1e-9, 1e6, 1e-9)
SINGLE = Tolerances(1e-5, 1e-3, 1e-3, 1e-3, 1e5, 1e-9, 1e-5, 1e2, 1e-3)


def tolerances(dtype) -> Tolerances:
    """The tolerances of a precision."""
    return DOUBLE if dtype == jnp.float64 else SINGLE
