"""Forward dynamics of a scene: MuJoCo's stages up to the accelerations.

Source: MuJoCo's documentation, "Computation", forward dynamics. The stages are

- actuation and passive forces: :meth:`ControlledScene.inputs` (``mj_fwdActuation`` and
  ``mj_passive``);
- position, velocity and constraint: :class:`rbd_jax.contact.solver.problem.Problem` makes poses,
  mass matrix, bias forces, contacts, constraint rows and their reference accelerations
  (``mj_fwdPosition``, ``mj_fwdVelocity``, ``mj_makeConstraint``);
- acceleration: :func:`rbd_jax.contact.solver.newton.minimize` (``mj_fwdConstraint``).
"""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.core import Tracer
from jaxtyping import Array, Float

from ..algorithms import formulations
from ..derivatives.custom_jvp.implicit_solve import implicit_solve_custom_jvp
from ..lanes import lanes
from ..model.arguments import ArrayArgument, check_array, check_number
from ..model.outcome import throw_unless_successful
from ..spatial.clamp import clamp
from .actuators import Actuators, Driven
from .passive import drag, gravity_compensation
from .scene import Scene, actuator_gravcomp, constants as constants_of
from .solver.newton import Solution, minimize
from .solver.problem import Factor, Problem, SolverInputs, differentiable
from .weights import Constants


class ControlledScene(NamedTuple):
    """A scene with its controls and applied forces."""

    scene: Scene
    controls: Float[Array, " nu"]
    tau: Float[Array, " nv"] | None
    """Applied generalized forces (N m, N); None for none."""
    constants: Constants
    act: Float[Array, " na"] | None = None
    """Activations; None if no actuator has one."""

    @property
    def actuators(self) -> Actuators:
        """The actuators of the scene, with the damping of their damping ratios."""
        return self.scene.actuators.damped(self.constants.damping)

    def driven(self, q: Float[Array, " nq"]) -> Driven:
        """What the forces of the actuators depend on beside state and controls."""
        tendons, scene = self.scene.tendons, self.scene
        there = None if tendons is None else tendons.at(scene.model, q)
        return Driven(self.act, scene.dt, there, self.constants.acc0, actuator_gravcomp(scene, q))

    def activation_rate(self) -> Float[Array, " na"]:
        """The rates of the activations (1/s)."""
        a = self.scene.actuators
        assert a.activation is not None and self.act is not None
        u = clamp(self.controls, a.ctrlrange[:, 0], a.ctrlrange[:, 1])
        return a.activation.rate(self.act, u)

    def inputs(self, q: Float[Array, " nq"], v: Float[Array, " nv"]) -> SolverInputs:
        """The actuation stage: actuator forces, applied forces and passive forces at a state."""
        scene, model = self.scene, self.scene.model
        driven = self.driven(q)
        force = self.actuators.torque(model, q, v, self.controls, driven)
        force = force if self.tau is None else force + self.tau
        if scene.gravcomp is not None:
            lift = gravity_compensation(model, scene.gravcomp, q)
            force = force + (scene.gravcomp.split(lift)[0] if scene.gravcomp.by_actuators else lift)
        if scene.fluid is not None:
            force = force + drag(model, scene.fluid, q, v)
        if scene.tendons is not None:
            there, fixed = driven.tendons, self.constants.tendons
            assert there is not None and fixed is not None
            force = force + there.pull(scene.tendons.passive(there, v, fixed.rest))
        return SolverInputs(
            model, scene.constraints, self.constants, q, v, force, scene.dt, driven.tendons
        )


def controlled(
    name: str, scene: Scene, controls, tau, constants: Constants | None, act
) -> ControlledScene:
    """The scene with its controls and applied forces; computes the constants if they are None."""
    constants = constants_now(scene) if constants is None else constants
    if act is None and scene.na:
        raise ValueError(
            f"{name}: the scene has {scene.na} activations, which are part of its state; pass "
            "act=… (jnp.zeros(scene.na) at first) and keep the act of the result"
        )
    if act is not None:
        argument = ArrayArgument((scene.na,), "float", False, False)
        act = check_array(name, scene.model, "act", act, argument)
    return ControlledScene(scene, controls, tau, constants, act if scene.na else None)


def constants_now(scene: Scene) -> Constants:
    """The constants of a scene.

    Where it pays, those of a scene that is not traced are computed now. A compiled step of a scene
    that it closes over then has them as numbers, and computes nothing once more in each call.
    """
    if any(isinstance(x, Tracer) for x in jax.tree.leaves(scene)):
        return constants_of(scene)
    return formulations.for_fixed_arguments(traced=constants_of, known=_now)(scene)


def _now(scene: Scene) -> Constants:
    with jax.ensure_compile_time_eval():
        return eqx.filter_jit(constants_of)(scene)


def constrained_acceleration(
    scene: Scene,
    q: Float[Array, " nq"],
    v: Float[Array, " nv"],
    controls: Float[Array, " nu"],
    tau: Float[Array, " nv"] | None = None,
    warmstart: Float[Array, " nv"] | None = None,
    *,
    act: Float[Array, " na"] | None = None,
    constants: Constants | None = None,
    max_steps: int = 60,
    throw: bool = False,
) -> Solution:
    """Accelerations of a scene under its actuators, contacts and other constraints.

    The arguments are those of :func:`scene_step`.
    """
    given = q, v, controls, tau, warmstart
    q, v, controls, tau, warmstart = checked_arguments(
        "constrained_acceleration", scene, max_steps, *given
    )
    x = controlled("constrained_acceleration", scene, controls, tau, constants, act)
    start = jax.lax.stop_gradient(warmstart)
    a, minimum, (result, steps), _ = implicit_solve_custom_jvp(
        _solve, _differentiate, (x, q, v), (start, max_steps), False
    )
    found = Solution(a, result, steps, minimum)
    return throw_unless_successful(found, found.result) if throw else found


@lanes
def _solve(args: tuple[ControlledScene, Array, Array], rest, keep: bool):
    (x, q, v), (warmstart, max_steps) = args, rest
    start = jnp.zeros_like(v) if warmstart is None else warmstart
    found = minimize(Problem(x.inputs(q, v)), start, max_steps, keep)
    return found.a, found.minimum, (found.result, found.steps), found.factor


@lanes
def _differentiate(args: tuple[ControlledScene, Array, Array], a: Array, factor: Factor | None):
    x, q, v = args
    return differentiable(x.inputs(q, v), a, factor)


def checked_arguments(
    name: str, scene: Scene, max_steps: int, q, v, controls, tau, warmstart
) -> tuple:
    """The arrays in the precision of the robot, after a check of their shapes."""
    check_number(name, "max_steps", max_steps, least=1, whole=True)
    sizes = {"q": (q, "nq"), "v": (v, "nv"), "controls": (controls, scene.nu)}
    sizes |= {"tau": (tau, "nv"), "warmstart": (warmstart, "nv")}

    def one(key: str, x, size):
        argument = ArrayArgument((size,), "float", key in ("tau", "warmstart"), False)
        return check_array(name, scene.model, key, x, argument)

    return tuple(one(key, *x) for key, x in sizes.items())
