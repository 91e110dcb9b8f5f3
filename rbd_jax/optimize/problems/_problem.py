"""The problem that the solvers optimize: dynamics, costs and bounds."""

from collections.abc import Callable
from typing import Any, cast

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.core import Tracer
from jaxtyping import Array, Float, Int

from ...lanes import lanes
from ...model import Model, integrate
from ...model.functions import Static, as_module
from ...simulate import (
    Trajectory,
    resolve_integrator,
    rollout,
    step,
    step_derivatives,
    warn_if_unstable,
)
from ...spatial import linear
from ._local_models import Quadratic, ResetMaps

Cost = Callable[..., Array]
Terms = tuple[tuple[Array | float, Array], ...]
"""Weights and costs, of which each is a number or a vector of residuals."""


def _optional(x: Any) -> Array | None:
    return None if x is None else jnp.asarray(x)


class Problem(eqx.Module):
    """Minimize ``Σ_k dt · stage(model, t_k, q_k, v_k, u_k) + final(model, q_T, v_T)``.

    The motion is a :func:`rbd_jax.rollout` with steps of length ``dt`` in which the torques are
    held. A cost returns a number, or a vector of residuals r, which stands for the cost ``½ rᵀ r``.
    iLQR and multiple shooting take the Gauss–Newton Hessian of residuals. Solutions are
    differentiable with respect to every array of the problem, for example arrays of the model or of
    a cost that is an equinox module. ``jax.vmap`` can map over the same arrays. A cost or an
    actuation that is a plain function is static under ``jax.jit``: another one compiles again.
    """

    model: Model
    stage: Cost = eqx.field(converter=as_module)
    """``stage(model, t, q, v, u)``: cost per second, or residuals."""
    final: Cost = eqx.field(converter=as_module)
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
    integrator: str | Callable = eqx.field(static=True, default="implicit_damping")
    """As in :func:`rbd_jax.rollout`, but without memory: a step depends on the state alone."""

    start: Float[Array, ""] | float = 0.0
    """Time of the first step (s), which costs and drives see."""
    added: Any = None
    """An object whose ``stage_terms(problem, k, q, v, u)`` and ``final_terms(problem, q, v)`` join
    the costs. Solvers use it for constraints."""

    def __post_init__(self):
        model = self.model
        if self.steps < 1:
            raise ValueError(f"Problem: steps must be at least 1, got {self.steps}")
        if resolve_integrator(self.integrator).has_memory:
            raise ValueError(
                f"Problem: integrator {self.integrator!r} has a memory besides the state, which an "
                "optimizer cannot handle; choose another integrator, or pass a single step of it "
                "as a function: lambda *state: integrator(*state)"
            )
        self.dt = jnp.asarray(self.dt, model.dtype)
        if self.dt.shape != ():
            raise ValueError(f"Problem: dt has shape {self.dt.shape}, expected one number")
        warn_if_unstable("Problem", model, None, self.dt, self.integrator, 4)
        if callable(self.actuation):
            self.actuation = as_module(self.actuation)
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
        self.start = jnp.asarray(self.start, model.dtype)
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

    @property
    def free_euler(self) -> bool:
        """Whether a step is semi-implicit Euler with the forward dynamics of :attr:`robot`."""
        return self.robot is not None

    @property
    def robot(self) -> Model | None:
        """The robot whose accelerations a step of semi-implicit Euler takes, or None."""
        return resolve_integrator(self.integrator).euler_robot(self.model, self.dt)

    @property
    def euler(self) -> bool:
        """Whether a step is semi-implicit Euler, perhaps after a landing; subclasses may say no."""
        return self.free_euler

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
        return linear.matmul(self.actuation, u)

    def time(self, k: int | Int[Array, ""]) -> Float[Array, ""]:
        """The time of step k (s)."""
        return self.start + jnp.asarray(k, self.model.dtype) * self.dt

    def starting(self, t: Float[Array, ""]) -> "Problem":
        """The same problem at another start time (s), which may be traced."""
        return eqx.tree_at(lambda p: p.start, self, t)

    def step(self, k: int | Int[Array, ""], q: Array, v: Array, u: Array) -> tuple[Array, Array]:
        """The state after step k."""
        tau = self.torques(self.time(k), q, v, u)
        return step(self.model, q, v, tau, self.dt, integrator=self.integrator)

    def moved(self, q: Array, v: Array, u: Array, z: Array) -> tuple[Array, Array, Array]:
        """The state and control at the tangent z = (δq, δv, δu)."""
        dq, dv, du = jnp.split(z, [self.model.nv, 2 * self.model.nv])
        return integrate(self.model, q, dq), v + dv, u + du

    def torque_slopes(self, t: Array, q: Array, v: Array, u: Array) -> tuple[Array | None, Array]:
        """``∂τ/∂x`` (None stands for zero) and ``∂τ/∂u``."""
        nv = self.model.nv
        if self.actuation is None:
            return None, jnp.eye(nv, dtype=q.dtype)
        if not callable(self.actuation):
            return None, self.actuation

        def torques(z):
            return self.torques(t, *self.moved(q, v, u, z))

        J = jax.jacfwd(torques)(jnp.zeros((2 * nv + u.size,), q.dtype))
        return J[:, : 2 * nv], J[:, 2 * nv :]

    def derivatives(
        self, q: Float[Array, "T nq"], v: Float[Array, "T nv"], u: Float[Array, "T nu"]
    ) -> tuple[Float[Array, "T n n"], Float[Array, "T n nu"]]:
        """``(A, B)`` with ``δx⁺ = A δx + B δu`` of all steps, in the tangent spaces."""

        def one(k, q, v, u):
            return _step_derivatives(self, self.time(k), q, v, u)

        return jax.vmap(one)(jnp.arange(self.steps), q, v, u)

    def prepared(self) -> "Problem":
        """The problem for a loop over its steps: what is the same in all of them is computed."""
        return self

    def advance(
        self, k: int | Int[Array, ""], q: Array, v: Array, u: Array
    ) -> tuple[Array, Array, Float[Array, ""]]:
        """The state after step k, and the cost of the step."""
        return *self.step(k, q, v, u), self.stage_cost(k, q, v, u)

    def stage_models(self, q: Array, v: Array, u: Array) -> Quadratic | None:
        """Gauss–Newton models of all stage costs; None to have them by autodiff."""
        return None

    def expansions(self, q: Array, v: Array, u: Array) -> tuple[tuple[Array, Array], Any]:
        """:meth:`derivatives` and :meth:`stage_models`, for problems in which they share work."""
        return self.derivatives(q, v, u), self.stage_models(q, v, u)

    def stage_expansion(self, k: Int[Array, ""], q: Array, v: Array, u: Array):
        """The velocity after step k, its slope along (x, u), and the model of the step's cost.

        The model is None if it has to come from autodiff. The velocity v is the one after a landing
        at the beginning of the step.
        """
        slopes = _step_derivatives(self, self.time(k), q, v, u)
        W = jnp.concatenate([X[self.model.nv :] for X in slopes], axis=1)
        return self.step(k, q, v, u)[1], W, None

    def landings_about(self, q: Array, v: Array) -> tuple[Array, ResetMaps | None]:
        """Velocities after the landings, and how they change, if there are any."""
        return v, None

    def stage_arguments(self, q: Array, v: Array) -> tuple:
        """Arguments of the stage cost at a state, with zeros for the others."""
        t, u = jnp.zeros((), q.dtype), jnp.zeros((self.controls,), q.dtype)
        return self.model, t, q, v, u

    def simulate(self, q0: Array, v0: Array, u: Float[Array, "T nu"], **options):
        """The trajectory under the controls u; ``options`` are those of :func:`rbd_jax.rollout`."""

        def policy(t, q, v):
            k = jnp.clip(jnp.round(t / self.dt).astype(jnp.int32), 0, self.steps - 1)
            return self.torques(self.time(k), q, v, u[k])

        fixed = {"steps": self.steps, "integrator": self.integrator}
        rows = u if self.actuation is None else policy
        if self.actuation is not None and not callable(self.actuation):
            rows = linear.matmul(u, self.actuation.T)
        path = rollout(self.model, q0, v0, rows, self.dt, **fixed, **options)
        return path._replace(t=self.start + path.t)

    def stage_cost(self, k: int | Int[Array, ""], q: Array, v: Array, u: Array) -> Float[Array, ""]:
        """Cost of step k."""
        return total(self.stage_terms(k, q, v, u))

    def final_cost(self, q: Array, v: Array) -> Float[Array, ""]:
        """Cost of the last state."""
        return total(self.final_terms(q, v))

    def stage_terms(self, k: int | Int[Array, ""], q: Array, v: Array, u: Array) -> Terms:
        """The costs of step k with their weights."""
        own = (self.dt, self.stage(self.model, self.time(k), q, v, u))
        return (own, *(() if self.added is None else self.added.stage_terms(self, k, q, v, u)))

    def final_terms(self, q: Array, v: Array) -> Terms:
        """The costs of the last state with their weights."""
        own = (1.0, self.final(self.model, q, v))
        return (own, *(() if self.added is None else self.added.final_terms(self, q, v)))

    def cost(self, q: Float[Array, "N nq"], v: Float[Array, "N nv"], u: Float[Array, "T nu"]):
        """The objective at a trajectory."""
        one = lambda *row: _stage_cost(self, *row)  # noqa: E731
        stages = jax.vmap(one)(jnp.arange(self.steps), q[:-1], v[:-1], u)
        return jnp.sum(stages) + self.final_cost(q[-1], v[-1])


