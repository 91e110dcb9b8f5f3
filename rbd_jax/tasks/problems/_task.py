"""A ready problem with its start and its first guess."""

from typing import NamedTuple

from jaxtyping import Array, Float

from ...optimize import Problem


class Task(NamedTuple):
    """A problem, its initial state, and a first guess of its controls."""

    problem: Problem
    q0: Float[Array, " nq"]
    v0: Float[Array, " nv"]
    u: Float[Array, "T nu"]
