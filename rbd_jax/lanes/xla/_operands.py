"""Operands and results of a kernel's call: all axes of the batch as one, in front."""

import math
from typing import TYPE_CHECKING

import jax.numpy as jnp

if TYPE_CHECKING:
    from ..primitive._primitive import Mapped, Program


def shared(sizes: tuple[int, ...], mapped: "Mapped") -> tuple[bool, ...]:
    """Which operands all samples share."""
    return tuple(bool(sizes) and not any(m) for m in mapped)


def in_one_axis(program: "Program", sizes, mapped: "Mapped", operands) -> list:
    """Operands with all axes of the batch as one; those that all samples share stay as they are."""
    flat = []
    for x, m, a in zip(operands, mapped, program.avals_in, strict=True):
        if any(m):
            missing = [k for k, there in enumerate(m) if not there]
            if missing:
                x = jnp.broadcast_to(jnp.expand_dims(x, missing), (*sizes, *a.shape))
            x = x.reshape(math.prod(sizes), *a.shape)
        flat.append(x)
    return flat


def in_all_axes(results, sizes: tuple[int, ...]) -> list:
    """Results with the axes of the batch, without samples that fill up a block."""
    if not sizes:
        return list(results)
    return [r[: math.prod(sizes)].reshape(*sizes, *r.shape[1:]) for r in results]