def simulate_steps(problem: Problem, q0: Array, v0: Array, u: Array, **options: Any) -> Trajectory:
    """The trajectory of a problem whose steps are not those of a rollout."""
    if options.get("gradient", "full") != "full":
        kind = type(problem).__name__
        raise ValueError(f"{kind}: single shooting needs gradient='full'")
    return _simulate_steps(problem, q0, v0, u)


@lanes
def _simulate_steps(problem: Problem, q0: Array, v0: Array, u: Array) -> Trajectory:
    problem = problem.prepared()

    def body(state, row):
        (q, v), (k, u) = state, row
        new = problem.step(k, q, v, u)
        return new, (*new, problem.torques(problem.time(k), q, v, u))

    k = jnp.arange(problem.steps)
    _, (q, v, tau) = jax.lax.scan(body, (q0, v0), (k, u))
    q, v = (jnp.concatenate([x0[None], x]) for x0, x in ((q0, q), (v0, v)))
    t = problem.start + jnp.arange(problem.steps + 1).astype(q.dtype) * problem.dt
    return Trajectory(t, q, v, tau)


@lanes
def _stage_cost(problem: Problem, k, q: Array, v: Array, u: Array) -> Float[Array, ""]:
    return problem.stage_cost(k, q, v, u)


@lanes
def _step_derivatives(problem: Problem, t: Array, q: Array, v: Array, u: Array):
    tau, (by_x, by_u) = problem.torques(t, q, v, u), problem.torque_slopes(t, q, v, u)
    how = {"integrator": problem.integrator}
    A, B = step_derivatives(problem.model, q, v, tau, problem.dt, **how)
    times = linear.matmul
    return A if by_x is None else A + times(B, by_x), times(B, by_u)


