"""The integration stage of a step: the next state from the accelerations.

Source: MuJoCo's documentation, "Computation", numerical integration. MuJoCo integrates the position
of a free body along its velocity in the world, and not along a screw. So velocities are ``mixed``
here: the linear velocity of free joints is in world axes, all other parts are as everywhere.
"""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..algorithms.crba import crba
from ..derivatives.rules import mass_matrix_solve
from ..model import Model, integrate
from ..spatial import inertia, so3
from ..spatial.motion import cross_wrench
from .forward import ControlledScene
from .passive import drag_slope
from .solver.newton import Solution

Accelerate = Callable[[int, Array, Array, Array], Solution]
"""``accelerate(stage, q, v, warmstart)`` solves for the accelerations of one stage of a step."""


def integrate_step(
    x: ControlledScene, q: Array, v: Array, warmstart: Array, accelerate: Accelerate
) -> tuple[Array, Array, list[Solution]]:
    """The state after ``scene.dt`` seconds, and the accelerations of all stages."""
    if x.scene.integrator == "rk4":
        return _runge_kutta(x, q, v, warmstart, accelerate)
    first = accelerate(0, q, v, warmstart)
    return *_euler(x, q, v, first.a), [first]


def _euler(x: ControlledScene, q: Array, v: Array, a: Array) -> tuple[Array, Array]:
    """A step of semi-implicit Euler, or of ``implicitfast``, from the accelerations a."""
    scene, model, h = x.scene, x.scene.model, x.scene.dt
    if scene.integrator == "implicitfast":
        a = implicitfast(x, q, v, a)
    elif scene.implicit_damping:
        a = _with_armature(model, h * model.damping, q, a)
    u = _turned(model, q, v + h * a, False)
    q1 = _moved(model, q, h * u)
    return q1, _turned(model, q1, u, True)


def _runge_kutta(
    x: ControlledScene, q: Array, v: Array, warmstart: Array, accelerate: Accelerate
) -> tuple[Array, Array, list[Solution]]:
    """A step of Runge and Kutta's method, of order four on the rotation group.

    Source: Munthe-Kaas, "Runge–Kutta methods on Lie groups" (1998). Stages are steps from the
    start, as in MuJoCo 4. MuJoCo 3 left out the curvature of rotations.
    """
    model, h = x.scene.model, x.scene.dt
    found = [accelerate(0, q, v, warmstart)]
    u0 = _turned(model, q, v, False)
    speeds, rates = [u0], [_turned(model, q, found[0].a, False)]
    for stage, c in enumerate((0.5, 0.5, 1.0), 1):
        moved = h * c * speeds[-1]
        qi = _moved(model, q, moved)
        ui = u0 + h * c * rates[-1]
        found.append(accelerate(stage, qi, _turned(model, qi, ui, True), found[-1].a))
        speeds.append(_chart_rate(model, moved, ui))
        rates.append(_turned(model, qi, found[-1].a, False))
    mean = lambda x: (x[0] + 2 * x[1] + 2 * x[2] + x[3]) / 6  # noqa: E731
    q1 = _moved(model, q, h * mean(speeds))
    return q1, _turned(model, q1, u0 + h * mean(rates), True), found


def _turned(model: Model, q: Array, v: Array, back: bool) -> Float[Array, " nv"]:
    """A velocity with the linear parts of free joints turned to world axes, or back."""
    topology = model.topology
    for b in topology.bodies_of("free"):
        s, k = int(topology.v_starts[b]), int(topology.q_starts[b])
        R = so3.quat_to_matrix(so3.quat_normalize(q[k + 3 : k + 7]))
        turn = so3.rotate_inverse if back else so3.rotate
        v = v.at[s + 3 : s + 6].set(turn(R, v[s + 3 : s + 6]))
    return v


def _moved(model: Model, q: Array, step: Float[Array, " nv"]) -> Float[Array, " nq"]:
    """The configuration after a mixed step, which is a mixed velocity times a time."""
    topology, spin = model.topology, step
    free = topology.bodies_of("free")
    for b in free:
        s = int(topology.v_starts[b])
        spin = spin.at[s + 3 : s + 6].set(0)
    q = integrate(model, q, spin)
    for b in free:
        s, k = int(topology.v_starts[b]), int(topology.q_starts[b])
        q = q.at[k : k + 3].add(step[s + 3 : s + 6])
    return q


def _with_armature(
    model: Model, armature: Float[Array, " nv"], q: Array, a: Array
) -> Float[Array, " nv"]:
    """``(M + diag(armature))⁻¹ M a``, which is ``a − (M + diag(armature))⁻¹ diag(armature) a``."""
    heavy = eqx.tree_at(lambda m: m.armature, model, model.armature + armature)
    return a - mass_matrix_solve(heavy, q, armature * a)


def implicitfast(x: ControlledScene, q: Array, v: Array, a: Array) -> Array:
    """The accelerations of an implicit step, MuJoCo's integrator ``implicitfast``.

    Damping, drag and the velocity gains of actuators are implicit. So are the gyroscopic terms of
    free bodies that carry no other body.
    """
    scene, model, h = x.scene, x.scene.model, x.scene.dt
    slope = jnp.diag(model.damping)
    if scene.nu:
        slope = slope - x.actuators.velocity_slope(model, q, v, x.controls)
    if scene.fluid is not None:
        slope = slope - drag_slope(model, scene.fluid, q, v)
    if scene.fluid is None and all(k == "scalar" for k in scene.actuators.trntype):
        new = _with_armature(model, h * jnp.diagonal(slope), q, a)
    else:
        M = crba(model, q)
        new = jnp.linalg.solve(M + h * slope, jnp.matmul(M, a, precision="highest"))
    topology = model.topology
    parents = np.array(topology.parents)
    lone = [b for b in topology.bodies_of("free") if parents[b] < 0 and not (parents == b).any()]
    if not lone:
        return new
    places = [slice(s := int(topology.v_starts[b]), s + 6) for b in lone]

    def system(b: int, s: slice) -> tuple[Array, Array]:
        I = model.inertia[b]
        M = inertia.matrix(I) + jnp.diag(model.armature[s])

        def bias(w):
            V = jnp.concatenate([w, jnp.zeros_like(w)])
            return cross_wrench(V, inertia.apply(I, V))

        gyro = jnp.pad(jax.jacfwd(bias)(v[s][:3]), ((0, 0), (0, 3)))
        return M + h * (slope[s, s] + gyro), jnp.matmul(M, a[s], precision="highest")

    systems = zip(*map(system, lone, places), strict=True)
    # one after the other: several solves at a time can hang, see spatial/linear.py
    solved = jax.lax.map(lambda x: jnp.linalg.solve(*x), tuple(jnp.stack(x) for x in systems))
    for k, s in enumerate(places):
        new = new.at[s].set(solved[k])
    return new


def _chart_rate(model: Model, x: Float[Array, " nv"], u: Array) -> Float[Array, " nv"]:
    """The rate of the mixed step x, for the mixed velocity u at its end.

    They differ because rotations curve.
    """
    topology = model.topology
    for b in (*topology.bodies_of("free"), *topology.bodies_of("spherical")):
        s = slice(int(topology.v_starts[b]), int(topology.v_starts[b]) + 3)
        u = u.at[s].set(so3.rotate(so3.right_jacobian_inverse(x[s]), u[s]))
    return u
