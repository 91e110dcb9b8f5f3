"""Smooth derivatives for a motion that stays as it is.

The derivatives of a step through contact hold at one state alone. They are zero for a contact that
is not there, and they jump where one begins. An optimizer that follows them finds no contact.
:class:`StraightThrough` gives a plant other derivatives: those of another plant, such as a scene
whose contacts act at a distance, or those that :class:`RandomizedSmoothing` finds from samples
around the state.
"""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.core import Tracer
from jaxtyping import Array, Float, PRNGKeyArray

from ..contact import Scene
from ..derivatives.custom_jvp.straight_through import straight_through_custom_jvp
from ..model import Model
from ..model.arguments import check_number
from ..spatial.linear import matmul
from ._plant import Plant, State, as_plant, fresh_memory, with_tangent


class RandomizedSmoothing(eqx.Module):
    """The mean slope of a plant's step over random changes of its state and its controls.

    The changes are fixed when this object is made, come in pairs ``±w``, and are the same in each
    step. So derivatives are the same each time. They cost ``samples`` steps with derivatives, or
    without, which run as a batch.

    - Order 1 is the mean of the derivatives at the changed states. It needs contacts that some of
      the samples meet.
    - Order 0 is the linear map that fits the changes of the step's result best, and takes no
      derivatives of the step along state and controls. It holds across jumps, and needs more
      samples: at least two for each number of state and controls.

    Derivatives along the plant's own arrays are those at the state itself with order 0, and means
    with order 1.

    Source: Suh, Pang, Tedrake (2022), "Bundled gradients through contact via randomized smoothing".
    """

    noise: Float[Array, "samples nz"]
    """The changes ``(δq, δv, δu)`` along the tangents of the state and of the controls."""
    order: int = eqx.field(static=True)
    """1 or 0."""

    def __init__(
        self,
        plant: Plant | Model | Scene,
        key: PRNGKeyArray,
        *,
        q: float | Array = 0.0,
        v: float | Array = 0.0,
        u: float | Array = 0.0,
        samples: int = 32,
        order: int = 1,
    ):
        """Draw the changes.

        Args:
            plant: whose derivatives are to be smooth.
            key: of the random numbers.
            q: standard deviation of the changes of the configuration along its tangents (rad, m);
                a number, or one for each of them.
            v: that of the velocity (rad/s, m/s). u: that of the controls.
            samples: the number of changes, which is even.
            order: 1 or 0.

        Raises:
            ValueError: for a number that is negative or not finite, for an odd number of samples,
                and for order 0 with too few samples, with a deviation of zero, or with a plant that
                has a memory.
        """
        plant, name = as_plant(plant, name="RandomizedSmoothing"), "RandomizedSmoothing"
        check_number(name, "samples", samples, least=2, whole=True)
        nv, nu = plant.model.nv, plant.nu
        sizes = {"q": (q, nv), "v": (v, nv), "u": (u, nu)}
        dtype = plant.model.dtype
        spread = jnp.concatenate([_deviations(k, x, n, dtype) for k, (x, n) in sizes.items()])
        if samples % 2:
            raise ValueError(f"{name}: samples is {samples}, expected an even number")
        if order not in (0, 1):
            raise ValueError(f"{name}: order is {order!r}, expected 0 or 1")
        memory = jax.tree.leaves(with_tangent(fresh_memory(plant)))
        if order == 0 and (samples < 2 * spread.size or memory):
            raise ValueError(
                f"{name}: order 0 fits slopes along {spread.size} numbers of state and controls, "
                f"which needs {2 * spread.size} samples and a plant without a memory; got "
                f"{samples} samples and a memory of {sum(x.size for x in memory)} numbers"
            )
        if order == 0:
            spread = _unless((spread == 0).any(), "order 0 needs q, v and u above zero", spread)
        half = jax.random.normal(key, (samples // 2, spread.size), dtype) * spread[None]
        self.noise, self.order = jnp.concatenate([half, -half]), order

    def about(self, plant: Plant, t: Array, state: State, u: Array, dt: Array, end: State) -> State:
        """A step of the plant whose value is ``end``, and whose derivatives are smooth."""
        nx, noise = plant.nx, jax.lax.stop_gradient(self.noise)
        memory = jnp.zeros((nx - 2 * plant.model.nv,), u.dtype)

        def after(state: State, u: Array, w: Array) -> State:
            n = w.size - u.size
            moved = plant.integrate(state, jnp.concatenate([w[:n], memory]))
            return plant.step(t, moved, u + w[n:], dt)

        def change(w: Array) -> Array:
            moved = after(state, u, w)
            return plant.difference(_fixed(moved), moved)

        if self.order:
            return plant.integrate(end, jnp.mean(jax.vmap(change)(noise), axis=0))
        x, at = _fixed(state), _fixed(u)
        still = jax.vmap(lambda w: plant.difference(end, _fixed(after(x, at, w))))(noise)
        slopes = jnp.linalg.lstsq(noise, still)[0]  # (nz, nx)
        along = jnp.concatenate([plant.difference(x, state), u - at])
        leaves = plant.step(t, x, at, dt)  # for derivatives along the plant's arrays
        return plant.integrate(
            end, matmul(slopes.T, along) + plant.difference(_fixed(leaves), leaves)
        )


def _fixed(x: Any) -> Any:
    return jax.tree.map(jax.lax.stop_gradient, x)


def _deviations(name: str, x: Any, n: int, dtype: Any) -> Array:
    x = jnp.asarray(x, dtype)
    if x.shape not in ((), (n,)):
        raise ValueError(f"RandomizedSmoothing: {name} has shape {x.shape}, expected () or {(n,)}")
    wrong = ~(jnp.isfinite(x) & (x >= 0)).all()
    return jnp.broadcast_to(_unless(wrong, f"{name} must be finite and not negative", x), (n,))


def _unless(wrong: Array, why: str, x: Array) -> Array:
    """``x``, or an error: ValueError at once, and at run time where it is not known before."""
    why = f"RandomizedSmoothing: {why}"
    if isinstance(wrong, Tracer):
        return eqx.error_if(x, wrong, why)
    if wrong:
        raise ValueError(why)
    return x


class StraightThrough(Plant):
    """A plant that moves as it does, and whose steps have other derivatives::

        smooth = simulate.StraightThrough(scene, scene.at_distance(0.05))
        smooth = simulate.StraightThrough(
            scene, simulate.RandomizedSmoothing(scene, key, q=0.01, v=0.1, u=0.1)
        )

    Rollouts, problems of optimal control, environments and fits take it as any plant. Values are
    those of ``plant`` to the last bit. The derivatives are those of a step of ``smooth`` from the
    same state and with the same controls. So derivatives along arrays are along those of
    ``smooth``: make both plants from an array along which you differentiate.
    """

    plant: Plant
    """What moves."""
    smooth: Plant | RandomizedSmoothing
    """Whose derivatives its steps have: another plant with the same state and controls, or
    samples."""

    def __init__(
        self, plant: Plant | Model | Scene, smooth: Plant | Model | Scene | RandomizedSmoothing
    ):
        self.plant = as_plant(plant, name="StraightThrough")
        if isinstance(smooth, RandomizedSmoothing):
            self.smooth, size = smooth, smooth.noise.shape[1]
            alike = size == 2 * self.plant.model.nv + self.plant.nu
        else:
            self.smooth = smooth = as_plant(smooth, name="StraightThrough")
            alike = _sizes(smooth) == _sizes(self.plant)
        if not alike:
            raise ValueError(
                "StraightThrough: the smooth derivatives are those of another state or of other "
                "controls; make both from plants with the same model, controls and memory"
            )

    @property
    def model(self) -> Model:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The robot of the plant."""
        return self.plant.model

    @property
    def nu(self) -> int:
        """The number of controls."""
        return self.plant.nu

    def check(self, steps: int) -> None:
        """See :meth:`Plant.check`."""
        self.plant.check(steps)

    def prepared(self) -> "StraightThrough":
        """See :meth:`Plant.prepared`."""
        smooth = self.smooth.prepared() if isinstance(self.smooth, Plant) else self.smooth
        return StraightThrough(self.plant.prepared(), smooth)

    def start(self, q: Array, v: Array, dt: Array, controls: Callable) -> State:
        """See :meth:`Plant.start`."""
        return self.plant.start(q, v, dt, controls)

    def events(self, t: Array, state: State, dt: Array) -> State:
        """See :meth:`Plant.events`."""
        return self.plant.events(t, state, dt)

    def outputs(self, t: Array, state: State, u: Array, dt: Array) -> tuple[Array, ...]:
        """See :meth:`Plant.outputs`."""
        return self.plant.outputs(t, state, u, dt)

    def zero_outputs(self, q: Array, v: Array, dt: Array) -> tuple[Array, ...]:
        """See :meth:`Plant.zero_outputs`."""
        return self.plant.zero_outputs(q, v, dt)

    def final_outputs(self, state: State) -> tuple[Array, ...]:
        """See :meth:`Plant.final_outputs`."""
        return self.plant.final_outputs(state)

    @property
    def memory_size(self) -> int:
        """See :attr:`Plant.memory_size`."""
        return self.plant.memory_size

    def memory_integrate(self, memory: Any, dm: Array) -> Any:
        """See :meth:`Plant.memory_integrate`."""
        return self.plant.memory_integrate(memory, dm)

    def memory_difference(self, memory: Any, other: Any) -> Array:
        """See :meth:`Plant.memory_difference`."""
        return self.plant.memory_difference(memory, other)

    def step(self, t: Array, state: State, u: Array, dt: Array) -> State:
        """See :meth:`Plant.step`."""
        args = self.plant, self.smooth, (t, state, u, dt)
        return straight_through_custom_jvp(_moved, _smooth, args)


def _sizes(plant: Plant) -> tuple:
    memory = jax.tree.map(lambda x: (x.shape, x.dtype), fresh_memory(plant))
    return plant.model.nq, plant.model.nv, plant.nu, memory


def _moved(args) -> State:
    plant, _, inputs = args
    return plant.step(*inputs)


def _smooth(args, end: State) -> State:
    plant, smooth, (t, state, u, dt) = args
    if isinstance(smooth, RandomizedSmoothing):
        return smooth.about(plant, t, state, u, dt, end)
    return smooth.step(t, state, u, dt)
