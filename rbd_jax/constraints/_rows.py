"""The rows of a set of constraints: position error, velocity, and the law of accelerations."""

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..algorithms import world_frame
from ..model import Model
from ..model.arguments import algorithm, projected
from ..spatial import so3
from . import _motion as motion
from ._set import Constraints, check


def row_index(constraints: Constraints) -> np.ndarray:
    """Which of the components of all pairs, six each, the rows are."""
    rows = [6 * k + r for k, p in enumerate(constraints.pairs) for r in p.rows]
    return np.array(rows, dtype=int)


def of_pairs(constraints: Constraints, six: Float[Array, "n 6 *x"], coupled: Array) -> Array:
    """All rows, of the six components of each pair and of the rows of the couplings."""
    held = six.reshape(6 * six.shape[0], *six.shape[2:])[row_index(constraints)]
    return held if not constraints.couplings else jnp.concatenate([held, coupled])


def positions(model: Model, q: Float[Array, " nq"]) -> Float[Array, " nv"]:
    """The positions of joints of one degree of freedom, zero for all others."""
    topology = model.topology
    single = np.diff(topology.v_starts)[topology.dof_bodies] == 1
    index = topology.q_starts[:-1][topology.dof_bodies]
    return jnp.where(single, q[index], 0)


def _times(A: Float[Array, "k nv"], x: Float[Array, " nv"]) -> Float[Array, " k"]:
    return jnp.sum(A * x[None], axis=-1)


def _at(model: Model, c: Constraints, q: Array, V: Array | None = None, A: Array | None = None):
    """What the pairs are, and both sides of them."""
    g = world_frame.quantities(model, q)
    zero = jnp.zeros((model.nb, 6), g.p.dtype)
    if V is not None and A is not None:
        V, A = motion.motions(model, g, V, A)
    elif V is not None:
        V = motion.twists(model, g, V)
    o = motion.ground_origins(model, q)
    b = motion.bodies_at(g, o, zero if V is None else V, zero if A is None else A)
    return (motion.kinds(c), *motion.sides(c, b))


def errors(model: Model, c: Constraints, q: Float[Array, " nq"]) -> Float[Array, " m"]:
    """Position errors of all rows, active or not."""
    six = motion.error_of(*_at(model, c, q)) if c.pairs else jnp.zeros((0, 6), model.dtype)
    return of_pairs(c, six, _times(c.coupling, positions(model, q)) - c.offset)


def velocities(model: Model, c: Constraints, q: Array, v: Array) -> Float[Array, " m"]:
    """``J v``, all rows, active or not."""
    six = motion.velocity_of(*_at(model, c, q, v)) if c.pairs else jnp.zeros((0, 6), model.dtype)
    return of_pairs(c, six, _times(c.coupling, v))


def accelerations(model: Model, c: Constraints, q: Array, v: Array, a: Array) -> Float[Array, " m"]:
    """``J a + J̇ v + K_d ċ + K_p c``, all rows, active or not."""
    six = jnp.zeros((0, 6), model.dtype)
    if c.pairs:
        at = _at(model, c, q, v, a)
        six = law(c, *at)
    coupled = _times(c.coupling, positions(model, q)) - c.offset
    n = len(c.pairs)
    coupled = (
        _times(c.coupling, a)
        + c.velocity_gain[n:] * _times(c.coupling, v)
        + (c.position_gain[n:] * coupled)
    )
    return of_pairs(c, six, coupled)


def law(c: Constraints, kinds: motion.Kinds, one, two, k=None) -> Array:
    """What the relative acceleration of each pair, and its Baumgarte terms, add up to.

    ``k``: which pairs the sides are of; all of them if None.
    """
    n = len(c.pairs)
    gains = [x[:n] if k is None else x[:n][k] for x in (c.velocity_gain, c.position_gain)]
    kd, kp = (x[:, None] for x in gains)
    rate = motion.velocity_of(kinds, one, two)
    error = motion.error_of(kinds, one, two)
    return motion.acceleration_of(kinds, one, two) + kd * rate + kp * error


