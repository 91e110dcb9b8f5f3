"""How an iterative solver ended. The solvers of all rooms say it in the same words.

The value that a solver returns has a field ``result``, a member of :class:`RESULTS`, and a field
``steps``, the number of steps that the solver took. Every solver has the options ``max_steps`` and
``throw``.
"""

from typing import TypeVar

import equinox as eqx

Value = TypeVar("Value")


class RESULTS(eqx.Enumeration):
    """How a solver ended; ``result == RESULTS.successful`` is a boolean array.

    ``RESULTS[result]`` is the message of a result that is not traced and not batched.
    """

    successful = "The solver succeeded."
    max_steps_reached = (
        "The maximum number of steps was reached without convergence. Raise `max_steps`, start "
        "from a better first guess, or pass `throw=False` to get what was found so far."
    )
    stalled = (
        "The solver found no step that makes progress. Try a better first guess, another scaling "
        "of the unknowns or a looser tolerance, or pass `throw=False` to get what was found so far."
    )
    nonfinite = (
        "A number became infinite or NaN, at the first guess or at a later one. Check the first "
        "guess, or try a smaller time step or shorter steps of the solver."
    )
    crowded = (
        "More contact points act than the scene keeps, so that some exert no force. Raise `most` "
        "of the scene's contacts, or set it to None to keep all candidates."
    )
    crossed = (
        "A lower bound of the controls exceeds the upper one, or a bound is NaN, so that nothing "
        "lies between them. Check the bounds of the problem."
    )
    infeasible = (
        "The constraints do not hold although their penalty is at its greatest. Pass "
        "`throw=False` and call `solution.explain()` to see which constraint fails, at which step "
        "and by how much. Then relax it, or start from a first guess that is closer to holding it."
    )


def throw_unless_successful(value: Value, result: RESULTS) -> Value:
    """The same ``value``, with a RuntimeError when it is computed unless the solver succeeded.

    The error carries the message of ``result``. It also works under ``jit`` and ``vmap``; in a
    batch one unsuccessful sample raises it.
    """
    return result.error_if(value, result != RESULTS.successful)
