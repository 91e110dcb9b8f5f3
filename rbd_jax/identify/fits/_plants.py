"""Fits of plants: friction, ground, payload or the lag of motors from a recorded motion."""

import math
from collections.abc import Callable, Mapping
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.core import Tracer
from jaxtyping import Array, Float, Int

from ...contact import Scene
from ...model import Model
from ...model.functions import as_module
from ...model.outcome import RESULTS, throw_unless_successful
from ...simulate import (
    Plant,
    State,
    as_plant,
    hold_controls,
    memory_from,
    memory_vector,
)
from ...spatial import linear
from .._progress import Progress, report
from ..data._dataset import Dataset, required
from ..parameters._charts import Bounded, Positive, Real
from ..parameters._parameters import prior_weight
from ._chain import chain_cost, damped, solve_chain
from ._solve import covariance_of, result_of
from ._windows import Unknowns, Windows

_TRIES = 0.0, 1e-3, 1e-2, 0.1, 1.0, 10.0, 1e2, 1e3  # The dampings that each step tries.
_CONVERGED = 0.05  # A distance from the minimum, in standard deviations.
_IDLE = 3  # So many steps without progress end the fit.
Chart = Real | Positive | Bounded
Values = dict[str, Float[Array, "..."]]


Moving = Plant | Scene | Model


class PlantFit(eqx.Module):
    """The fit of a plant to a recorded motion."""

    plant: Any
    """What ``plant_with`` returns for the fitted values: a plant, a scene or a robot."""
    values: Values
    """The fitted values by name."""
    deviation: Values
    """The standard deviation of each value, to first order in the noise."""
    covariance: Float[Array, "k k"]
    """Covariance of all values, in the order of ``values``."""
    q0: Float[Array, "B nq"]
    """The fitted first states of the windows."""
    v0: Float[Array, "B nv"]
    memory0: Float[Array, "B m"]
    """The fitted memories of the plant at the start of the windows, as vectors."""
    cost: Float[Array, ""]
    """Half the sum of the squares of the errors, in standard deviations."""
    freedom: int = eqx.field(static=True)
    """Degrees of freedom: the number of measured values minus the number of unknowns. If the plant
    can explain the motion and the given noise is right, ``2 cost`` has about this value, with a
    standard deviation of ``√(2 freedom)``."""
    result: RESULTS
    """Whether all values together are within a twentieth of a standard deviation of the minimum."""
    steps: Int[Array, ""]


class PlantUnknowns(eqx.Module):
    """Named values of a plant as one vector z of unconstrained numbers."""

    plant_with: Callable[[Values], Moving] = eqx.field(converter=as_module)
    charts: tuple[tuple[str, Chart], ...]
    shapes: tuple[tuple[int, ...], ...] = eqx.field(static=True)
    nominal: Model
    start: Float[Array, " k"]

    def values(self, z: Float[Array, " k"]) -> Values:
        """The values with the coordinates z."""
        parts = self.named(z)
        return {name: chart.value(parts[name].reshape(-1, 1)).reshape(parts[name].shape)
                for name, chart in self.charts}  # fmt: skip

    def named(self, x: Float[Array, " k"]) -> Values:
        """A vector with one number for each entry of the values, by name and in their shapes."""
        found, at = {}, 0
        for (name, _), shape in zip(self.charts, self.shapes, strict=True):
            found[name] = x[at : at + math.prod(shape)].reshape(shape)
            at += math.prod(shape)
        return found


