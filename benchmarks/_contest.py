"""Explicit derivatives of several methods in one race, and their differences."""

import rbd_jax as rbd

from . import baselines
from ._robots import over_batch, states
from ._timing import Program, program, race


def contest(
    model: rbd.Model, batch: int, seconds: float, methods: dict, last: str, rivals=()
) -> tuple[list[Program], float | None]:
    """All methods for one robot, after a race, and the largest difference (float64 only).

    Rivals are made by ``rival(states)`` and join the race, not the check.
    """
    s = states(model, batch)
    inputs = s.q, s.v, getattr(s, last)
    made = [program(n, over_batch(f, 3), model, *inputs, per=batch) for n, f in methods.items()]
    others = [rival(s) for rival in rivals]
    race(*made, *others, seconds=seconds)
    difference = None
    if model.dtype == "float64" and len(made) > 1:
        results = [p.run() for p in made]
        rest = zip(made[1:], results[1:], strict=True)
        difference = max(baselines.check(p.name, results[0], x) for p, x in rest)
    return made + others, difference
