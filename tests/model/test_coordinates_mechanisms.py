"""Closed chains by coordinates: slider-crank, four-bar, constraints of driven joints."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.calls import quick_jit
from support.driven import MODELS, explicit
from support.helpers import assert_close, central_difference, random_state

import rbd_jax as rbd

R, L = 0.3, 0.8  # m, crank and rod


def _planar(names: tuple[str, ...], kinds: tuple[str, ...], places, axes) -> rbd.Model:
    masses = (1.1, 0.7, 1.9)
    links = [rbd.LinkSpec("world")] + [
        rbd.LinkSpec(n, m, np.array([c, 0.0, 0.0]), np.diag([0.01, 0.02, 0.03]))
        for n, m, c in zip(names, masses, (R / 2, L / 2, 0.0), strict=True)
    ]
    joints = [
        rbd.JointSpec(n, kind, parent, n, p=np.array(p), axis=np.array(axis))
        for n, kind, parent, p, axis in zip(
            names, kinds, ("world", *names[:2]), places, axes, strict=True
        )
    ]
    spec = rbd.RobotSpec("planar", tuple(links), tuple(joints))
    return rbd.build_model(spec, gravity=(0.0, -9.81, 0.0))


@quick_jit
def _slider_crank(th, w, tau):
    """Reduced inertia, bias and acceleration of the crank, from the loop's geometry."""
    sin, cos = jnp.sin(th), jnp.cos(th)
    phi = jnp.arcsin(R * sin / L)  # of the rod, downwards
    dphi = R * cos / (L * jnp.cos(phi))

    def centers(th):
        phi = jnp.arcsin(R * jnp.sin(th) / L)
        x = R * jnp.cos(th) + L * jnp.cos(phi)
        rod = R * jnp.cos(th) + L / 2 * jnp.cos(phi), R * jnp.sin(th) - L / 2 * jnp.sin(phi)
        return jnp.array([[R / 2 * jnp.cos(th), R / 2 * jnp.sin(th)], [*rod], [x, 0.0]])

    def inertia(th):
        speed = jax.jacfwd(centers)(th)
        turn = R * jnp.cos(th) / (L * jnp.cos(jnp.arcsin(R * jnp.sin(th) / L)))
        return jnp.array([1.1, 0.7, 1.9]) @ jnp.sum(speed**2, axis=1) + 0.03 * (1 + turn**2)

    weight = 9.81 * jnp.array([1.1, 0.7, 1.9]) @ jax.jacfwd(centers)(th)[:, 1]
    bias = 0.5 * jax.grad(inertia)(th) * w * w + weight
    return inertia(th), bias, (tau - bias) / inertia(th), centers(th)[2, 0], dphi


def test_slider_crank_against_its_closed_form():
    """Crank, rod and slider; the slider's frame stays level, so that its joint turns back."""
    m = _planar(
        ("crank", "rod", "slider"),
        ("revolute",) * 3,
        ((0, 0, 0), (R, 0, 0), (L, 0, 0)),
        np.eye(3)[[2, 2, 2]],
    )

    def closed(u):
        phi = jnp.arcsin(R * jnp.sin(u) / L)
        return jnp.concatenate([-phi - u, phi])

    m = rbd.with_coordinates(m, closed, ["rod", "slider"], ["crank"])
    assert (m.nq, m.nv, m.space.joint_names) == (1, 1, ("crank",))

    @quick_jit
    def ours(th, w, tau):
        q, v, t = (jnp.reshape(x, 1) for x in (th, w, tau))
        x = rbd.frame_placement(m, q, "slider")[1]
        return (
            rbd.crba(m, q)[0, 0], rbd.bias_torque(m, q, v)[0], rbd.forward_dynamics(m, q, v, t)[0],
            x[0], -rbd.frame_velocity(m, q, jnp.ones(1), "rod", "world")[2],
        )  # fmt: skip

    for state in ((0.4, 3.0, 1.0), (2.5, -7.0, -4.0)):
        assert_close(ours(*jnp.array(state)), _slider_crank(*jnp.array(state)), rtol=1e-10)