class PlantWindows(Windows):
    """Windows of a recorded motion, simulated by the steps of a plant.

    In the methods, v is the velocity and behind it the numbers of the plant's memory.
    """

    parameters: Any  # PlantUnknowns
    memory_sigma: float | Array = 1e3
    substeps: int = eqx.field(static=True, default=1)

    def plant(self, z: Array) -> Plant:
        """The plant with the coordinates z."""
        moving = self.parameters.plant_with(self.parameters.values(z))
        return as_plant(moving, name="fit_plant").prepared()

    def begun(self, plant: Plant, q: Array, v: Array, controls: Array) -> State:
        """The state in which a window begins, with the memory that the plant itself makes."""
        u = controls[0]
        return plant.start(q, v[: plant.model.nv], self.dt / self.substeps, lambda *_: u)

    def state_size(self, v: Array) -> int:
        """The number of tangent coordinates of a state."""
        return self.plant(self.parameters.start).nx

    def moved(self, q: Array, v: Array, d: Float[Array, " s"]) -> tuple[Array, Array]:
        """A state after a step d: in units of ``q_sigma`` and ``v_unit``, and of the memory."""
        plant, nv = self.plant(self.parameters.start), self.parameters.nominal.nv
        fresh = self.begun(plant, q, v, jnp.zeros((1, plant.nu), v.dtype))
        state = fresh._replace(memory=memory_from(fresh.memory, v[nv:]))
        dx = jnp.concatenate([self.q_sigma * d[:nv], self.v_unit * d[nv : 2 * nv], d[2 * nv :]])
        return packed(plant.integrate(state, dx))

    def simulated(self, z: Array, q0: Array, v0: Array, window: Dataset) -> tuple[Array, Array]:
        """The states of a window from its first one; the last controls are not used."""
        plant = self.plant(z)
        (controls,) = required("fit_plant", window, "controls")
        state = self.begun(plant, q0, v0, controls)
        nv = plant.model.nv
        state = state._replace(memory=memory_from(state.memory, v0[nv:]))

        def advance(state, row):
            new = hold_controls(plant, row[0], state, row[1], self.dt, self.substeps)
            return new, (new.q, new.v)

        t = jnp.arange(len(controls) - 1).astype(q0.dtype) * self.dt
        _, (q, v) = jax.lax.scan(advance, state, (t, controls[:-1]))
        return jnp.concatenate([q0[None], q]), jnp.concatenate([v0[None, :nv], v])

    def _errors(self, z: Array, q0: Array, v0: Array, window: Dataset, follows: Array):
        """Errors of one window, also of its first memory from the one that the plant makes."""
        r, *end = super()._errors(z, q0, v0, window, follows)
        if v0.size > (nv := self.parameters.nominal.nv):
            plant = self.plant(z)
            (controls,) = required("fit_plant", window, "controls")
            fresh = self.begun(plant, q0, v0, controls).memory
            known = memory_from(fresh, v0[nv:])
            r = jnp.concatenate([r, plant.memory_difference(fresh, known) / self.memory_sigma])
        return r, *end

    def _gap(self, q1: Array, v1: Array, q: Array, v: Array) -> Float[Array, " s"]:
        # windows of a plant are not joined, so the memory may stay out of the gaps
        nv = self.parameters.nominal.nv
        gap = super()._gap(q1, v1[:nv], q, v[:nv])
        return jnp.pad(gap, (0, self.state_size(v1) - gap.size))

    def costs(self, z: Array, q: Array, v: Array) -> Float[Array, " B"]:
        """Half the sum of squares of the errors of each window."""
        alone = jnp.zeros((), bool)
        r = jax.vmap(lambda q, v, w: self._errors(z, q, v, w, alone)[0])(q, v, self.data)
        each = 0.5 * jnp.sum(r**2, axis=1)
        return jnp.where(jnp.isfinite(each), each, jnp.inf)

    def prior(self, z: Array) -> Array:
        """A weak prior at the start, for the directions that the data do not determine."""
        return self.weight**0.5 * (z - self.parameters.start)


def packed(state: State) -> tuple[Array, Array]:
    """The configuration, and the velocity with the numbers of the memory behind it."""
    memory = memory_vector(state.memory)
    return state.q, jnp.concatenate([state.v, memory]) if memory.size else state.v


