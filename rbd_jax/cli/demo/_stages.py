"""The stages of the demo. Each one stores what the picture needs and returns a line to print."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax

import rbd_jax as rbd

from .._identities import central, error, forward_dynamics, inverse_dynamics, random_states
from .._pinocchio import agreement
from .._robots import Robot
from .._show import Check, machine
from . import _landing as landing, _scenario as scenario
from ._picture import PictureData, save


def cast(tree, dtype: str):
    """The same tree with every floating-point array in another precision."""
    return jax.tree.map(lambda x: x.astype(dtype) if eqx.is_inexact_array(x) else x, tree)


def timed(f: Callable, *args, repeats: int = 1):
    """The outputs of a function, its compile time and its best run time (s)."""
    start = time.perf_counter()
    compiled = jax.jit(f).lower(*args).compile()
    compile_time = time.perf_counter() - start
    out, seconds = best(compiled, *args, repeats=repeats)
    return out, compile_time, seconds


def best(compiled: Callable, *args, repeats: int):
    """The outputs of a compiled function, and its best run time (s)."""
    runs: list[float] = []
    out: Any = None
    while len(runs) < repeats and sum(runs) < 2.0:
        start = time.perf_counter()
        out = jax.block_until_ready(compiled(*args))
        runs.append(time.perf_counter() - start)
    return out, min(runs)


class Stages:
    """The demo. A stage stores its results in attributes that later stages read."""

    def __init__(self, robot: Robot, batch: int, steps: int, dtype: str, iterations: int):
        self.robot, self.batch, self.dtype, self.iterations = robot, batch, dtype, iterations
        self.s = scenario.prepare(robot.model, steps)
        self.u = jnp.zeros((steps, robot.model.nv))
        self.checks: list[Check] = []
        self.throughput: list[tuple[str, str, str, str]] = []

    def all(self) -> list[tuple[str, Callable[[], str]]]:
        """The stages in order, each with a text that says what it does."""
        B, T = self.batch, len(self.u)
        return [
            (f"{B} rollouts of {T} steps, each with different masses", self.simulate),
            ("gradient of one rollout with respect to torques and model", self.differentiate),
            ("gradient against central differences", self.check_gradient),
            (f"{self.iterations} gradient steps on the torques", self.optimize),
            ("timing of each function on the batch", self.time_functions),
            ("comparison with Pinocchio on the same URDF", self.compare),
            (f"{B} quadrupeds thrown onto the ground", self.land),
        ]

    def simulate(self) -> str:
        """Simulate the batch, in which initial velocities and masses differ, by one program."""
        s, u = cast((self.s, self.u), self.dtype)

        def batch(s, inertia, q0, v0, u):
            def one(inertia, q0, v0):
                model = eqx.tree_at(lambda m: m.inertia, s.model, inertia)
                traj = scenario.rollout(s._replace(model=model), q0, v0, u)
                return traj.q, *scenario.drifts(model, traj)

            return jax.vmap(one)(inertia, q0, v0)

        args = scenario.scatter(s, self.batch, jax.random.key(0))
        (q, *drifts), compile_time, seconds = timed(batch, s, *args, u)
        self.q = np.asarray(q, np.float64)
        names = scenario.DRIFTS if s.floating else scenario.DRIFTS[:1]
        self.drifts = {n: np.asarray(x) for n, x in zip(names, drifts, strict=False)}
        evaluations = 2 * self.batch * len(u)
        self._record("rollout, per forward dynamics", evaluations, seconds, compile_time)
        worst = {n: float(np.median(np.abs(x[:, -1]))) for n, x in self.drifts.items()}
        self.checks += [
            Check(f"{n} over the rollout", x, 0.02, f"median drift, dt {1e3 * scenario.DT:g} ms")
            for n, x in worst.items()
        ]
        return f"{seconds:.2f} s, {evaluations / seconds:,.0f} forward dynamics per second"

    def differentiate(self) -> str:
        """Reverse mode through one rollout, for the torques and every leaf of the model at once."""

        def cost(u, model, s):
            return scenario.cost(s._replace(model=model), u)

        start = time.perf_counter()
        f = jax.jit(jax.value_and_grad(cost, (0, 1), has_aux=True))
        self.slope = f.lower(self.u, self.s.model, self.s).compile()
        compile_time = time.perf_counter() - start
        out, seconds = best(self.slope, self.u, self.s.model, self.s, repeats=5)
        (J, self.before), (self.du, self.dmodel) = out
        self.costs = [float(J)]
        self._record("rollout with its gradient, per step", len(self.u), seconds, compile_time)
        leaves = sum(x.size for x in jax.tree.leaves(self.dmodel))
        return f"{self.u.size + leaves:,} derivatives in {1e3 * seconds:.0f} ms"

    def check_gradient(self) -> str:
        """Compare the gradient in random directions of torques, masses and lengths of links."""
        s, rng = self.s, np.random.default_rng(0)
        names = "torques", "masses", "link lengths"

        def f(x):
            u, mass, length = x
            where = lambda m: (m.inertia, m.placement_p)  # noqa: E731
            rows = [y * jnp.exp(z)[:, None] for y, z in zip(where(s.model), x[1:], strict=True)]
            model = eqx.tree_at(where, s.model, tuple(rows))
            return scenario.cost(s._replace(model=model), u)[0]

        zero = jnp.zeros((s.model.nb,))
        at = self.u, zero, zero
        exact = [
            self.du,
            jnp.sum(self.dmodel.inertia * s.model.inertia, axis=1),
            jnp.sum(self.dmodel.placement_p * s.model.placement_p, axis=1),
        ]
        batched = jax.jit(jax.vmap(f))
        for k, name in enumerate(names):
            along = [np.zeros(x.shape) for x in at]
            along[k] = rng.normal(size=at[k].shape)
            if k == 0:
                along[k] *= np.asarray(s.driven)
            got = float(np.sum(np.asarray(exact[k]) * along[k]))
            want = central(batched, at, tuple(along), 1e-2 if k == 0 else 1e-4)
            value = abs(got - want) / max(abs(want), 1e-12)
            self.checks.append(Check(f"∂ cost / ∂ {name}", value, 1e-5, "central differences"))
        return ", ".join(f"{n} {c.value:.0e}" for n, c in zip(names, self.checks[-3:], strict=True))

    def optimize(self) -> str:
        """Take gradient steps on the torques by Adam, scaled by the inertia that a motor moves."""
        adam, length = optax.scale_by_adam(0.9, 0.99, 1e-12), 0.0075 * scenario.SPEED**2
        u, memory = self.u, adam.init(self.u)
        g, self.after, best = self.du, self.before, self.costs[0]
        for _ in range(self.iterations):
            with jax.numpy_dtype_promotion("standard"):  # as optax was written
                direction, memory = adam.update(g, memory)
            u = u - length * self.s.inertia[None] * jnp.asarray(direction)
            (J, traj), (g, _) = self.slope(u, self.s.model, self.s)
            self.costs.append(float(J))
            if J <= best:
                best, self.after = float(J), traj
        return f"cost {self.costs[0]:.4f} → {best:.2e}"

    def time_functions(self) -> str:
        """Time inverse and forward dynamics and their derivatives on random states."""
        model = cast(self.s.model, self.dtype)
        states = random_states(model, self.batch, 1)
        calls = {
            "inverse dynamics": (inverse_dynamics, 2),
            "forward dynamics": (forward_dynamics, 3),
            "mass matrix (CRBA)": (lambda m, q, *_: rbd.crba(m, q), 2),
            "FD derivatives": (rbd.forward_dynamics_derivatives, 3),
        }
        a = None
        for name, (f, last) in calls.items():
            args = model, states.q, states.v, states[last]
            out, compile_time, seconds = timed(jax.vmap(f, (None, 0, 0, 0)), *args, repeats=5)
            a = out if name == "forward dynamics" else a
            self._record(name, self.batch, seconds, compile_time)
        tau = jax.jit(jax.vmap(inverse_dynamics, (None, 0, 0, 0)))(model, states.q, states.v, a)
        limit = 1e-10 if self.dtype == "float64" else 1e-3
        self.checks.append(Check("ID(FD(τ)) = τ", error(tau, states.tau), limit, self.dtype))
        return f"{len(calls)} functions, best of 5"

    def compare(self) -> str:
        """Compare RNEA, CRBA and ABA with Pinocchio, if it is installed."""
        floating = self.s.floating
        found = agreement(self.robot, floating and self.robot.path is not None, 8, 0)
        self.checks += found
        return found[0].note

    def land(self) -> str:
        """Let a batch of quadrupeds fall onto their feet, with friction and servos."""
        thrown = landing.prepare(self.batch, self.dtype)
        q, compile_time, seconds = timed(landing.fall, thrown)
        self.landed = np.asarray(q, np.float64)
        steps = self.batch * landing.STEPS
        self._record("step with contact", steps, seconds, compile_time)
        share = landing.fallen(self.landed)
        note = f"after {landing.STEPS * landing.DT:g} s on the ground"
        self.checks.append(Check("robots that do not stand", share, 0.0, note))
        return f"{1 - share:.0%} stand, {steps / seconds:,.0f} steps with contact per second"

    def _record(self, name: str, count: int, seconds: float, compile_time: float) -> None:
        rate, each = count / seconds, 1e6 * seconds / count
        self.throughput.append((name, f"{rate:,.0f}", f"{each:.2f}", f"{compile_time:.1f}"))

    def draw(self, path: Path, name: str) -> None:
        """Draw the picture and save it."""
        s, model = self.s, self.s.model
        points = scenario.landmarks(s, self.q)
        shown = [np.asarray(x.q) for x in (self.before, self.after)]
        fan = scenario.headline(s, np.stack([*self.q, *shown]))
        rate = self.throughput[0][1]
        data = PictureData(
            model=model,
            title=f"rbd_jax: {name}, {model.nv} degrees of freedom, {self.batch} rollouts at once",
            facts=f"{rate} forward dynamics per second ({self.dtype}, without compile time).  "
            f"Gradients agree with central differences to {self._worst():.0e}.  {machine()}",
            t=np.asarray(self.before.t),
            before=shown[0],
            after=shown[1],
            costs=self.costs,
            paths=points,
            fan=fan[:-2],
            fan_label=scenario.HEADLINES[0 if s.floating else 1],
            fan_lines=(fan[-2], fan[-1]),
            drifts=self.drifts,
            drift_t=np.asarray(self.before.t)[scenario.sampled(len(self.u))],
            du=np.asarray(self.du),
            heights=self.landed[:, :, 2],
            heights_t=landing.DT * np.arange(landing.STEPS + 1),
            dmass=0.01 * np.asarray(jnp.sum(self.dmodel.inertia * model.inertia, axis=1)),
        )
        save(data, path)

    def _worst(self) -> float:
        return max(c.value or 0.0 for c in self.checks if c.name.startswith("∂ cost"))
