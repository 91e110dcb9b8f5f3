"""The problem that the solvers optimize: dynamics, costs and bounds."""

from collections.abc import Callable
from typing import Any, cast

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.core import Tracer
from jaxtyping import Array, Float, Int

from ..model import Model
from ..simulate import resolve_integrator, rollout, step

Cost = Callable[..., Array]


def _optional(x: Any) -> Array | None:
    return None if x is None else jnp.asarray(x)


class Problem(eqx.Module):
    """Minimize ``Σ_k dt · stage(model, t_k, q_k, v_k, u_k) + final(model, q_T, v_T)``.

    The motion is a :func:`rbd_jax.rollout` with steps of length ``dt`` in which the torques are
    held. A cost returns a number, or a vector of residuals r, which stands for the cost ``½ rᵀ r``.
    iLQR and multiple shooting take the Gauss–Newton Hessian of residuals. Solutions are
    differentiable with respect to every array of the problem, for example arrays of the model or of
    a cost that is an equinox module. ``jax.vmap`` can map over the same arrays.
    """

    model: Model
    stage: Cost
    """``stage(model, t, q, v, u)``: cost per second, or residuals."""
    final: Cost
    """``final(model, q, v)``: cost of the last state, or residuals."""
    dt: Float[Array, ""] = eqx.field(converter=jnp.asarray)
    """Time step (s). Like the bounds and the actuation matrix, it gets the dtype of the model."""
    steps: int = eqx.field(static=True)
    """Number of steps T."""
    actuation: Any = None
    """How the controls drive the joints: a matrix (nv, nu), or a function
    ``(model, t, q, v, u) -> tau``, or None if the controls are the torques."""
    lower: Float[Array, " nu"] | None = eqx.field(converter=_optional, default=None)
    """Lower bounds of the controls, or one number for all of them."""
    upper: Float[Array, " nu"] | None = eqx.field(converter=_optional, default=None)
    """Upper bounds of the controls, or one number for all of them."""
    nu: int = eqx.field(static=True, default=0)
    """Number of controls. It is only needed if ``actuation`` is a function."""
    integrator: str | Callable = eqx.field(static=True, default="semi_implicit_euler")
    """As in :func:`rbd_jax.rollout`, but without memory: a step depends on the state alone."""

    def __post_init__(self):
        model = self.model
        if self.steps < 1:
            raise ValueError(f"Problem: steps must be at least 1, got {self.steps}")
        if hasattr(resolve_integrator(self.integrator), "advance"):
            raise ValueError(
                f"Problem: integrator {self.integrator!r} has a memory besides the state, which an "
                "optimizer cannot handle; choose another integrator, or pass a single step of it "
                "as a function: lambda *state: integrator(*state)"
            )
        self.dt = jnp.asarray(self.dt, model.dtype)
        if self.dt.shape != ():
            raise ValueError(f"Problem: dt has shape {self.dt.shape}, expected one number")
        if callable(self.actuation):
            if self.nu < 1:
                raise ValueError(
                    "Problem: actuation is a function, so pass the number of controls: nu=…"
                )
        elif self.actuation is not None:
            self.actuation = B = jnp.asarray(self.actuation, model.dtype)
            if B.ndim != 2 or B.shape[0] != model.nv:
                raise ValueError(
                    f"Problem: actuation has shape {B.shape}, expected (nv, nu) with nv = "
                    f"{model.nv} for robot {model.topology.name!r}"
                )
        self.lower, self.upper = self._bound("lower"), self._bound("upper")
        low, high = self.bounds()
        crossed = jnp.any(low > high)
        if not isinstance(crossed, Tracer) and crossed:
            raise ValueError(f"Problem: lower {low} exceeds upper {high}")

    def _bound(self, name: str) -> Array | None:
        if (bound := getattr(self, name)) is None:
            return None
        bound, shape = jnp.asarray(bound, self.model.dtype), (self.controls,)
        if bound.shape not in ((), shape):
            raise ValueError(f"Problem: {name} has shape {bound.shape}, expected {shape} or ()")
        return jnp.broadcast_to(bound, shape)

    @property
    def controls(self) -> int:
        """Number of controls."""
        if self.actuation is None:
            return self.model.nv
        return self.nu if callable(self.actuation) else self.actuation.shape[-1]

    @property
    def bounded(self) -> bool:
        """Whether any controls have bounds."""
        return self.lower is not None or self.upper is not None

    def bounds(self) -> tuple[Float[Array, " nu"], Float[Array, " nu"]]:
        """Lower and upper bounds of the controls. Missing bounds are infinite."""
        far = jnp.full((self.controls,), jnp.inf, self.model.dtype)
        low = -far if self.lower is None else self.lower
        return low, far if self.upper is None else self.upper

    def clip(self, u: Float[Array, "*T nu"]) -> Float[Array, "*T nu"]:
        """The controls, clipped to their bounds."""
        if not self.bounded:
            return u
        low, high = (jnp.broadcast_to(x, u.shape) for x in self.bounds())
        return jnp.clip(u, low, high)

    def torques(self, t: Array, q: Array, v: Array, u: Array) -> Float[Array, " nv"]:
        """Joint torques (N m, N) that the controls u produce."""
        if self.actuation is None:
            return u
        if callable(self.actuation):
            return cast(Cost, self.actuation)(self.model, t, q, v, u)
        return jnp.matmul(self.actuation, u, precision="highest")

    def time(self, k: int | Int[Array, ""]) -> Float[Array, ""]:
        """The time of step k (s)."""
        return jnp.asarray(k, self.model.dtype) * self.dt

    def step(self, k: int | Int[Array, ""], q: Array, v: Array, u: Array) -> tuple[Array, Array]:
        """The state after step k."""
        tau = self.torques(self.time(k), q, v, u)
        return step(self.model, q, v, tau, self.dt, integrator=self.integrator)

    def simulate(self, q0: Array, v0: Array, u: Float[Array, "T nu"], **options):
        """The trajectory under the controls u; ``options`` are those of :func:`rbd_jax.rollout`."""

        def policy(t, q, v):
            k = jnp.clip(jnp.round(t / self.dt).astype(jnp.int32), 0, self.steps - 1)
            return self.torques(t, q, v, u[k])

        fixed = {"steps": self.steps, "integrator": self.integrator}
        rows = u if self.actuation is None else policy
        if self.actuation is not None and not callable(self.actuation):
            rows = jnp.matmul(u, self.actuation.T, precision="highest")
        return rollout(self.model, q0, v0, rows, self.dt, **fixed, **options)

    def stage_cost(self, k: int | Int[Array, ""], q: Array, v: Array, u: Array) -> Float[Array, ""]:
        """Cost of the stage k, the time step included."""
        return self.dt * cost_value(self.stage(self.model, self.time(k), q, v, u))

    def final_cost(self, q: Array, v: Array) -> Float[Array, ""]:
        """Cost of the last state."""
        return cost_value(self.final(self.model, q, v))

    def cost(self, q: Float[Array, "N nq"], v: Float[Array, "N nv"], u: Float[Array, "T nu"]):
        """The objective at a trajectory."""
        k = jnp.arange(self.steps)
        return jnp.sum(jax.vmap(self.stage_cost)(k, q[:-1], v[:-1], u)) + self.final_cost(
            q[-1], v[-1]
        )


def cost_value(value: Array) -> Float[Array, ""]:
    """The value of a cost that returned a number, or residuals: half their sum of squares."""
    return value if jnp.ndim(value) == 0 else 0.5 * jnp.sum(value * value)


def with_explicit_closures(problem: Problem, q: Array, v: Array) -> Problem:
    """The same problem, with all arrays that its functions close over as leaves of the problem."""
    t, u = jnp.zeros((), problem.model.dtype), jnp.zeros((problem.controls,), problem.model.dtype)
    convert = eqx.filter_closure_convert
    m = problem.model
    parts: dict[str, Any] = {
        "stage": convert(problem.stage, m, t, q, v, u),
        "final": convert(problem.final, m, q, v),
    }
    if callable(problem.actuation):
        parts["actuation"] = convert(problem.actuation, m, t, q, v, u)
    where = lambda p: [getattr(p, n) for n in parts]  # noqa: E731
    return eqx.tree_at(where, problem, list(parts.values()))