def fit_plant(
    plant_with: Callable[[Values], Moving],
    windows: Dataset,
    start: Mapping[str, Any],
    dt: float | Float[Array, ""] | None = None,
    *,
    charts: Mapping[str, Chart] | None = None,
    q_sigma: float = 1e-3,
    v_sigma: float = 1e-2,
    memory_sigma: float = 1e3,
    substeps: int = 1,
    loss: str = "squares",
    max_steps: int = 100,
    throw: bool = True,
    progress: Progress | None = None,
) -> PlantFit:
    """Fit values of any plant to a motion: friction and payload of a scene, the lag of motors, ….

    Source: Bock (1983), multiple shooting for parameter estimation, see :func:`fit_trajectories`.
    Windows are simulated by the steps of the plant. Those of a scene have derivatives that are
    exact through contact. The first state of each window is unknown too, with the memory of the
    plant if it has one. An error of a millimeter in the height of a foot changes its contact force
    by many newtons, so a prediction from the measured state would be biased. Windows should be
    short. A long motion with contacts depends on its first state so strongly that the minimum is
    hard to find.

    All fits take their arguments in the same order: what to fit, the data, and what else they need.

    Args:
        plant_with: what to fit, as a function from values, which are a dictionary like ``start``,
            to the plant, scene or robot with these values. It has to be differentiable, and its
            model has to keep the joints.
        windows: q, v and controls, with leading axes (B, L) and L ≥ 2, as :meth:`Dataset.windows`
            makes them; samples are one time step apart.
        dt: the time between two samples (s); the time step of a scene if None.
        start: first guesses of the values by name, numbers or arrays.
        charts: the chart of each value, by name: :class:`Positive`, which is the default,
            :class:`Real` or :class:`Bounded`.
        q_sigma: standard deviation of measured configurations (rad, m).
        v_sigma: standard deviation of measured velocities (rad/s, m/s).
        memory_sigma: standard deviation of the memory at the start of a window about the one that
            ``plant.start`` makes, in the units of the memory.
        substeps: steps of the plant between two samples.
        loss: the loss of each error, as in :func:`fit_torques`.
        max_steps: limit of the steps.
        throw: raise an error if the fit does not converge; else say so in ``result``.
        progress: called with the step and the cost.

    Returns:
        The values with their standard deviations, and the plant that has them.

    Raises:
        ValueError: for data without v or controls, windows that are too short, guesses outside
            their charts, charts of unknown names, or no ``dt`` for a plant that is no scene.
        RuntimeError: if the fit does not converge and ``throw`` is set.
    """
    v, controls = required("fit_plant", windows, "v", "controls")
    if len(windows.shape) != 2 or windows.shape[1] < 2:
        raise ValueError(
            f"fit_plant: windows must have the leading axes (B, L) with L at least 2, got "
            f"{windows.shape}; cut them with Dataset.windows"
        )
    parameters, dt = _unknowns(plant_with, start, charts or {}, windows.q.dtype, dt)
    z, weight = parameters.start, prior_weight(0.0, parameters.start.dtype)
    alone = jnp.zeros(windows.shape[:1], bool)
    problem = PlantWindows(
        parameters, windows, alone, dt, q_sigma, v_sigma, v_sigma, weight, loss, (), memory_sigma,
        substeps,
    )  # fmt: skip
    plant = problem.plant(z)
    begin = jax.vmap(lambda *x: packed(problem.begun(plant, *x)))
    x = Unknowns(z, *begin(windows.q[:, 0], v[:, 0], controls))
    x, R, distance, cost, steps = _minimize(problem, x, max_steps, progress)
    result = result_of(distance < _CONVERGED, cost, steps, max_steps)
    values = parameters.values(x.z)
    J = jax.jacfwd(lambda z: _flat(parameters.values(z)))(x.z)
    covariance = linear.matmul(J, jnp.matmul(covariance_of(R), J.T))
    deviation = parameters.named(jnp.sqrt(jnp.diagonal(covariance)))
    nv, (B, L) = parameters.nominal.nv, windows.shape
    freedom = 2 * nv * B * (L - 1) - z.size - B * (x.v.shape[1] - nv)
    v0, memory0 = x.v[:, :nv], x.v[:, nv:]
    fit = PlantFit(
        plant_with(values), values, deviation, covariance, x.q, v0, memory0, cost, freedom,
        result, steps,
    )  # fmt: skip
    return throw_unless_successful(fit, result) if throw else fit


