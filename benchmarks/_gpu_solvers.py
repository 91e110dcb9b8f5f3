"""Batches of optimal control and identification: their kernels, for a GPU that may not be there."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

import rbd_jax as rbd
from rbd_jax import identify, optimize as opt

BATCH = 1024
SOLVERS = {
    "ilqr": lambda p, q, v, u: opt.ilqr(p, q, v, u, throw=False, max_steps=20),
    "multiple_shooting": lambda p, q, v, u: opt.multiple_shooting(
        p, q, v, u, throw=False, max_steps=20
    ),
    "mpc": lambda p, q, v, u: opt.mpc(opt.controller(p), q, v, u, 10),
}
"""Function -> what a batch of starts calls."""


def cases(robot: str = "arm", steps: int = 30, batch: int = 2) -> dict[str, tuple[Callable, Any]]:
    """Functions of batches, and their arguments: starts of a reach, and recordings of a swing."""
    model = getattr(rbd.samples, robot)(dtype=jnp.float32)
    task = rbd.tasks.reach(model, steps=steps, dtype=jnp.float32)
    keys = jax.random.split(jax.random.key(0), batch)
    spread = jax.vmap(lambda k: 0.1 * jax.random.normal(k, (model.nv,), jnp.float32))(keys)
    starts = jax.vmap(lambda d: rbd.integrate(model, task.q0, d))(spread)

    def solve(f: Callable) -> Callable:
        return jax.vmap(lambda q: f(task.problem, q, jnp.zeros_like(task.v0), task.u).u)

    found = {name: (solve(f), (starts,)) for name, f in SOLVERS.items()}
    found["fit_trajectories"] = jax.vmap(_fit(model)), (_swings(model, batch, 41),)
    return found


def _fit(model: rbd.Model) -> Callable:
    unknown = identify.Parameters(model, identify.select(model, "damping"))

    def fit(qs):
        still = jnp.zeros((len(qs), model.nv), qs.dtype)
        windows = identify.Dataset(None, qs, None, None, still).windows(11, 10)
        found = identify.fit_trajectories(unknown, windows, 0.01, throw=False, max_steps=10,
                                          v_sigma=None)  # fmt: skip
        return found.fit.model.damping

    return fit


def _swings(model: rbd.Model, batch: int, samples: int) -> jax.Array:
    """Recordings of configurations of a robot without torques."""
    keys = jax.random.split(jax.random.key(1), batch)
    starts = jax.vmap(lambda k: rbd.random_configuration(model, k))(keys)
    zero = jnp.zeros((samples - 1, model.nv), jnp.float32)

    def swing(q):
        return rbd.rollout(model, q, jnp.zeros(model.nv, jnp.float32), zero, 0.01).q

    return jax.vmap(swing)(starts)


def predict(table, options, fitted, kernels_of: Callable, taken: Callable) -> None:
    """One row for each kernel of each function."""
    for name, (function, given) in cases(steps=8 if options.tiny else 30).items():
        for kernel in kernels_of(function, *given):
            time, (way,) = taken([kernel], BATCH, fitted)
            table.add(function=name, batch=BATCH, kernel=kernel.name, threads=way.team,
                      instructions=round(way.work.sample.issued), scratch=way.made.scratch_bytes,
                      resident=way.work.resident, predicted=time)  # fmt: skip
