"""One time step of a scene, as MuJoCo computes it to rounding.

A step is forward dynamics, see :mod:`rbd_jax.contact.forward`, and then an integrator, see
:mod:`rbd_jax.contact.integration`. The solver runs once for each stage of the integrator. The
derivatives of the step take the accelerations that it found and do not run it again.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from ..derivatives.minimizer import implicit_solve
from ..lanes import lanes
from ..model.outcome import RESULTS, throw_unless_successful
from .forward import ControlledScene, checked_arguments, controlled
from .integration import Accelerate, integrate_step
from .report import ConstraintForces, constraint_forces
from .scene import Scene
from .solver.newton import Solution, minimize
from .solver.problem import Problem, differentiable
from .weights import Constants


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
    q, v, controls, tau, warmstart = checked_arguments("scene_step", scene, max_steps, *given)
    args = controlled(scene, controls, tau, constants), q, v, forces
    rest = jax.lax.stop_gradient(warmstart), max_steps
    (q, v, a, named), _, ended = implicit_solve(_advance, _differentiate, args, rest)
    new, (result, _) = SceneStep(q, v, a, *ended, named), ended
    return throw_unless_successful(new, result) if throw else new


class _Moved(NamedTuple):
    """The fields of a step that have derivatives."""

    q: Float[Array, " nq"]
    v: Float[Array, " nv"]
    a: Float[Array, " nv"]
    forces: ConstraintForces | None


_Arguments = tuple[ControlledScene, Array, Array, bool]


@lanes
def _advance(args: _Arguments, rest):
    """The step, its accelerations at all stages, and how the solver ended."""
    (x, _, v, _), (warmstart, max_steps) = args, rest
    start = jnp.zeros_like(v) if warmstart is None else warmstart

    def accelerate(stage: int, q: Array, v: Array, start: Array) -> Solution:
        return minimize(Problem(x.inputs(q, v)), start, max_steps)

    moved, found = _moved(args, start, accelerate)
    return moved, [s.a for s in found], _ended(found)


@lanes
def _differentiate(args: _Arguments, solved: list[Array]):
    """The same step and accelerations, from solved accelerations with implicit derivatives."""
    x = args[0]

    def accelerate(stage: int, q: Array, v: Array, start: Array) -> Solution:
        a = differentiable(x.inputs(q, v), solved[stage])
        return Solution(a, RESULTS.successful, jnp.zeros((), jnp.int32))

    moved, found = _moved(args, solved[0], accelerate)
    return moved, [s.a for s in found]


def _moved(args: _Arguments, start: Array, accelerate: Accelerate) -> tuple[_Moved, list[Solution]]:
    """The state after the step, and the accelerations of all stages of the integrator."""
    x, q, v, forces = args
    q1, v1, found = integrate_step(x, q, v, start, accelerate)
    first = found[0].a
    named = constraint_forces(x.scene, q, v, first, x.constants) if forces else None
    return _Moved(q1, v1, first, named), found


def _ended(found: list[Solution]) -> tuple[RESULTS, Int[Array, ""]]:
    """The first result that is no success, and the Newton steps of all stages."""
    _, result, steps = found[0]
    for x in found[1:]:
        result = RESULTS.where(result == RESULTS.successful, x.result, result)
        steps = steps + x.steps
    return result, steps
