"""Random programs that mix calls of the library with a user's own code, to be compared with XLA.

The right values come from XLA: each call of the library is compiled once, without lanes, and the
user's code around it is carried out operation by operation.
"""

import os
from collections.abc import Callable
from contextlib import contextmanager
from functools import cache, partial
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from hypothesis import strategies as st
from jax import lax

import rbd_jax as rbd

ROBOTS = {
    "double_pendulum": rbd.samples.double_pendulum,
    "floating": partial(rbd.samples.tree, 3, 2, floating_base=True),
    "arm": partial(rbd.samples.chain, 3),
}


@cache
def robot(name: str) -> rbd.Model:
    """A robot by its name in ROBOTS."""
    return ROBOTS[name]()


def placed(model, q):
    """Where the last body is."""
    return rbd.forward_kinematics(model, q)[1][-1]


def advanced(model, q, v, tau):
    """A small step of time."""
    v = v + 0.01 * rbd.forward_dynamics(model, q, v, tau)
    return rbd.integrate(model, q, 0.01 * v), v


CALLS: dict[str, Callable] = {
    "fd": rbd.forward_dynamics, "id": rbd.inverse_dynamics, "M": rbd.mass_matrix,
    "bias": rbd.bias_torque, "integrate": rbd.integrate, "difference": rbd.difference,
    "placed": placed, "kinetic": rbd.kinetic_energy, "potential": rbd.potential_energy,
    "com": rbd.center_of_mass, "advanced": advanced, "gravity": rbd.gravity_torque,
}  # fmt: skip


@contextmanager
def without_lanes():
    """Functions are traced as XLA computes them."""
    before = os.environ.get("RBD_JAX_LANES")
    os.environ["RBD_JAX_LANES"] = "0"
    try:
        yield
    finally:
        os.environ.pop("RBD_JAX_LANES")
        if before is not None:
            os.environ["RBD_JAX_LANES"] = before


@cache
def compiled(name: str) -> Callable:
    """A call of the library by XLA."""
    return jax.jit(CALLS[name])


def plain(name: str, *args):
    """A call of the library as users write it."""
    return CALLS[name](*args)


def by_xla(name: str, *args):
    """The same call, compiled by XLA alone."""
    return compiled(name)(*args)


def bounded(x):
    """Numbers brought back between bounds, which a user may do, too."""
    return jnp.clip(x, -10.0, 10.0)


# --- steps: (call, model, (q, v, tau, notes), j, k) -> the next state --------------------


def dynamics(call, model, s, j, k):
    q, v, tau, notes = s
    ways = [
        lambda: (q, v, tau, [*notes, call("fd", model, q, v, tau)]),
        lambda: (q, v, bounded(call("id", model, q, v, v * 0.5)), notes),
        lambda: (q, bounded(call("fd", model, q, v, tau)) * 0.1, tau, notes),
        lambda: (q, v, bounded(call("M", model, q) @ v), notes),
        lambda: (q, v, call("gravity", model, q) - 2 * v, notes),
        lambda: (q, v, tau - bounded(call("bias", model, q, v)), notes),
        lambda: (*call("advanced", model, q, v, tau), tau, notes),
        lambda: (call("integrate", model, q, 0.1 * v), v, tau, notes),
    ]
    return ways[k % len(ways)]()


def noted(call, model, s, j, k):
    q, v, tau, notes = s
    ways = [
        lambda: call("kinetic", model, q, v), lambda: call("potential", model, q),
        lambda: call("com", model, q) * 2, lambda: call("placed", model, q),
        lambda: call("difference", model, q, call("integrate", model, q, v * 0.2)),
        lambda: jnp.sum(call("M", model, q)[0]), lambda: 1.5, lambda: (v > 0) * 2,
    ]  # fmt: skip
    return q, v, tau, [*notes, jnp.asarray(ways[k % len(ways)]())]


