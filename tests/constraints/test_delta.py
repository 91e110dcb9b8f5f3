"""A delta robot, whose loops the user declares, against its closed-form inverse kinematics."""

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.calls import quick_jit

import rbd_jax as rbd
from rbd_jax import constraints

# radii of base and platform, upper arm, rod, half the width of a parallelogram (m)
BASE, PLATFORM, UPPER, ROD, HALF = 0.2, 0.05, 0.25, 0.55, 0.04
ARMS = range(3)
PLACE = jnp.array([0.04, -0.07, -0.45])  # of the platform (m)


def turn(k):
    """The rotation about z to arm k."""
    c, s = np.cos(2 * np.pi * k / 3), np.sin(2 * np.pi * k / 3)
    return np.array([[c, -s, 0.0], [s, c, 0.0], [0.0, 0.0, 1.0]])


@cache
def delta():
    """Three arms; each one carries two parallel rods on universal joints, whose ends hold a plate.

    The tree has 3 + 6 · 2 + 6 degrees of freedom, the six ends have 18 rows: three are left.
    """
    tube = lambda name, m, l: rbd.LinkSpec(  # noqa: E731
        name, m, np.array([l / 2, 0, 0]), m * l**2 / 12 * np.diag([0.01, 1.0, 1.0])
    )
    y, z = np.array([0.0, 1.0, 0.0]), np.array([0.0, 0.0, 1.0])
    links = [rbd.LinkSpec("base"), rbd.LinkSpec("plate", 0.3, np.zeros(3), 1e-3 * np.eye(3))]
    joints = [rbd.JointSpec("plate", "free", "base", "plate")]
    for k in ARMS:
        place = turn(k) @ np.array([BASE, 0, 0])
        links.append(tube(f"arm {k}", 0.4, UPPER))
        joints.append(
            rbd.JointSpec(f"motor {k}", "revolute", "base", f"arm {k}", turn(k), place, axis=y)
        )
        for side, w in (("left", HALF), ("right", -HALF)):
            fork, rod, elbow = f"fork {k} {side}", f"rod {k} {side}", np.array([UPPER, w, 0])
            links += [rbd.LinkSpec(fork, 0.01, np.zeros(3), 1e-5 * np.eye(3)), tube(rod, 0.1, ROD)]
            joints += [
                rbd.JointSpec(f"{fork} joint", "revolute", f"arm {k}", fork, p=elbow, axis=y),
                rbd.JointSpec(f"{rod} joint", "revolute", fork, rod, axis=z),
            ]
    model = rbd.build_model(rbd.RobotSpec("delta", tuple(links), tuple(joints)))
    ends = [
        constraints.point(model, f"rod {k} {side}", "plate", offset=[ROD, 0, 0],
                          at=turn(k) @ np.array([PLATFORM, w, 0]))
        for k in ARMS for side, w in (("left", HALF), ("right", -HALF))
    ]  # fmt: skip
    return model, constraints.join(*ends)


def angles(p):
    """Motor, fork and rod angles of each arm, (3, 3) in rad, for the platform at p.

    In the plane of an arm the rod is a sphere around its upper end: one equation for the motor,
    ``a cos θ − z sin θ = d``, of which the elbow points outward.
    """
    rows = []
    for k in ARMS:
        x, y, z = turn(k).T @ p
        a = x + PLATFORM - BASE
        d = (a**2 + y**2 + z**2 + UPPER**2 - ROD**2) / (2 * UPPER)
        motor = jnp.arctan2(-z, a) - jnp.arccos(d / jnp.hypot(a, z))
        c, s = jnp.cos(motor), jnp.sin(motor)
        along, down = (a - UPPER * c) / ROD, (z + UPPER * s) / ROD
        # the rod in the axes of the arm, which has turned by θ about y
        forward, up = c * along - s * down, s * along + c * down
        rows.append(jnp.stack([motor, jnp.arctan2(-up, forward), jnp.arcsin(y / ROD)]))
    return jnp.stack(rows)


def posture(model, p):
    """The configuration in closed form; the platform keeps its orientation."""
    q = rbd.neutral(model).at[model.q_slice("plate").start + jnp.arange(3)].set(p)
    for k, row in enumerate(angles(p)):
        q = q.at[model.q_slice(f"motor {k}").start].set(row[0])
        for side in ("left", "right"):
            for part, x in zip(("fork", "rod"), row[1:], strict=True):
                q = q.at[model.q_slice(f"{part} {k} {side} joint").start].set(x)
    return q


def motors(model):
    return np.array([model.v_slice(f"motor {k}").start for k in ARMS])


@pytest.mark.slow
def test_locked_motors_put_the_platform_where_the_closed_form_says():
    """Forward kinematics by projection, from another posture; the platform does not turn."""
    model, loops = delta()

    def reach(p):
        q = posture(model, p)
        locks = [constraints.lock(model, f"motor {k}", angles(p)[k, 0]) for k in ARMS]
        start = posture(model, p + jnp.array([0.03, 0.02, -0.04]))
        found = constraints.project(
            model, start, jnp.zeros(model.nv), constraints.join(loops, *locks), max_steps=8
        )
        R, at = rbd.frame_placement(model, found.q, "plate")
        return constraints.residual(model, q, loops), R, at, found.result

    gap, R, at, result = quick_jit(reach)(PLACE)
    np.testing.assert_allclose(gap, 0, atol=1e-14)
    assert bool(result == constraints.RESULTS.successful)
    np.testing.assert_allclose(at, PLACE, atol=1e-11)
    np.testing.assert_allclose(R, np.eye(3), atol=1e-11)


@pytest.mark.slow
def test_motors_hold_the_weight_by_virtual_work():
    """``τ = J⁻ᵀ ∂V/∂p``; rates of the closed form satisfy the loops."""
    model, loops = delta()

    def hold(p):
        q = posture(model, p)
        J = jax.jacfwd(lambda p: angles(p)[:, 0])(p)
        slope = jax.grad(lambda p: rbd.potential_energy(model, posture(model, p)))(p)
        tau = jnp.zeros(model.nv).at[motors(model)].set(jnp.linalg.solve(J.T, slope))
        rate = jax.jvp(lambda p: posture(model, p), (p,), (jnp.array([0.3, -0.2, 0.5]),))[1]
        v = rbd.velocity_from_rate(model, q, rate)
        still = rbd.constrained_dynamics(model, q, jnp.zeros(model.nv), tau, loops)
        return tau, constraints.velocity(model, q, v, loops), still.a

    tau, rate, a = quick_jit(hold)(PLACE)
    assert np.abs(tau).max() > 0.5
    np.testing.assert_allclose(rate, 0, atol=1e-14)
    np.testing.assert_allclose(a, 0, atol=1e-9)
