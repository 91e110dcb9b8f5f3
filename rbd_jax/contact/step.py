"""One time step of a scene, as MuJoCo computes it to rounding.

A step is forward dynamics, see :mod:`rbd_jax.contact.forward`, and then integration. The solver
runs once for each stage of the integrator. The derivatives of the step take the accelerations that
it found and do not run it again.

Source: MuJoCo's documentation, "Computation", numerical integration. MuJoCo integrates the position
of a free body along its velocity in the world, and not along a screw. So velocities are ``mixed``
here: the linear velocity of free joints is in world axes, all other parts are as everywhere.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from ..algorithms.crba import crba
from ..derivatives.custom_jvp.forward_dynamics import mass_matrix_solve
from ..derivatives.custom_jvp.implicit_solve import implicit_solve_custom_jvp
from ..derivatives.custom_jvp.inverse_dynamics import inverse_dynamics
from ..lanes import lanes
from ..model import Model, integrate
from ..model.outcome import RESULTS, throw_unless_successful
from ..spatial import inertia, so3
from ..spatial.motion import cross_wrench
from .actuators import Driven
from .forward import ControlledScene, checked_arguments, controlled
from .passive import drag_slope
from .report import ConstraintForces, forces_at
from .scene import Scene
from .solver.newton import Found, minimize
from .solver.problem import Factor, Problem, differentiable
from .solver.rows import classical_offset
from .weights import Constants


class SceneStep(NamedTuple):
    """The state after a step, the accelerations, and how the solver ended."""

    q: Float[Array, " nq"]
    v: Float[Array, " nv"]
    a: Float[Array, " nv"]
    """MuJoCo's ``qacc`` at the start of the step, in our axes; a warmstart for the next step."""
    result: RESULTS
    """How the solver of the accelerations ended; with RK4 the first stage that did not succeed."""
    steps: Int[Array, ""]
    """Newton steps of that solver, with RK4 those of all stages."""
    forces: ConstraintForces | None = None
    """Contacts and constraint forces by name at the start of the step, if asked for."""
    act: Float[Array, " na"] | None = None
    """Activations after the step; None if no actuator has one."""


def scene_step(
    scene: Scene,
    q: Float[Array, " nq"],
    v: Float[Array, " nv"],
    controls: Float[Array, " nu"],
    tau: Float[Array, " nv"] | None = None,
    warmstart: Float[Array, " nv"] | None = None,
    *,
    act: Float[Array, " na"] | None = None,
    forces: bool = False,
    constants: Constants | None = None,
    max_steps: int = 60,
    throw: bool = False,
) -> SceneStep:
    """One step of ``scene.dt`` seconds, as MuJoCo's ``mj_step``.

    The derivatives of the accelerations are a rule, the implicit function theorem; those of the
    rest are autodiff's.

    Args:
        scene: robot, actuators, contacts.
        q: configuration. v: velocity.
        controls: one number an actuator, held over the step.
        tau: more generalized forces (N m, N).
        warmstart: the accelerations at which the solver starts, those of the step before. They
            change only the number of its Newton steps.
        act: the activations of the scene's actuators, a part of the state; required if
            ``scene.na`` is not zero.
        forces: whether the result has contacts and constraint forces by name.
        constants: the result of :func:`constants` for this scene; computed if None. In a loop over
            steps compute them once.
        max_steps: limit of the solver's Newton steps. Most samples need fewer than ten.
        throw: raise an error if the solver does not converge; otherwise ``result`` says it. The
            error needs a look at the result on the host in every step, so it is not the default.

    Raises:
        ValueError: if the shape of an argument does not fit the scene.
        TypeError: for integers, and for lists and other values that are no arrays.
        RuntimeError: if the solver does not converge and ``throw`` is set.
    """
    given = q, v, controls, tau, warmstart
    q, v, controls, tau, warmstart = checked_arguments("scene_step", scene, max_steps, *given)
    args = controlled("scene_step", scene, controls, tau, constants, act), q, v, forces
    rest = jax.lax.stop_gradient(warmstart), max_steps
    moved, _, notes, _ = implicit_solve_custom_jvp(_advance, _differentiate, args, rest, False)
    result, steps = notes
    new = SceneStep(moved.q, moved.v, moved.a, result, steps, moved.forces, moved.act)
    return throw_unless_successful(new, result) if throw else new