def _minimize(
    problem: PlantWindows, x: Unknowns, max_steps: int, progress: Progress | None
) -> tuple[Unknowns, Float[Array, "k k"], Float[Array, ""], Float[Array, ""], Int[Array, ""]]:
    """The best unknowns, and how far they are from the minimum.

    Returns:
        The unknowns; R, where ``Rᵀ R`` is the information on z; the distance of z from the minimum
        before the last step, in standard deviations; the cost; the number of steps.

    Each step solves the linearized problem with several dampings. The force of a contact jumps
    where it begins, so the cost of a window jumps too, and a step that is good for most windows is
    bad for some. Given z, the windows are independent of each other. So each window takes the state
    with the least cost among its old state and those tried.
    """

    def step(state):
        x, _, _, _, count, idle = state
        chain = problem.linear(x)
        before = chain_cost(chain)
        report(progress, count, before)
        amounts = jnp.asarray(_TRIES, x.z.dtype)
        found = jax.vmap(lambda amount: solve_chain(damped(chain, amount)))(amounts)
        nothing = jnp.zeros_like(found.x[:1])
        moves = jnp.concatenate([nothing, found.x])  # (tries + 1, B, s)
        states = jax.vmap(lambda d: jax.vmap(problem.moved)(x.q, x.v, d))(moves)
        zs = x.z[None] + jnp.concatenate([jnp.zeros_like(x.z)[None], found.z])

        def attempt(z: Array):
            each = jax.vmap(lambda q, v: problem.costs(z, q, v))(*states)
            best = jnp.argmin(each, axis=0)
            total = jnp.sum(jnp.min(each, axis=0)) + 0.5 * jnp.sum(problem.prior(z) ** 2)
            return total, best

        totals, bests = jax.lax.map(attempt, zs)
        k = jnp.argmin(totals)
        rows = jnp.arange(len(x.q))
        x = Unknowns(zs[k], *(part[bests[k], rows] for part in states))
        better = totals[k] < before * (1 - 1e-9)
        R = found.R[0]
        distance = jnp.linalg.norm(linear.matmul(R, found.z[0]))
        idle = jnp.where(better & (distance > 1e-3), 0, idle + 1)
        return x, R, distance, totals[k], count + 1, idle

    def going(state):
        return (state[4] < max_steps) & (state[5] < _IDLE)

    zero, k = jnp.zeros((), jnp.int32), x.z.size
    far = jnp.full((), jnp.inf, x.z.dtype)
    state = x, jnp.eye(k, dtype=x.z.dtype), far, far, zero, zero
    return jax.lax.while_loop(going, step, state)[:5]


def _flat(values: Values) -> Float[Array, " k"]:
    return jnp.concatenate([x.reshape(-1) for x in values.values()])


def _unknowns(plant_with, start, charts, dtype, dt) -> tuple[PlantUnknowns, Array]:
    """The unknowns, and the time step."""
    strangers = sorted(set(charts) - set(start))
    if strangers or not start:
        raise ValueError(
            f"fit_plant: charts for {strangers}, but the values are {sorted(start)}"
            if strangers
            else "fit_plant: start has no values"
        )
    guesses = {name: jnp.asarray(x, dtype) for name, x in start.items()}
    pairs = tuple((name, charts.get(name, Positive())) for name in guesses)
    z = jnp.concatenate([c.coordinates(guesses[n].reshape(-1, 1)).reshape(-1) for n, c in pairs])
    bad = [n for n, c in pairs if not _inside(c, guesses[n])]
    if bad:
        raise ValueError(
            f"fit_plant: the first guess of {bad} lies outside its chart; start from another "
            "value, or give another chart, such as charts={name: identify.Real()}"
        )
    moving = plant_with(guesses)
    if dt is None:
        if not isinstance(moving, Scene):
            raise ValueError(
                f"fit_plant: pass dt, the time between two samples; a {type(moving).__name__} has "
                "none of its own"
            )
        dt = moving.dt
    model = as_plant(moving, name="fit_plant").model
    shapes = tuple(x.shape for x in guesses.values())
    return PlantUnknowns(plant_with, pairs, shapes, model, z), jnp.asarray(dt, dtype)


def _inside(chart: Chart, value: Array) -> bool:
    if isinstance(value, Tracer):
        return True
    return bool(jnp.all(jnp.isfinite(chart.coordinates(value.reshape(-1, 1)))))