@pytest.mark.slow
def test_four_bar_agrees_with_its_loop_as_a_constraint():
    """By coordinates and by a closed loop: the same motion of the crank, the same derivative."""
    a, b, c, d = 0.3, 0.8, 0.6, 0.9  # crank, coupler, rocker, ground
    names, kinds = ("crank", "coupler", "rocker"), ("revolute",) * 3
    robot = _planar(names, kinds, ((0, 0, 0), (a, 0, 0), (b, 0, 0)), np.eye(3)[[2, 2, 2]])

    def closed(u):
        """Coupler and rocker angles, from the triangle over the diagonal."""
        x, y = d - a * jnp.cos(u), -a * jnp.sin(u)
        e = jnp.sqrt(x * x + y * y)
        inner = jnp.arccos((b * b + e * e - c * c) / (2 * b * e))
        coupler = jnp.arctan2(y, x) + inner
        tip = jnp.arctan2(y - b * jnp.sin(coupler), x - b * jnp.cos(coupler))
        return jnp.concatenate([coupler - u, tip - coupler])

    m = rbd.with_coordinates(robot, closed, ["coupler", "rocker"], ["crank"])
    loop = rbd.constraints.point(robot, "rocker", offset=(c, 0, 0), at=(d, 0, 0))

    @quick_jit
    def both(u, w, tau):
        full = jnp.concatenate([u, closed(u)])
        v = jnp.concatenate([w, jax.jvp(closed, (u,), (w,))[1]])
        error = rbd.constraints.residual(robot, full, loop)
        zero = jnp.zeros(2)

        def f(tau):
            torque = jnp.concatenate([tau, zero])
            return rbd.constrained_dynamics(robot, full, v, torque, loop).a[:1]

        def g(tau):
            return rbd.forward_dynamics(m, u, w, tau)

        return error, (f(tau), jax.jacfwd(f)(tau)), (g(tau), jax.jacfwd(g)(tau))

    error, theirs, ours = both(jnp.array([0.7]), jnp.array([2.0]), jnp.array([0.5]))
    assert jnp.abs(error).max() < 1e-12
    assert_close(ours, theirs, rtol=1e-9, atol=1e-10)


@quick_jit
def _constrained(m, held, s, M, Phi, full):
    """Constraints of a robot with driven joints, and the same by dense matrices."""
    q, v, tau = s.q, s.v, s.tau
    a, forces = rbd.constrained_dynamics(m, q, v, tau, held)
    J = rbd.constraints.jacobian(m, q, held)
    gamma = rbd.constraints.bias(m, q, v, held)
    missing = M @ a + rbd.bias_torque(m, q, v) - tau - J.T @ forces
    after, impulses = rbd.impact(m, q, v, held)
    kick = M @ (after - v) - J.T @ impulses
    f = lambda d, v, t: tuple(rbd.constrained_dynamics(m, rbd.integrate(m, q, d), v, t, held))  # noqa: E731
    blocks = tuple(rbd.constrained_dynamics_derivatives(m, q, v, tau, held))
    at = jnp.zeros_like(v), v, tau

    def along(k):
        return central_difference(lambda x: f(*at[:k], x, *at[k + 1 :]), at[k])

    numbers = [along(k) for k in range(3)]
    by_rule = tuple(n[0] for n in numbers) + tuple(n[1] for n in numbers)
    found = missing, J @ a + gamma, kick, J @ after
    full_J = rbd.constraints.jacobian(m.robot, full, held) @ Phi
    return (
        found,
        (J, full_J),
        (blocks, by_rule),
        rbd.constraints.delassus(m, q, held),
        J @ jnp.linalg.solve(M, J.T),
    )


HELD = {
    "hand": lambda m: rbd.constraints.point(m, "thumb") + rbd.constraints.point(m, "b2", "a2"),
    "knee": lambda m: rbd.constraints.frame(m, "toe", "upper", rows=(0, 4)),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", HELD)
def test_constraints_of_a_robot_with_driven_joints(name):
    m = MODELS[name]()
    s = random_state(m)
    held = HELD[name](m)
    full, Phi = explicit(m, s.q)
    zeros, jacobians, derivatives, *matrices = _constrained(m, held, s, rbd.crba(m, s.q), Phi, full)
    assert_close(zeros, jax.tree.map(jnp.zeros_like, zeros), atol=1e-8)
    assert_close(*jacobians, atol=1e-9)
    assert_close(*derivatives, rtol=1e-6, atol=1e-5)
    assert_close(*matrices, rtol=1e-9, atol=1e-9)
