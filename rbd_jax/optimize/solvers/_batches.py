"""Batches of problems in which each one ends by itself."""

from collections.abc import Callable
from typing import Any

import equinox as eqx

from ...algorithms.formulations import for_solves_in_batches
from ...lanes import lanes
from ..problems._problem import Problem


def ending_alone(
    solve: Callable[..., Any], problem: Problem, *args: Any, whole: Callable[..., Any] | None = None
) -> Any:
    """``solve(problem, *args)``, of which a batch on a CPU is one kernel if the robot is small.

    Under ``vmap`` a loop of XLA goes on until the last problem of the batch is done, and so does
    each search for a step length in it. In a kernel that holds only for the few samples that share
    its vectors. Plants whose steps are not semi-implicit Euler keep their loops: their kernels
    would be long, and compile slowly.

    Args:
        solve: the solver of one problem.
        problem: what to minimize.
        args: its other arguments, trees of arrays.
        whole: the form for the kernel; ``solve`` if None.
    """
    arrays, static = eqx.partition(problem, eqx.is_array)

    def of_arrays(solve: Callable[..., Any]) -> Callable[..., Any]:
        return lambda arrays, *args: solve(eqx.combine(arrays, static), *args)

    if problem.kind.robot(problem) is None:
        return solve(problem, *args)
    one, kernel = of_arrays(solve), lanes(of_arrays(whole or solve))
    return for_solves_in_batches(problem.model.nv, one, whole=kernel)(arrays, *args)