def users(call, model, s, j, k):
    q, v, tau, notes = s
    ways = [
        lambda: (q, v, tau * 0.5 - 1, notes), lambda: (q, -v, tau + v, notes),
        lambda: (q, jnp.where(v > 0, 1.0, v), tau, notes),
        lambda: (q, v, jnp.tanh(tau) * 3, notes),
        lambda: (q, v.at[j % v.size].set(0.25), tau, notes),
        lambda: (q, v, tau[::-1], notes), lambda: (q, jnp.roll(v, 1), tau, notes),
        lambda: (q, v, jnp.concatenate([tau[:1] * 2, v[1:]]), notes),
        lambda: (q, jnp.sin(v), jnp.full_like(tau, 0.5), notes),
    ]  # fmt: skip
    return ways[k % len(ways)]()


def looped(call, model, s, j, k):
    q, v, tau, notes = s

    def advance(c, row):
        q, v, total = c
        q, v = call("advanced", model, q, v, tau * row)
        return (q, v, total + 1.0), (v, 0.5)

    def search(c):
        n, x, done = c
        x = x - 0.1 * bounded(call("id", model, q, x, tau * 0))
        return n + 1, bounded(x), jnp.max(jnp.abs(x)) < 0.1

    def rolled():
        (p, w, total), (vs, _) = lax.scan(advance, (q, v, 0.0), jnp.linspace(0.5, 1.0, 2 + j))
        return p, w, tau, [*notes, total, vs[-1]]

    def searched():
        n, x, _ = lax.while_loop(lambda c: (c[0] < 2 + j) & ~c[2], search, (0, v, False))
        return q, x, tau, [*notes, n]

    def decided():
        energy = call("kinetic", model, q, v)
        u = lax.cond(energy > 1.0, lambda: tau * 0.5, lambda: bounded(call("bias", model, q, v)))
        return q, v, u, [*notes, lax.cond(energy > 2, lambda: 1.0, lambda: 0.0)]

    return (rolled, decided, searched)[k % 3]()


STEPS = (dynamics, noted, users, looped)


class Drawn(NamedTuple):
    """What hypothesis draws."""

    robot: str
    steps: list[tuple[int, int, int]]
    fleet: bool
    """Whether each sample has a robot of its own."""
    way: int
    seed: int


def drawn() -> st.SearchStrategy[Drawn]:
    """Programs of up to five steps."""
    step = st.tuples(st.integers(0, len(STEPS) - 1), st.integers(0, 3), st.integers(0, 71))
    return st.builds(
        Drawn, st.sampled_from(sorted(ROBOTS)), st.lists(step, min_size=1, max_size=5),
        st.booleans(), st.integers(0, 2), st.integers(0, 10**6),
    )  # fmt: skip


def program(case: Drawn, call: Callable) -> Callable:
    """The function of a robot and one state."""

    def f(model, q, v, tau):
        s = q, v, tau, []
        for way, j, k in case.steps:
            s = STEPS[way % len(STEPS)](call, model, s, j, k)
        return s

    return f


def arguments(case: Drawn, samples: int) -> tuple:
    """A robot or a fleet, and states of it."""
    model, rng = robot(case.robot), np.random.default_rng(case.seed)
    draw = lambda: jnp.asarray(rng.normal(size=(samples, model.nv)), model.dtype)  # noqa: E731
    q = jax.vmap(partial(rbd.integrate, model))(jnp.tile(rbd.neutral(model), (samples, 1)), draw())
    if case.fleet:
        scale = jnp.asarray(rng.uniform(0.8, 1.2, samples), model.dtype)
        grow = lambda x: x[None] * scale.reshape(-1, *[1] * x.ndim)  # noqa: E731
        model = _fleet(model, samples, grow)
    return model, q, draw(), draw()


def _fleet(model: rbd.Model, samples: int, grow: Callable) -> rbd.Model:
    """Robots of which only the inertias differ, with an axis on every leaf."""
    many = jax.tree.map(lambda x: jnp.broadcast_to(x, (samples, *x.shape)), model)
    return eqx.tree_at(lambda m: m.inertia, many, grow(model.inertia))
