"""A receding horizon that searches by samples, alone or as the first half of a mixture."""

from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key, PyTree

from ...model.arguments import check_number
from ...model.outcome import RESULTS
from ..problems._constraints import stack
from ..problems._problem import Problem, with_explicit_closures
from ..solvers._sampling import cem, check_elites, checked_noise, mppi
from ..solvers._solution import checked_argument, checked_bounds
from ._mpc import AbstractMPC, Controller, Plan, Predicted, follow, simulated_plan


class Sampler(AbstractMPC):
    """A controller that improves its plan by samples, then by the steps of another controller.

    It has the methods of :class:`Controller`, so :func:`mpc` takes it in the same way. The samples
    find contacts that are not there yet, of which gradients know nothing. The steps of iLQR that
    follow smooth the plan and give it feedback. They start from the best sample, or from the
    shifted plan where no sample is better.
    """

    problem: Problem
    """Over one horizon; its times begin at ``start``."""
    key: Key[Array, ""]
    noise: Float[Array, " nu"]
    rest: Float[Array, " nu"] | None
    refine: Controller | None
    samples: int = eqx.field(static=True)
    knots: int = eqx.field(static=True)
    max_steps: int = eqx.field(static=True)
    elites: int | None = eqx.field(static=True)
    keep: float = eqx.field(static=True)

    def plan(self, q: Float[Array, " nq"], v: Float[Array, " nv"], u: Float[Array, "T nu"]) -> Plan:
        """A first plan: a simulation of the controls u."""
        if self.refine is not None:
            return self.refine.plan(q, v, u)
        none = stack(self.problem, (), q, self.problem.initial(q, v))
        return simulated_plan("Sampler.plan", self.problem, none, q, v, u)

    def shifted(self, plan: Plan, by: int = 1) -> Plan:
        """The plan some steps later, with ``rest`` or its last controls at the end."""
        new = super().shifted(plan, by)
        return new if self.rest is None else new._replace(u=new.u.at[-by:].set(self.rest))

    def step(
        self,
        plan: Plan,
        q: Float[Array, " nq"],
        v: Float[Array, " nv"],
        *,
        t: float | Float[Array, ""] = 0.0,
        shift: bool = True,
        memory: PyTree = None,
    ) -> Predicted:
        """The next plan, from the state (q, v) at time t (s); as :meth:`Controller.step`."""
        t = jnp.asarray(t, q.dtype)
        old = self.shifted(plan) if shift else plan
        problem, _, y = self.begun(old, t, q, v, memory)
        _, u = follow(problem, old, q, y)
        key = jax.random.fold_in(self.key, jnp.round(t / problem.dt).astype(jnp.int32))
        search = mppi if self.elites is None else partial(cem, elites=self.elites, keep=self.keep)
        found = search(
            problem, q, v, u, key, noise=self.noise, samples=self.samples, knots=self.knots,
            max_steps=self.max_steps,
        )  # fmt: skip
        lost = found.result == RESULTS.nonfinite
        new = Plan(found.q, found.v, found.u, old.K, old.multipliers, found.memory)
        new = jax.tree.map(lambda a, b: jnp.where(lost, b, a), new, old)
        if self.refine is not None:
            told = self.refine.step(new, q, v, t=t, shift=False, memory=memory)
            return told._replace(steps=told.steps + self.max_steps)
        result = RESULTS.where(lost, RESULTS.nonfinite, RESULTS.successful)
        result = checked_bounds(result, problem)
        zero = jnp.zeros_like(found.cost)
        return Predicted(new, found.cost, zero, zero, result, found.steps)


def sampler(
    problem: Problem,
    key: Key[Array, ""],
    *,
    noise: float | Float[Array, " nu"],
    samples: int = 32,
    knots: int = 4,
    max_steps: int = 1,
    elites: int | None = None,
    keep: float = 0.5,
    rest: Float[Array, " nu"] | None = None,
    refine: Controller | None = None,
) -> Sampler:
    """A model predictive controller that searches by samples.

    Args:
        problem: what to minimize over the horizon.
        key: random key; each time step has its own numbers.
        noise: standard deviation of the controls, one number or one each.
        samples: simulations in each step of the search. knots: as in :func:`mppi`.
        max_steps: steps of the search for each plan.
        elites: for a search by :func:`cem`, to how many of the best samples it fits the next ones;
            None for :func:`mppi`. With many steps for each plan, cem comes nearer to a minimum.
        keep: as in :func:`cem`. Few samples ask for more of the old spread than cem's default.
        rest: controls with which a plan goes on at its end when it is shifted, such as those of a
            robot at rest. If None, its last controls are repeated. These are mostly noise, because
            the cost of the plan hardly depends on them.
        refine: a controller of the same problem, made by :func:`controller`, whose solver steps
            follow the search; None for none.

    Raises:
        ValueError: for numbers below 1, noise or rest of a wrong shape, or elites not from 2 to
            samples.
    """
    for what, x in (("samples", samples), ("knots", knots), ("max_steps", max_steps)):
        check_number("sampler", what, x, least=1, whole=True)
    if elites is not None:
        check_elites("sampler", elites, samples)
    noise = checked_noise("sampler", problem, noise)
    model, dtype = problem.model, problem.model.dtype
    q, v = jnp.zeros((model.nq,), dtype), jnp.zeros((model.nv,), dtype)
    problem = with_explicit_closures(problem.starting(jnp.asarray(problem.start)), q, v)
    if rest is not None:
        rest = checked_argument("sampler", problem, "rest", rest, (problem.controls,))
    return Sampler(problem, key, noise, rest, refine, samples, knots, max_steps, elites, keep)
