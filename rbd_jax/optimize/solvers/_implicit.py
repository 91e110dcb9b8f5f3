"""The derivatives of a solution with respect to the problem, by the implicit function theorem.

The states of a solution are functions of the problem, without a second simulation. Simulated again
from the start under its controls alone, an unstable robot leaves the solution: rounding errors and
the small gaps of multiple shooting grow by a constant factor in each step, up to infinity. So the
states stay those that the solver found, and only their derivatives come from the steps. The
derivatives of a rollout grow in the same way, and what remains of their difference is rounding
error. So the unknowns are not the controls but the corrections w of the solver's feedback,
``u = w + K (x ⊖ x_k)``, under which the robot is stable. Both have the same minima.
"""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PyTree

from ...derivatives.custom_jvp.mechanism import custom_jvp
from ...lanes import lanes
from ..linear_quadratic._lq_approximation import costates, curvature, linear_dynamics, quadratic
from ..linear_quadratic._riccati import lqr_rollout, riccati_backward
from ..problems._problem import Problem
from ._tolerances import tolerances


class States(NamedTuple):
    """States that a solver found, and the feedback about them."""

    q: Float[Array, "N nq"]
    """Configurations after 0, 1, …, T steps."""
    v: Float[Array, "N nv"]
    """Velocities after 0, 1, …, T steps."""
    K: Float[Array, "T nu n"]
    """Gains: zeros for a simulation under the controls alone."""

    def holding(self, held: Bool[Array, "T nu"]) -> "States":
        """The same without feedback of the ``held`` controls, and of gains that are not finite."""
        off = held[..., None] | ~jnp.isfinite(self.K)
        return self._replace(K=jnp.where(off, 0, self.K))


class Motion(NamedTuple):
    """Configurations, velocities and controls."""

    q: Float[Array, "N nq"]
    v: Float[Array, "N nv"]
    u: Float[Array, "T nu"]


@lanes
def motion(
    problem: Problem, q0: Array, v0: Array, w: Float[Array, "T nu"], states: States
) -> Motion:
    """The simulation of the controls ``w + K (x ⊖ x_k)`` about known ``states``.

    Values are ``states`` and w. Derivatives of any order are those of the simulation, with each
    step expanded about its known state. The states must follow each other by the steps of w, up to
    small gaps.
    """
    problem, stop = problem.prepared(), jax.lax.stop_gradient

    def body(state, row):
        (q, v), (k, w, K, here, q_next, v_next) = state, row
        x = problem.difference(here[0], here[1], q, v)
        u = w + jnp.sum(K * x[None], axis=-1)
        q1, v1 = problem.step(k, q, v, u)
        q1, v1 = problem.integrate(q_next, v_next, problem.difference(stop(q1), stop(v1), q1, v1))
        return (q1, v1), (q1, v1, u)

    q, v, K = states
    rows = jnp.arange(problem.steps), w, K, (q[:-1], v[:-1]), q[1:], v[1:]
    _, (q1, v1, u) = jax.lax.scan(body, (q0, v0), rows)
    return Motion(jnp.concatenate([q0[None], q1]), jnp.concatenate([v0[None], v1]), u)


@custom_jvp
def reached(
    problem: Problem, q0: Array, v0: Array, w: Float[Array, "T nu"], states: States
) -> Motion:
    """``states`` and w with the derivatives of :func:`motion`. Values cost nothing."""
    return Motion(states.q, states.v, w)


@reached.def_jvp
def _reached_jvp(primals, tangents):
    *parameters, states = primals
    rates = tuple(tangents[:-1])
    moving = jax.tree.map(
        lambda t, p: None if t is None else p,
        rates,
        tuple(parameters),
        is_leaf=lambda x: x is None,
    )

    def along(moving):
        problem, q0, v0, w = eqx.combine(moving, tuple(parameters))
        return motion(problem, q0, v0, w, states)

    return Motion(states.q, states.v, primals[3]), jax.jvp(along, (moving,), (rates,))[1]


@custom_jvp
def cost_at(problem: Problem, motion: Motion, value: Float[Array, ""]) -> Float[Array, ""]:
    """``value``, the objective at a motion, with the derivatives of :meth:`Problem.cost`."""
    return value


@cost_at.def_jvp
def _cost_at_jvp(primals, tangents):
    change = eqx.filter_jvp(lambda problem, x: problem.cost(*x), primals[:2], tangents[:2])[1]
    return cost_at(*primals), change


