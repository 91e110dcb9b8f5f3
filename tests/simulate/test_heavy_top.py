"""The fast heavy top against a reference of high precision."""

from functools import cache, partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.integrate import solve_ivp
from support.calls import quick_jit
from support.integration import difference

import rbd_jax as rbd


def _top() -> rbd.Model:
    """Source of the numbers: Brüls, Cardona, Arnold, 2012, the fast heavy top."""
    link = rbd.LinkSpec(
        "top", 15.0, np.array([0.0, 1.0, 0.0]), np.diag([0.234375, 0.46875, 0.234375])
    )
    joint = rbd.JointSpec("pivot", "spherical", "base", "top")
    return rbd.build_model(rbd.RobotSpec("top", (rbd.LinkSpec("base"), link), (joint,)))


TOP_SPIN = np.array([0.0, 150.0, -4.61538])


@cache
def _top_reference(time: float):
    """Euler's equations in quaternions, written out, by an explicit method of order 8."""
    J = np.diag([15.234375, 0.46875, 15.234375])

    def rate(_, x):
        w, (a, b, c, d) = x[4:], x[:4]
        down = np.array([2 * (b * d - a * c), 2 * (c * d + a * b), a * a - b * b - c * c + d * d])
        torque = np.cross([0.0, 15.0, 0.0], -9.81 * down)
        dq = 0.5 * np.concatenate([[-x[1:4] @ w], a * w + np.cross(x[1:4], w)])
        return np.concatenate([dq, np.linalg.solve(J, torque - np.cross(w, J @ w))])

    start = np.concatenate([[1.0, 0, 0, 0], TOP_SPIN])
    end = solve_ivp(rate, (0, time), start, method="DOP853", rtol=1e-13, atol=1e-13).y[:, -1]
    return jnp.asarray(end[:4] / np.linalg.norm(end[:4])), jnp.asarray(end[4:])


@pytest.mark.slow
@pytest.mark.parametrize(
    "method, bounds",  # of q (rad), v (rad/s) and the relative energy: three times what is measured
    [
        ("rk4", (2e-6, 1.5e-5, 1e-8)),
        ("momentum_rk4", (1e-7, 4e-7, 5e-10)),
        pytest.param("variational", (1.2e-3, 2.5e-3, 1e-5), marks=pytest.mark.slow),
        ("generalized_alpha", (1.5e-2, 0.12, 1.2e-5)),
    ],
)
def test_heavy_top_against_a_reference_of_high_precision(method, bounds):
    """Turning 24 times a second, for half a second, in steps of 0.25 ms."""
    m, q0 = _top(), jnp.array([1.0, 0.0, 0.0, 0.0])
    u = jnp.zeros((2000, 3))
    path = quick_jit(lambda v: rbd.rollout(m, q0, v, u, 0.00025, integrator=method))(
        jnp.asarray(TOP_SPIN)
    )
    q, v = _top_reference(0.5)
    errors = [float(jnp.abs(x).max()) for x in (difference(m, q, path.q[-1]), v - path.v[-1])]
    energy = jax.vmap(lambda q, v: rbd.kinetic_energy(m, q, v) + rbd.potential_energy(m, q))
    E = np.asarray(quick_jit(energy)(path.q, path.v))
    momentum = quick_jit(jax.vmap(partial(rbd.algorithms.spatial_momentum, m)))
    vertical = momentum(path.q, path.v)[:, 2]
    swing = [float(np.abs(x - x[0]).max() / abs(x[0])) for x in (E, np.asarray(vertical))]
    print(method, "errors of q and v", errors, "energy and vertical momentum", swing)
    assert all(x < bound for x, bound in zip((*errors, swing[0]), bounds, strict=True))
    if method in ("momentum_rk4", "variational"):
        assert swing[1] < 1e-11
