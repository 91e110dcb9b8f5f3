"""One time step of a scene, MuJoCo's to rounding.

Source: MuJoCo's documentation, "Computation", numerical integration. MuJoCo integrates the position
of a free body along its velocity in the world, not along a screw; so velocities are ``mixed`` here:
as ours, but with the linear velocity of free joints in world axes.
"""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from ..algorithms.crba import crba
from ..derivatives.minimizer import searched
from ..derivatives.rules import mass_matrix_solve
from ..lanes import lanes
from ..model import Model, integrate
from ..model.arguments import ArrayArgument, check_array
from ..model.outcome import RESULTS, throw_unless_successful
from ..spatial import inertia, so3
from ..spatial.motion import cross_wrench
from .constants import constants as constants_of
from .dynamics import ControlledScene, Known, Search, Solution
from .fluid import drag_slope
from .report import ConstraintForces, constraint_forces
from .scene import Scene
from .solver.rows import Constants


class SceneStep(NamedTuple):
    """The state after a step, and what happened in it."""

    q: Float[Array, " nq"]
    v: Float[Array, " nv"]
    a: Float[Array, " nv"]
    """MuJoCo's ``qacc`` at the start, in our axes; the warmstart of the next step."""
    result: RESULTS
    """Whether the solver of the accelerations converged, with RK4 at every stage."""
    steps: Int[Array, ""]
    """Newton steps of that solver, with RK4 those of all stages."""
    forces: ConstraintForces | None = None
    """Contacts and constraint forces by name at the start of the step, if asked for."""


def _turned(model: Model, q: Array, v: Array, back: bool) -> Float[Array, " nv"]:
    """Linear parts of free joints from body to world axes, or back."""
    topology = model.topology
    for b in topology.bodies_of("free"):
        s, k = int(topology.v_starts[b]), int(topology.q_starts[b])
        R = so3.quat_to_matrix(so3.quat_normalize(q[k + 3 : k + 7]))
        turn = so3.rotate_inverse if back else so3.rotate
        v = v.at[s + 3 : s + 6].set(turn(R, v[s + 3 : s + 6]))
    return v


def _moved(model: Model, q: Array, step: Float[Array, " nv"]) -> Float[Array, " nq"]:
    """``q`` moved by a mixed velocity times a time."""
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


def constrained_acceleration(
    scene: Scene,
    q: Float[Array, " nq"],
    v: Float[Array, " nv"],
    controls: Float[Array, " nu"],
    tau: Float[Array, " nv"] | None = None,
    warmstart: Float[Array, " nv"] | None = None,
    *,
    constants: Constants | None = None,
    max_steps: int = 60,
    throw: bool = False,
) -> Solution:
    """Accelerations of a scene under its actuators, contacts and other constraints.

    The arguments are those of :func:`scene_step`.
    """
    given = q, v, controls, tau, warmstart
    q, v, controls, tau, warmstart = _checked("constrained_acceleration", scene, max_steps, *given)
    drive, start = _drive(scene, controls, tau, constants), jax.lax.stop_gradient(warmstart)
    a, _, ended = searched(_find, _found, (drive, q, v), (start, max_steps))
    found = Solution(a, *ended)
    return throw_unless_successful(found, found.result) if throw else found


@lanes
def _find(args: tuple[ControlledScene, Array, Array], rest):
    search = Search(args[0], *rest)
    a = search(*args[1:])
    return a, a, search.ended


@lanes
def _found(args: tuple[ControlledScene, Array, Array], a: Array):
    drive, q, v = args
    a = Known(drive, [a])(q, v)
    return a, a


