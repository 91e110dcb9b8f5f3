"""Scans over time that differ only in what reverse mode stores.

A step is a function ``(carry, x) -> (carry, y)``. :func:`time_scan` returns the carries after every
step and the ys, stacked. :func:`time_loop` returns the last carry alone, and the ys. For n steps, a
carry of c bytes and a step whose residuals take r bytes, reverse mode stores this many
bytes and evaluates the steps this many times:

    mode                        bytes               evaluations
    full                        n r                 1
    checkpoint, every k steps   n/k c + k r         2
    checkpoint, L levels        L n^(1/L) c + r     1 + L
    adjoint                     r                   2

The carries that are returned anyway are not counted.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import PyTree

from ..model.arguments import check_number

Step = Callable[[Any, Any], tuple[Any, Any]]
MODES = ("full", "checkpoint", "adjoint")


class Checkpoint(NamedTuple):
    """What reverse mode stores of a rollout: states from time to time, and the rest again.

    The option ``gradient`` of :func:`rbd_jax.rollout` also takes a name of a mode.
    """

    every: int | None = None
    """Number of steps between two stored states. With a stride it is rounded down to a multiple of
    the stride, but not below one stride. None stores states at nested levels."""
    levels: int = 2
    """The number of nested levels without ``every``. Memory grows as T^(1/levels), and each level
    costs one more forward evaluation."""
    mode: str = "checkpoint"
    """One of ``MODES``; only ``"checkpoint"`` has these options."""

    @classmethod
    def of(cls, gradient: "str | Checkpoint") -> "Checkpoint":
        """The option of a rollout as an object. ValueError for an unknown mode or a bad number."""
        if not isinstance(gradient, Checkpoint):
            if gradient not in MODES:
                raise ValueError(
                    f"rollout: gradient must be one of {MODES} or a Checkpoint, got {gradient!r}"
                )
            return cls(mode=gradient)
        if gradient.mode not in MODES:
            raise ValueError(f"Checkpoint: mode must be one of {MODES}, got {gradient.mode!r}")
        for name, value in {"every": gradient.every, "levels": gradient.levels}.items():
            if value is not None:
                check_number("Checkpoint", name, value, least=1, whole=True)
        return gradient

    @property
    def within(self) -> str:
        """The mode of scans within a step."""
        return "full" if self.mode == "full" else "checkpoint"

    def lengths(self, saved: int, stride: int) -> tuple[int, ...]:
        """Lengths of the nested checkpointed blocks of kept states, the longest first."""
        if self.every is not None:
            return (max(1, self.every // stride),)
        base = 1
        while base**self.levels < saved:
            base += 1
        return tuple(base**k for k in reversed(range(self.levels)))


def time_scan(
    step: Step,
    carry: PyTree,
    xs: PyTree,
    mode: str,
    sizes: tuple[int, ...] = (1,),
    again: Callable[[Any, Any, Any], tuple[Any, Any]] | None = None,
) -> tuple[PyTree, PyTree]:
    """Scan ``step`` over the leading axis of ``xs`` in one of ``MODES``.

    ``again(carry, x, after)`` is the step where the carry after it is known; the mode ``adjoint``
    takes the derivatives of it. By default it is ``step``.
    """
    if mode == "adjoint" and jax.tree.leaves(xs)[0].shape[0] > 0:
        first = jax.tree.map(lambda x: x[0], xs)
        forth = eqx.filter_closure_convert(step, carry, first)
        known = again or (lambda carry, x, after: step(carry, x))
        back = eqx.filter_closure_convert(known, carry, first, carry)
        # the scan stands here and not in the rule, so that a compiler sees what it has computed
        fixed = jax.tree.map(_fixed, (forth, carry, xs))
        found = jax.lax.scan(_with_carry_output(fixed[0]), *fixed[1:])[1]
        return _adjoint((back, carry, xs), jax.tree.map(_fixed, found))
    return _blocks(_with_carry_output(step), carry, xs, sizes if mode == "checkpoint" else ())[1]


def time_loop(step: Step, carry: PyTree, xs: PyTree, mode: str) -> tuple[PyTree, PyTree]:
    """The carry after all steps, and the ys; the mode is ``"full"`` or ``"checkpoint"``.

    Forward mode and values keep no other carry.
    """
    return _blocks(step, carry, xs, (1,) if mode == "checkpoint" else ())


def _with_carry_output(step: Step) -> Step:
    """The step that also returns its new carry as an output."""

    def step_with_output(carry, x):
        carry, y = step(carry, x)
        return carry, (carry, y)

    return step_with_output


def _blocks(step: Step, carry, xs, sizes: tuple[int, ...]):
    """Nested scans with ``jax.checkpoint`` around every block; remaining steps come last."""
    if not sizes:
        return jax.lax.scan(step, carry, xs)
    size, *rest = sizes
    steps = jax.tree.leaves(xs)[0].shape[0]
    whole = steps // size
    if size == 1:
        return jax.lax.scan(jax.checkpoint(step, prevent_cse=False), carry, xs)
    if whole == 0:
        return _blocks(step, carry, xs, tuple(rest))
    inner = partial(_blocks, step, sizes=tuple(rest))
    rows = jax.tree.map(lambda x: x[: whole * size].reshape(whole, size, *x.shape[1:]), xs)
    carry, ys = jax.lax.scan(jax.checkpoint(inner, prevent_cse=False), carry, rows)
    ys = jax.tree.map(lambda y: y.reshape(whole * size, *y.shape[2:]), ys)
    if whole * size < steps:
        tail = jax.tree.map(lambda x: x[whole * size :], xs)
        carry, more = jax.checkpoint(inner)(carry, tail)
        ys = jax.tree.map(lambda *y: jnp.concatenate(y), ys, more)
    return carry, ys


def _fixed(x: Any) -> Any:
    return jax.lax.stop_gradient(x) if eqx.is_array(x) else x


@eqx.filter_custom_vjp
def _adjoint(inputs, found):
    """What the scan found, whose reverse mode keeps the carries and linearizes each step again.

    With ``x⁺ = f(x, θ)`` the adjoint obeys ``λ = (∂f/∂x)ᵀ λ⁺ + ∂J/∂x`` and ``J_θ += (∂f/∂θ)ᵀ λ⁺``.
    This is the transpose of the discrete step, so the gradient equals the gradient of the other
    modes up to rounding.
    """
    del inputs
    return found


@_adjoint.def_fwd
def _adjoint_forward(perturbed, inputs, found):
    out = _adjoint(inputs, found)
    return out, out[0]


@_adjoint.def_bwd
def _adjoint_backward(carries, cotangents, perturbed, inputs, found):
    step, start, xs = inputs
    moving, fixed = eqx.partition(step, perturbed[0])
    xs_moving, xs_fixed = eqx.partition(xs, perturbed[2])
    cotangents = jax.tree.map(
        lambda ct, x: jnp.zeros(x.shape, x.dtype) if ct is None else ct,
        cotangents,
        found,
        is_leaf=lambda x: x is None,
    )
    steps = jax.tree.leaves(xs)[0].shape[0]

    def back(state, row):
        lam, total = state
        k, x_moving, x_fixed, (ct_carry, ct_y) = row
        before = jax.tree.map(
            lambda c, c0: jnp.where(k > 0, c[jnp.maximum(k - 1, 0)], c0), carries, start
        )
        after = jax.tree.map(lambda c: c[k], carries)

        def forward(moving, carry, x):
            return eqx.combine(moving, fixed)(carry, eqx.combine(x, x_fixed), after)

        pull = jax.vjp(forward, moving, before, x_moving)[1]
        lam = jax.tree.map(jnp.add, lam, ct_carry)
        d_step, lam, d_x = pull((lam, ct_y))
        return (lam, jax.tree.map(jnp.add, total, d_step)), d_x

    zero = jax.tree.map(jnp.zeros_like, (start, moving))
    rows = jnp.arange(steps), xs_moving, xs_fixed, cotangents
    (lam, total), d_xs = jax.lax.scan(back, zero, rows, reverse=True)
    return total, lam, d_xs