@algorithm(project=())
def residual(model: Model, q: Float[Array, " nq"], constraints: Constraints) -> Float[Array, " m"]:
    """The position errors c(q) of all rows, zero where inactive (m, rad).

    A point's rows are ``p_1 − p_2``, a frame's ``−log(T_1⁻¹ T_2)``, in the axes of the constraint's
    reference; a coupling's is ``coupling · x − offset``. Where not all rotations of a frame are
    held, as with a hinge, its rows are ``p_1 − p_2`` and, if one axis is free, the smallest
    rotation that aligns this axis of both frames. Derivatives are those of autodiff.

    Source: Featherstone, Rigid Body Dynamics Algorithms, ch. 8.

    Args:
        model: the robot.
        q: configuration.
        constraints: the set.
    """
    check("residual", model, constraints)
    c = errors(model, constraints, q)
    return jnp.where(constraints.per_row(constraints.active), c, 0)


@algorithm(project=())
def velocity(
    model: Model, q: Float[Array, " nq"], v: Float[Array, " nv"], constraints: Constraints
) -> Float[Array, " m"]:
    """``J v``: the relative velocities of all rows, zero where inactive (m/s, rad/s)."""
    check("velocity", model, constraints)
    rate = velocities(model, constraints, q, v)
    return jnp.where(constraints.per_row(constraints.active), rate, 0)


@projected()
def _accelerations(model: Model, q: Array, v: Array, a: Array, c: Constraints) -> Array:
    return accelerations(model, c, q, v, a)


@algorithm(driven_joints=True)
def acceleration(
    model: Model,
    q: Float[Array, " nq"],
    v: Float[Array, " nv"],
    a: Float[Array, " nv"],
    constraints: Constraints,
) -> Float[Array, " m"]:
    """``J a + J̇ v``: the relative accelerations of all rows, zero where inactive (m/s², rad/s²).

    Gains do not count. Source: Featherstone, Rigid Body Dynamics Algorithms, ch. 8.
    """
    check("acceleration", model, constraints)
    rates = _accelerations(model, q, v, a, without_gains(constraints))
    return jnp.where(constraints.per_row(constraints.active), rates, 0)


def without_gains(constraints: Constraints) -> Constraints:
    """The same set without Baumgarte's terms."""
    zero = jnp.zeros_like(constraints.position_gain)
    return eqx.tree_at(lambda c: (c.position_gain, c.velocity_gain), constraints, (zero, zero))


@algorithm(driven_joints=True)
def bias(
    model: Model, q: Float[Array, " nq"], v: Float[Array, " nv"], constraints: Constraints
) -> Float[Array, " m"]:
    """``γ = J̇ v + K_d ċ + K_p c``: active constraints hold ``J a + γ = 0`` (m/s², rad/s²).

    Source: Featherstone, Rigid Body Dynamics Algorithms, ch. 8; Baumgarte's terms as in Carpentier
    et al. 2021.
    """
    check("bias", model, constraints)
    gamma = _accelerations(model, q, v, jnp.zeros_like(v), constraints)
    return jnp.where(constraints.per_row(constraints.active), gamma, 0)


@algorithm(project=())
def anchored(model: Model, q: Float[Array, " nq"], constraints: Constraints) -> Constraints:
    """The same set, held where the robot is at q: there its position errors are zero.

    The placements in the second bodies (or in the world) and the offsets of couplings change.
    Derivatives are those of autodiff.
    """
    check("anchored", model, constraints)
    c = constraints
    offset = _times(c.coupling, positions(model, q))
    if not c.pairs:
        return eqx.tree_at(lambda c: c.offset, c, offset)
    g = world_frame.quantities(model, q)
    zero = jnp.zeros((model.nb, 6), g.p.dtype)
    b = motion.bodies_at(g, motion.ground_origins(model, q), zero, zero)
    one, _ = motion.sides(c, b)
    index = motion.numbers(c)[1]
    apart = (one.o - b.o[index]) + (one.r - b.p[index])
    R = so3.matmul(so3.transpose(b.R[index]), one.R)
    p = so3.rotate_inverse(b.R[index], apart)
    return eqx.tree_at(lambda c: (c.R_2, c.p_2, c.offset), c, (R, p, offset))