def held_controls(problem: Problem, u: Float[Array, "T nu"]) -> tuple[Array, Array]:
    """Which controls (T, nu) are at their lower bounds, and which at their upper bounds."""
    low, high = (jnp.broadcast_to(x, u.shape) for x in problem.bounds())
    slack = tolerances(u.dtype).at_bound * (1 + jnp.abs(u))
    return u <= low + slack, u >= high - slack


def without_derivatives(tree: PyTree) -> PyTree:
    """The same values, as constants for differentiation."""
    stop = lambda x: jax.lax.stop_gradient(x) if eqx.is_inexact_array(x) else x  # noqa: E731
    return jax.tree.map(stop, tree)


@custom_jvp
def stationary(
    problem: Problem,
    q0: Array,
    v0: Array,
    u: Float[Array, "T nu"],
    successful: Bool[Array, ""],
    states: States,
) -> Float[Array, "T nu"]:
    """The corrections w of a solution's feedback, with the value u, as a function of the problem.

    The controls are ``w + K (x ⊖ x_k)`` about ``states``, see :func:`motion`. The equations
    ``∂J/∂w = 0`` for the free controls and ``u = bound`` for the others define w. Hence
    ``H δw = −δ(∂J/∂w)`` with ``H = ∂²J/∂w²``. One Riccati sweep with exact second derivatives
    solves this equation, in forward and in reverse mode. ``states`` must have no feedback of
    controls at their bounds, see :meth:`States.holding`. Derivatives are NaN if u is not
    ``successful`` or not a strict minimum. In a batch, the derivatives of an unsuccessful sample on
    which the result does not depend are zero, so the other samples keep theirs.
    """
    return u


@stationary.def_jvp
def _stationary_jvp(primals, tangents):
    *parameters, u, successful, states = primals
    is_none = lambda x: x is None  # noqa: E731
    rates = tuple(tangents[:-3])
    moving = jax.tree.map(
        lambda t, p: None if t is None else p, rates, tuple(parameters), is_leaf=is_none
    )
    at_low, at_high = held_controls(parameters[0], u)
    free = ~(at_low | at_high)

    def condition(moving, u):
        problem, q0, v0 = eqx.combine(moving, tuple(parameters))

        def objective(u):
            return problem.cost(*motion(problem, q0, v0, u, states))

        low, high = (jnp.broadcast_to(x, u.shape) for x in problem.bounds())
        # a control at a bound moves with the bound, and the free controls respond to that
        moved = jnp.where(at_low, low, jnp.where(at_high, high, u))
        return jnp.where(free, jax.grad(objective)(moved), u - moved)

    change = jax.jvp(lambda x: condition(x, u), (moving,), (rates,))[1]
    here = without_derivatives((parameters[0], u, states))

    def matvec(w):  # H for the free controls, the identity for the others
        Hw = jax.jvp(lambda x: condition(moving, x), (u,), (jnp.where(free, w, 0),))[1]
        return jnp.where(free, Hw, w)

    def solve(_, y):
        w, definite = _newton(here, free, jnp.where(free, y, 0))
        # NaN is inserted here and not in the result: this function is not transposed, whereas a
        # `where` around the result would give zero in reverse mode
        undefined = ~(successful & definite) & jnp.any(y != 0)
        return jnp.where(undefined, jnp.nan, jnp.where(free, w, y))

    return u, jax.lax.custom_linear_solve(matvec, -change, solve, symmetric=True)


def _newton(here: tuple, free, y):
    """``H⁻¹ y`` for the free controls, and whether H is positive definite for them.

    It is ``w = δu − K x`` of the linear-quadratic problem with the cost ``−yᵀ w``.
    """
    problem, u, (q, v, K) = here
    f = linear_dynamics(problem, q, v, u, gaps=False)
    l, end = quadratic(problem, q, v, u, exact=True)
    n = end.x.size
    more = curvature(problem, q, v, u, costates(f, l, end, K))
    l = l._replace(
        x=jnp.sum(K * y[..., None], axis=1),
        u=-y,
        xx=l.xx + more[:, :n, :n],
        ux=l.ux + more[:, n:, :n],
        uu=l.uu + more[:, n:, n:],
    )
    end = end._replace(x=jnp.zeros_like(end.x))
    gains = riccati_backward(f, l, end, jnp.zeros((), u.dtype), free=free)
    x, du = lqr_rollout(f, gains)
    return du - jnp.sum(K * x[:-1, None], axis=-1), gains.definite