def total(terms: Terms) -> Float[Array, ""]:
    """The weighted sum of some costs."""
    first, *rest = [w * cost_value(x) for w, x in terms]
    return sum(rest, start=first)


def cost_value(value: Array) -> Float[Array, ""]:
    """The value of a cost that returned a number, or residuals: half their sum of squares."""
    return value if jnp.ndim(value) == 0 else 0.5 * jnp.sum(value * value)


def with_explicit_closure(function: Callable, *args: Any) -> Callable:
    """The function with the traced arrays that it closes over as leaves.

    A function without traced arrays stays as it is: a program of its own would make two problems
    that are built alike unlike.
    """
    closed = eqx.filter_closure_convert(function, *args)
    return closed if any(isinstance(x, Tracer) for x in jax.tree.leaves(closed)) else function


def with_explicit_closures(problem: Problem, q: Array, v: Array) -> Problem:
    """The same problem, with all traced arrays that its functions close over as its leaves."""
    m, t, *_, u = Problem.stage_arguments(problem, q, v)
    convert = with_explicit_closure
    parts: dict[str, Any] = {
        "stage": convert(problem.stage, *problem.stage_arguments(q, v)),
        "final": convert(problem.final, m, q, v),
    }
    if callable(problem.actuation):
        parts["actuation"] = convert(problem.actuation, m, t, q, v, u)
    where = lambda p: [getattr(p, n) for n in parts]  # noqa: E731
    plain = lambda x: isinstance(x, Static)  # noqa: E731
    return eqx.tree_at(where, problem, list(parts.values()), is_leaf=plain)
