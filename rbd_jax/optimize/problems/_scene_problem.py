"""Motion through contact without a schedule: the steps are those of a contact scene."""

import dataclasses
from typing import Any, cast

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from ...contact import Constants, Scene, constants, scene_step
from ...lanes import lanes
from ...model import difference
from ._problem import Problem, simulate_steps


class SceneProblem(Problem):
    """A :class:`Problem` whose robot moves in a scene: contacts come and go as they may.

    A step is ``substeps`` steps of :func:`rbd_jax.contact.scene_step` with the controls of the
    scene's actuators held. The scene's own time step gives way to ``dt / substeps``, and the robot
    is ``model``. The derivatives of a step are exact. They are one-sided where a contact begins, so
    they do not tell what a contact would do that is not there: use :func:`cem` or :func:`mppi` for
    the first guess where the robot has to find its contacts.

    Solvers, constraints and derivatives are those of other problems.
    """

    scene: Scene | None = None
    substeps: int = eqx.field(static=True, default=1)
    constants: Constants | None = None
    """Constants of the scene with this robot, computed once for a loop over steps by
    :meth:`prepared`."""

    def __post_init__(self):
        if self.scene is None:
            raise ValueError("SceneProblem: it needs a scene")
        if self.substeps < 1:
            raise ValueError(f"SceneProblem: substeps must be at least 1, got {self.substeps}")
        if self.actuation is not None:
            raise ValueError("SceneProblem: leave actuation out; the scene has actuators")
        super().__post_init__()

    @property
    def controls(self) -> int:
        """Number of controls: that of the scene's actuators."""
        return cast(Scene, self.scene).nu

    @property
    def free_euler(self) -> bool:
        """False: the scene has a step of its own."""
        return False

    def torques(self, t: Array, q: Array, v: Array, u: Array) -> Float[Array, " nv"]:
        """Joint torques (N m, N) of the actuators at the beginning of a step."""
        return dataclasses.replace(cast(Scene, self.scene), model=self.model).torque(q, v, u)

    def prepared(self) -> "SceneProblem":
        """The problem with the constants of its scene, see :func:`rbd_jax.contact.constants`."""
        scene = dataclasses.replace(cast(Scene, self.scene), model=self.model)
        return dataclasses.replace(self, constants=constants(scene))

    def step(self, k: int | Int[Array, ""], q: Array, v: Array, u: Array) -> tuple[Array, Array]:
        """The state after step k."""
        h = self.dt / self.substeps
        scene = dataclasses.replace(cast(Scene, self.scene), model=self.model, dt=h)
        fixed = constants(scene) if self.constants is None else self.constants

        def once(state, _):
            q, v, guess = state
            new = scene_step(scene, q, v, u, warmstart=guess, constants=fixed)
            return (new.q, new.v, jax.lax.stop_gradient(new.a)), None

        first, _ = once((q, v, jnp.zeros_like(v)), None)
        q, v, _ = jax.lax.scan(once, first, None, length=self.substeps - 1)[0]
        return q, v

    def simulate(self, q0: Array, v0: Array, u: Float[Array, "T nu"], **options: Any):
        """The trajectory of the controls u."""
        return simulate_steps(self, q0, v0, u, **options)

    def derivatives(self, q: Array, v: Array, u: Array) -> tuple[Array, Array]:
        """``(A, B)`` of all steps about states (T, …) and controls (T, …)."""
        prepared = self.prepared()
        one = lambda q, v, u: _derivatives(prepared, q, v, u)  # noqa: E731
        J = jax.vmap(one)(q, v, u)
        n = 2 * self.model.nv
        return J[..., :n], J[..., n:]


@lanes
def _derivatives(problem: SceneProblem, q, v, u) -> Float[Array, "n n_nu"]:
    to = problem.step(0, q, v, u)[0]

    def end(z):
        q1, v1 = problem.step(0, *problem.moved(q, v, u, z))
        return jnp.concatenate([difference(problem.model, to, q1), v1])

    return jax.jacfwd(end)(jnp.zeros((2 * v.size + u.size,), q.dtype))


def in_scene(scene: Scene, stage, final, steps: int, *, substeps: int = 1, **options):
    """A :class:`SceneProblem` over the horizon of ``steps`` times ``substeps`` steps of a scene.

    Args:
        scene: robot, actuators, contacts, time step.
        stage: cost per second, or residuals. final: cost of the last state, as in :class:`Problem`.
        steps: number of steps, in each of which the controls are held.
        substeps: steps of the scene in each of them.
        options: other fields of :class:`Problem`, for example bounds of the controls. Without
            bounds, those of the actuators hold.
    """
    a = scene.actuators
    if not {"lower", "upper"} & set(options) and a.nu:
        plain = a.gainprm[:, 0] == 1
        low = jnp.maximum(a.ctrlrange[:, 0], jnp.where(plain, a.forcerange[:, 0], -jnp.inf))
        high = jnp.minimum(a.ctrlrange[:, 1], jnp.where(plain, a.forcerange[:, 1], jnp.inf))
        options |= {"lower": low, "upper": high}
    return SceneProblem(
        scene.model, stage, final, substeps * scene.dt, steps, scene=scene, substeps=substeps,
        **options,
    )  # fmt: skip