class _Moved(NamedTuple):
    """The fields of a step that have derivatives."""

    q: Float[Array, " nq"]
    v: Float[Array, " nv"]
    a: Float[Array, " nv"]
    forces: ConstraintForces | None
    act: Float[Array, " na"] | None


_Arguments = tuple[ControlledScene, Array, Array, bool]
_Solved = tuple[Float[Array, "stages nv"], Factor | None]
"""The accelerations at all stages, and the factors of their Hessians if they were kept."""
Accelerate = Callable[[ControlledScene, Array, Array, Any], Found]
"""``accelerate(x, q, v, known)`` gives the accelerations of one stage of a step. ``known`` is where
a search for them begins, or they themselves with what was kept of the search."""


@lanes
def _advance(args: _Arguments, rest, keep: bool):
    """The step, its accelerations at all stages, how the solver ended, and, if it is to be kept,
    the factor of its Hessian at all stages."""
    (_, _, v, _), (warmstart, max_steps) = args, rest
    start = jnp.zeros_like(v) if warmstart is None else warmstart

    def accelerate(x: ControlledScene, q: Array, v: Array, start: Array) -> Found:
        return minimize(Problem(x.inputs(q, v)), start, max_steps, keep)

    moved, found = _moved(args, start, None, accelerate)
    return moved, found.minimum, (found.result, found.steps), found.factor


@lanes
def _differentiate(
    args: _Arguments, solved: Float[Array, "stages nv"], factor: Factor | None = None
):
    """The same step and accelerations, from solved accelerations with implicit derivatives."""

    def accelerate(x: ControlledScene, q: Array, v: Array, solved: tuple) -> Found:
        a, minimum = differentiable(x.inputs(q, v), *solved)
        return Found(a, RESULTS.successful, jnp.zeros((), jnp.int32), minimum)

    moved, found = _moved(args, solved[0], (solved, factor), accelerate)
    return moved, found.minimum


def knows_accelerations(scene: Scene) -> bool:
    """Whether :func:`scene_step_again` can take the accelerations of a step from its result.

    The accelerations of the other stages of RK4, and those before a noslip pass, are not in it.
    """
    return scene.integrator != "rk4" and scene.constraints.noslip is None


def scene_step_again(
    scene: Scene,
    q: Float[Array, " nq"],
    v: Float[Array, " nv"],
    controls: Float[Array, " nu"],
    a: Float[Array, " nv"],
    act: Float[Array, " na"] | None = None,
    constants: Constants | None = None,
) -> _Moved:
    """A step whose accelerations ``a`` are known, with the derivatives of :func:`scene_step`.

    No solver runs. The derivatives are those of the implicit function theorem at ``a``, which has
    to be what :func:`scene_step` found for these arguments.

    Args:
        scene: robot, actuators, contacts, of which :func:`knows_accelerations` is true.
        q: configuration. v: velocity.
        controls: one number an actuator, held over the step.
        a: the accelerations ``scene_step(…).a``.
        act: the activations at the start of the step.
        constants: the result of :func:`constants` for this scene; computed if None.
    """
    x = controlled("scene_step", scene, controls, None, constants, act)
    return _differentiate((x, q, v, False), a[None])[0]


def _moved(
    args: _Arguments, start: Array, solved: _Solved | None, accelerate: Accelerate
) -> tuple[_Moved, Found]:
    """The state after the step, and what was found: the accelerations of all stages of the
    integrator with the factors that were kept, the first result that is no success, and the
    solver's steps of all stages."""
    x, q, v, forces = args
    q1, v1, act, found = _integrated(x, q, v, start, solved, accelerate)
    named = forces_at(x.scene, q, v, found.minimum[0], x.constants) if forces else None
    return _Moved(q1, v1, found.a[0], named, act), found


def _integrated(
    x: ControlledScene, q: Array, v: Array, start: Array, solved: _Solved | None,
    accelerate: Accelerate,
) -> tuple[Array, Array, Array | None, Found]:  # fmt: skip
    """The state after ``scene.dt`` seconds, and what was found in all stages."""
    if x.scene.integrator == "rk4":
        return _runge_kutta(x, q, v, start, solved, accelerate)
    found = accelerate(x, q, v, start if solved is None else jax.tree.map(lambda y: y[0], solved))
    act = None if x.act is None else _activated(x, x.activation_rate())
    a, minimum, factor = jax.tree.map(lambda y: y[None], (found.a, found.minimum, found.factor))
    return *_euler(x, q, v, found.a), act, found._replace(a=a, minimum=minimum, factor=factor)


