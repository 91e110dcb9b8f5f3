"""What is special about the steps of a plant, found out in one place.

The solvers ask a problem for steps, costs and their local models. Any plant gives them by autodiff
through its step. For two kinds of plants there is more: the steps of a free robot have analytical
derivatives, and those of a robot on contacts that a schedule switches share the derivatives of
motion and contact forces.
"""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array

from ...lanes import lanes
from ...model import Model
from ...simulate import ConstrainedRobot, Plant, Robot, State, step_derivatives
from ...spatial import linear
from ._local_models import Quadratic, ResetMaps


@dataclasses.dataclass(frozen=True)
class Kind:
    """Any plant: local models by autodiff through its step. Hashable, part of the program."""

    def starting(self, problem: Any) -> "Kind":
        """The kind for a start time that may be traced."""
        return self

    def robot(self, problem: Any) -> Model | None:
        """The robot whose accelerations a step of semi-implicit Euler takes, or None.

        Then the positions of a step follow from its velocities, and multiple shooting uses this.
        """
        return None

    @property
    def free(self) -> bool:
        """Whether the accelerations of a step are the forward dynamics of a robot."""
        return False

    def begin(self, problem: Any, t: Array, state: State) -> State:
        """The state after the events at the beginning of a step."""
        return problem.plant.events(t, state, problem.dt)

    def step(self, problem: Any, t: Array, state: State, u: Array):
        """The states after the events and at the end of a step, and the outputs of the plant."""
        begun = self.begin(problem, t, state)
        outputs = problem.plant.outputs(t, begun, u, problem.dt)
        return (begun, problem.ended(t, begun, u)), outputs

    def expansions(
        self, problem: Any, q: Array, y: Array, u: Array, *, slopes: bool = True, costs: bool = True
    ) -> tuple[tuple[Array, Array] | None, Quadratic | None]:
        """``(A, B)`` of all steps, and Gauss–Newton models of all stage costs.

        Args:
            problem: the problem. q: configurations (T, …). y: velocities and memory (T, …).
            u: controls (T, …).
            slopes: whether (A, B) are wanted.
            costs: whether the models of the costs are wanted.

        Returns:
            Both, which may share work. The models are None if they have to come from autodiff.
        """
        if not slopes:
            return None, None
        problem, n = problem.prepared(), problem.nx
        J = jax.vmap(lambda *row: _step_slopes(problem, *row))(jnp.arange(len(u)), q, y, u)
        return (J[..., :n], J[..., n:]), None

    def stage_expansion(self, problem: Any, k: Array, q: Array, v: Array, u: Array):
        """The velocity after step k, its slope along (x, u), and the model of the step's cost.

        Only for steps of semi-implicit Euler. The model is None if it has to come from autodiff.
        The velocity v is the one after a landing at the beginning of the step.
        """
        raise NotImplementedError

    def landings(self, problem: Any, q: Array, v: Array) -> tuple[Array, ResetMaps | None]:
        """Velocities after the landings, and how they change, if there are any."""
        return v, None

    def past_landings(self, problem: Any, q: Array, y: Array) -> tuple[Any, Array]:
        """A problem without landings and the states after them (T, …), with the same steps, costs.

        Landings are few. So the kernel of a step, which all steps share, need not contain one.
        """
        return problem, y


@lanes
def _step_slopes(problem, k, q, y, u):
    zero = jnp.zeros((problem.nx + u.size,), q.dtype)

    def along(dz):  # one step and its motion, so that the step is computed once for all directions
        step = lambda z: problem.step(k, *problem.moved(q, y, u, z))  # noqa: E731
        end, moves = jax.jvp(step, (zero,), (dz,))
        return jax.jvp(lambda *x: problem.difference(*end, *x), end, moves)[1]

    return jax.vmap(along, out_axes=1)(jnp.eye(zero.size, dtype=q.dtype))


@dataclasses.dataclass(frozen=True)
class FreeRobot(Kind):
    """A robot without constraints whose integrator has no memory."""

    def robot(self, problem: Any) -> Model | None:
        """See :meth:`Kind.robot`."""
        return problem.plant.integrator.euler_robot(problem.model, problem.dt)

    @property
    def free(self) -> bool:
        """See :attr:`Kind.free`."""
        return True

    def expansions(self, problem, q, y, u, *, slopes=True, costs=True):
        """See :meth:`Kind.expansions`."""
        if not slopes:
            return None, None
        each = lambda k, *row: _robot_slopes(problem, problem.time(k), *row)  # noqa: E731
        return jax.vmap(each)(jnp.arange(len(u)), q, y, u), None

    def stage_expansion(self, problem, k, q, v, u):
        """See :meth:`Kind.stage_expansion`."""
        slopes = _robot_slopes(problem, problem.time(k), q, v, u)
        W = jnp.concatenate([X[problem.model.nv :] for X in slopes], axis=1)
        return problem.step(k, q, v, u)[1], W, None


@lanes
def _robot_slopes(problem, t: Array, q: Array, v: Array, u: Array):
    plant, (by_x, by_u) = problem.plant, torque_slopes(problem, t, q, v, u)
    tau = plant.torques(t, q, v, u)
    how = {"integrator": plant.integrator, "f_ext": plant.f_ext}
    A, B = step_derivatives(plant.model, q, v, tau, problem.dt, **how)
    times = linear.matmul
    return A if by_x is None else A + times(B, by_x), times(B, by_u)


def torque_slopes(problem, t: Array, q: Array, v: Array, u: Array) -> tuple[Array | None, Array]:
    """``∂τ/∂x`` (None stands for zero) and ``∂τ/∂u`` of a robot's actuation."""
    nv, actuation = v.size, problem.plant.actuation
    if actuation is None:
        return None, jnp.eye(nv, dtype=q.dtype)
    if not callable(actuation):
        return None, jnp.asarray(actuation, q.dtype)

    def torques(z):
        return problem.plant.torques(t, *problem.moved(q, v, u, z))

    J = jax.jacfwd(torques)(jnp.zeros((2 * nv + u.size,), q.dtype))
    return J[:, : 2 * nv], J[:, 2 * nv :]


def kind_of(plant: Plant, problem: Any) -> Kind:
    """The kind of a problem's plant.

    Raises:
        ValueError: if the state decides which constraints hold.
    """
    from ._contact_schedule import scheduled

    if isinstance(plant, ConstrainedRobot):
        if plant.switches:
            raise ValueError(
                "Problem: the state decides which constraints hold, by a function or a guard, and "
                "an optimizer has no derivatives of that; give active as rows, one for each step"
            )
        return scheduled(problem) or Kind()
    single = problem.substeps == 1 and not problem.layout.shapes
    return FreeRobot() if type(plant) is Robot and single else Kind()