def scene_step(
    scene: Scene,
    q: Float[Array, " nq"],
    v: Float[Array, " nv"],
    controls: Float[Array, " nu"],
    tau: Float[Array, " nv"] | None = None,
    warmstart: Float[Array, " nv"] | None = None,
    *,
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
        warmstart: where the solver starts, the acceleration of the step before; it changes nothing
            but the number of steps of the solver.
        forces: whether the result has contacts and constraint forces by name.
        constants: what :func:`constants` computes from this scene, in a loop over its steps;
            computed if None.
        max_steps: limit of the solver's Newton steps. Most samples need fewer than ten.
        throw: raise an error if the solver does not converge; otherwise ``result`` says it. The
            error needs a look at the result on the host in every step, so it is not the default.

    Raises:
        ValueError: if the shape of an argument does not fit the scene.
        TypeError: for integers, and for lists and other values that are no arrays.
        RuntimeError: if the solver does not converge and ``throw`` is set.
    """
    given = q, v, controls, tau, warmstart
    q, v, controls, tau, warmstart = _checked("scene_step", scene, max_steps, *given)
    args = _drive(scene, controls, tau, constants), q, v, forces
    rest = jax.lax.stop_gradient(warmstart), max_steps
    moved, _, (result, steps) = searched(_advance, _advance_known, args, rest)
    new = SceneStep(moved.q, moved.v, moved.a, result, steps, moved.forces)
    return throw_unless_successful(new, result) if throw else new


def _drive(scene: Scene, controls, tau, constants: Constants | None) -> ControlledScene:
    return ControlledScene(
        scene, controls, tau, constants_of(scene) if constants is None else constants
    )


class _Moved(NamedTuple):
    """What of a step has derivatives."""

    q: Float[Array, " nq"]
    v: Float[Array, " nv"]
    a: Float[Array, " nv"]
    forces: ConstraintForces | None


@lanes
def _advance(args: tuple[ControlledScene, Array, Array, bool], rest):
    search = Search(args[0], *rest)
    moved = _moved_by(search, *args)
    return moved, [x.a for x in search.found], search.ended


@lanes
def _advance_known(args: tuple[ControlledScene, Array, Array, bool], found: list[Array]):
    known = Known(args[0], found)
    return _moved_by(known, *args), known.given


def _moved_by(
    accelerations: Search | Known, drive: ControlledScene, q: Array, v: Array, forces: bool
) -> _Moved:
    """The end of a step whose accelerations come from a search, or are known from one."""
    scene, model, h = drive.scene, drive.scene.model, drive.scene.dt
    first = accelerations(q, v)
    if scene.integrator == "rk4":
        q1, v1 = _runge_kutta(accelerations, scene, q, v, first)
    else:
        a = first
        if scene.integrator == "implicitfast":
            a = _implicitfast(drive, q, v, a)
        elif scene.implicit_damping:
            a = _heavier(model, h * model.damping, q, a)
        u = _turned(model, q, v + h * a, False)
        q1 = _moved(model, q, h * u)
        v1 = _turned(model, q1, u, True)
    told = constraint_forces(scene, q, v, first, drive.constants) if forces else None
    return _Moved(q1, v1, first, told)


def _checked(name: str, scene: Scene, max_steps: int, q, v, controls, tau, warmstart) -> tuple:
    """The arrays in the precision of the robot, if their shapes are right."""
    if max_steps < 1:
        raise ValueError(f"{name}: max_steps must be at least 1, got {max_steps}")
    sizes = {"q": (q, "nq"), "v": (v, "nv"), "controls": (controls, scene.nu)}
    sizes |= {"tau": (tau, "nv"), "warmstart": (warmstart, "nv")}

    def one(key: str, x, size):
        argument = ArrayArgument((size,), "float", key in ("tau", "warmstart"), False)
        return check_array(name, scene.model, key, x, argument)

    return tuple(one(key, *x) for key, x in sizes.items())


def _heavier(model: Model, more: Float[Array, " nv"], q: Array, a: Array) -> Float[Array, " nv"]:
    """``(M + diag(more))⁻¹ M a``, which is ``a − (M + diag(more))⁻¹ diag(more) a``."""
    heavy = eqx.tree_at(lambda m: m.armature, model, model.armature + more)
    return a - mass_matrix_solve(heavy, q, more * a)


def _implicitfast(drive: ControlledScene, q: Array, v: Array, a: Array) -> Array:
    """Damping, drag and slopes of actuators implicit; of lone free bodies gyroscopic terms too."""
    scene, model, h = drive.scene, drive.scene.model, drive.scene.dt
    slope = jnp.diag(model.damping)
    if scene.nu:
        slope = slope - drive.actuators.velocity_slope(model, q, v, drive.controls)
    if scene.fluid is not None:
        slope = slope - drag_slope(model, scene.fluid, q, v)
    if scene.fluid is None and all(k == "scalar" for k in scene.actuators.trntype):
        new = _heavier(model, h * jnp.diagonal(slope), q, a)
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
    """The rate of the mixed step x whose end moves with the mixed velocity u: rotations curve."""
    topology = model.topology
    for b in (*topology.bodies_of("free"), *topology.bodies_of("spherical")):
        s = slice(int(topology.v_starts[b]), int(topology.v_starts[b]) + 3)
        u = u.at[s].set(so3.rotate(so3.right_jacobian_inverse(x[s]), u[s]))
    return u


def _runge_kutta(
    accelerations: Search | Known, scene: Scene, q: Array, v: Array, first: Array
) -> tuple[Array, Array]:
    """The state after a step of Runge and Kutta's method, of order four on the rotation group.

    Source: Munthe-Kaas, "Runge–Kutta methods on Lie groups" (1998): stages are steps from the
    start, as MuJoCo 4 does it. MuJoCo 3 left out the curvature of rotations.
    """
    model, h = scene.model, scene.dt
    u0 = _turned(model, q, v, False)
    speeds, rates = [u0], [_turned(model, q, first, False)]
    for c in (0.5, 0.5, 1.0):
        moved = h * c * speeds[-1]
        qi = _moved(model, q, moved)
        ui = u0 + h * c * rates[-1]
        a = accelerations(qi, _turned(model, qi, ui, True))
        speeds.append(_chart_rate(model, moved, ui))
        rates.append(_turned(model, qi, a, False))
    mean = lambda x: (x[0] + 2 * x[1] + 2 * x[2] + x[3]) / 6  # noqa: E731
    q1 = _moved(model, q, h * mean(speeds))
    return q1, _turned(model, q1, u0 + h * mean(rates), True)