def _activated(x: ControlledScene, rate: Float[Array, " na"]) -> Float[Array, " na"]:
    """The activations after a step with given rates."""
    activation = x.scene.actuators.activation
    assert activation is not None and x.act is not None
    return activation.after(x.act, rate, x.scene.dt)


def _euler(x: ControlledScene, q: Array, v: Array, a: Array) -> tuple[Array, Array]:
    """A step of semi-implicit Euler or of an implicit integrator from the accelerations a."""
    scene, model, h = x.scene, x.scene.model, x.scene.dt
    if scene.integrator in ("implicit", "implicitfast"):
        a = implicit(x, q, v, a)
    elif scene.implicit_damping:
        a = _with_armature(x, h * model.damping, q, a)
    u = _turned(model, q, v + h * a, False)
    q1 = _configuration_after(model, q, h * u)
    return q1, _turned(model, q1, u, True)


class _Stage(NamedTuple):
    """What a stage of Runge and Kutta's method finds: rates of change, and how it found them."""

    speed: Float[Array, " nv"]
    """Of the configuration, as a mixed step from the start."""
    rate: Float[Array, " nv"]
    """Of the mixed velocity."""
    drive: Float[Array, " na"] | None
    """Of the activations."""


def _runge_kutta(
    x: ControlledScene, q: Array, v: Array, start: Array, solved: _Solved | None,
    accelerate: Accelerate,
) -> tuple[Array, Array, Array | None, Found]:  # fmt: skip
    """A step of Runge and Kutta's method, of order four on the rotation group.

    The stages are a loop, so that the dynamics and the solver are compiled once.

    Source: Munthe-Kaas, "Runge–Kutta methods on Lie groups" (1998). Stages are steps from the
    start, as in MuJoCo 4. MuJoCo 3 left out the curvature of rotations.
    """
    model, h, act = x.scene.model, x.scene.dt, x.act
    u0 = _turned(model, q, v, False)

    def stage(carry, row):
        (last, total, start, result, steps), (c, weight, known) = carry, row
        moved, ui = h * c * last.speed, u0 + h * c * last.rate
        qi = _configuration_after(model, q, moved)
        now = x if act is None else x._replace(act=act + h * c * last.drive)
        found = accelerate(now, qi, _turned(model, qi, ui, True), start if known is None else known)
        new = _Stage(
            _chart_rate(model, moved, ui),
            _turned(model, qi, found.a, False),
            None if act is None else now.activation_rate(),
        )
        total = jax.tree.map(lambda s, r: s + weight * r, total, new)
        result = RESULTS.where(result == RESULTS.successful, found.result, result)
        rows = found.a, found.minimum, found.factor
        return (new, total, found.minimum, result, steps + found.steps), rows

    zero = _Stage(
        jnp.zeros_like(v), jnp.zeros_like(v), None if act is None else jnp.zeros_like(act)
    )
    none = jax.tree.map(jnp.asarray, RESULTS.successful), jnp.zeros((), jnp.int32)
    c, weights = (jnp.array(row, q.dtype) for row in ((0, 0.5, 0.5, 1), (1, 2, 2, 1)))
    (_, total, _, result, steps), (a, minimum, factor) = jax.lax.scan(
        stage, (zero, zero, start, *none), (c, weights, solved), length=4
    )
    mean = jax.tree.map(lambda s: s / 6, total)
    q1 = _configuration_after(model, q, h * mean.speed)
    act = None if act is None else _activated(x, mean.drive)
    return (
        q1,
        _turned(model, q1, u0 + h * mean.rate, True),
        act,
        Found(a, result, steps, minimum, factor),
    )


def _turned(model: Model, q: Array, v: Array, back: bool) -> Float[Array, " nv"]:
    """A velocity with the linear parts of free joints turned to world axes, or back."""
    topology = model.topology
    for b in topology.bodies_of("free"):
        s, k = int(topology.v_starts[b]), int(topology.q_starts[b])
        R = so3.quat_to_matrix(so3.quat_normalize(q[k + 3 : k + 7]))
        turn = so3.rotate_inverse if back else so3.rotate
        v = v.at[s + 3 : s + 6].set(turn(R, v[s + 3 : s + 6]))
    return v


def _configuration_after(model: Model, q: Array, step: Float[Array, " nv"]) -> Float[Array, " nq"]:
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
    x: ControlledScene, armature: Float[Array, " nv"], q: Array, a: Array
) -> Float[Array, " nv"]:
    """``(M + diag(armature))⁻¹ M a``, which is ``a − (M + diag(armature))⁻¹ diag(armature) a``."""
    model, tendons = x.scene.model, x.scene.tendons
    if tendons is not None and tendons.armature is not None:
        M = _mass_matrix(x, q)
        return jnp.linalg.solve(M + jnp.diag(armature), jnp.matmul(M, a, precision="highest"))
    heavy = eqx.tree_at(lambda m: m.armature, model, model.armature + armature)
    return a - mass_matrix_solve(heavy, q, armature * a)


def implicit(x: ControlledScene, q: Array, v: Array, a: Array) -> Array:
    """The accelerations of an implicit step, MuJoCo's ``implicit`` and ``implicitfast``.

    Damping, drag and the velocity gains of actuators are implicit. ``implicit`` also takes the
    Coriolis and centrifugal forces implicitly. ``implicitfast`` does so with the gyroscopic terms
    of free bodies that carry no other body.
    """
    scene, model, h = x.scene, x.scene.model, x.scene.dt
    whole = scene.integrator == "implicit"
    slope = jax.jacfwd(partial(_velocity_forces, model, q))(v) if whole else jnp.diag(model.damping)
    driven = x.driven(q) if scene.nu or scene.tendons is not None else Driven()
    if scene.nu:
        slope = slope - x.actuators.velocity_slope(model, q, v, x.controls, driven)
    if scene.tendons is not None and driven.tendons is not None:
        J = driven.tendons.dense()
        damped = scene.tendons.damping[:, None] * J
        slope = slope + jnp.matmul(J.T, damped, precision="highest")
    topology = model.topology
    parents = np.array(topology.parents)
    lone = [b for b in topology.bodies_of("free") if parents[b] < 0 and not (parents == b).any()]
    if scene.fluid is not None:
        slope = slope - drag_slope(model, scene.fluid, q, v, None if whole else lone)
    plain = scene.fluid is None and scene.tendons is None and not whole
    if plain and all(k == "scalar" for k in scene.actuators.trntype):
        new = _with_armature(x, h * jnp.diagonal(slope), q, a)
    else:
        M = _mass_matrix(x, q)
        below = np.asarray(model.topology.dof_tree.ancestor_mask)
        slope = jnp.where(below | below.T, slope, 0)  # MuJoCo's sparsity: no two branches
        new = jnp.linalg.solve(M + h * slope, jnp.matmul(M, a, precision="highest"))
    if whole:
        return new
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

    systems = zip(*map(system, map(int, lone), places), strict=True)
    # one after the other: several solves at a time can hang, see spatial/linear.py
    solved = jax.lax.map(lambda x: jnp.linalg.solve(*x), tuple(jnp.stack(x) for x in systems))
    for k, s in enumerate(places):
        new = new.at[s].set(solved[k])
    return new


def _velocity_forces(model: Model, q: Array, v: Array) -> Float[Array, " nv"]:
    """Bias forces and damping, at the accelerations that MuJoCo calls zero."""
    offset = classical_offset(model, v)
    return inverse_dynamics(model, q, v, -offset) + model.armature * offset


def _mass_matrix(x: ControlledScene, q: Array) -> Float[Array, "nv nv"]:
    """The mass matrix, with the armature of tendons."""
    M, tendons = crba(x.scene.model, q), x.scene.tendons
    if tendons is None or tendons.armature is None:
        return M
    return M + tendons.mass(tendons.at(x.scene.model, q))


def _chart_rate(model: Model, x: Float[Array, " nv"], u: Array) -> Float[Array, " nv"]:
    """The rate of the mixed step x, for the mixed velocity u at its end.

    They differ because rotations curve.
    """
    topology = model.topology
    for b in (*topology.bodies_of("free"), *topology.bodies_of("spherical")):
        s = slice(int(topology.v_starts[b]), int(topology.v_starts[b]) + 3)
        u = u.at[s].set(so3.rotate(so3.right_jacobian_inverse(x[s]), u[s]))
    return u
