"""Batches that are spread over devices: each device computes its own samples.

XLA would gather the operands of a call that it does not know on every device. So the call is
wrapped into JAX's ``custom_partitioning``, whose rule keeps the axes of the batch apart.
"""

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import jax
from jax.experimental.custom_partitioning import (
    ArrayMapping,
    SdyShardingRule,
    custom_partitioning,
)
from jax.sharding import NamedSharding, PartitionSpec

if TYPE_CHECKING:
    from .primitive._primitive import Mapped


def over_devices(ctx) -> bool:
    """Whether XLA is to divide this program among devices by itself."""
    axes: Any = ctx.module_context.axis_context
    if hasattr(axes, "manual_axes"):
        return set(axes.manual_axes) != set(axes.mesh.axis_names) and axes.mesh.size > 1
    return getattr(axes, "num_devices", 1) > 1


def partitioned(call: Callable, sizes: tuple[int, ...], mapped: "Mapped"):
    """A function of operands whose batch axes may be spread over devices.

    ``call`` is the call of a kernel, a function of sizes, mapped axes and operands.
    """
    levels = len(sizes)

    def whole(*operands):
        return tuple(call(sizes, mapped, *operands))

    def partition(mesh, arg_shapes, result_shapes):
        axes = _batch_axes(result_shapes[0].sharding, levels)
        at = lambda m, ndim: _named(mesh, axes, m, ndim)  # noqa: E731
        every = (True,) * levels
        results = tuple(at(every, s.ndim) for s in result_shapes)
        operands = tuple(at(m, s.ndim) for m, s in zip(mapped, arg_shapes, strict=True))
        local = results[0].shard_shape(result_shapes[0].shape)[:levels]

        def part(*operands):
            with jax.sharding.use_abstract_mesh(jax.sharding.AbstractMesh((), ())):
                return tuple(call(local, mapped, *operands))

        return mesh, part, results, operands

    divided = custom_partitioning(whole)
    divided.def_partition(partition, sharding_rule=partial(_rule, levels, mapped))
    return divided


def _batch_axes(sharding, levels: int) -> list:
    """Over which axes of the mesh each axis of the batch is spread."""
    if not isinstance(sharding, NamedSharding):
        return [None] * levels
    spec = [*sharding.spec, *[None] * levels]
    return [None if s is PartitionSpec.UNCONSTRAINED else s for s in spec[:levels]]


def _named(mesh, axes: list, there: tuple[bool, ...], ndim: int) -> NamedSharding:
    batch = [a for a, t in zip(axes, there, strict=True) if t]
    return NamedSharding(mesh, PartitionSpec(*batch, *[None] * (ndim - len(batch))))


def _rule(levels: int, mapped: "Mapped", mesh, operands, results) -> SdyShardingRule:
    """Batch axes have a factor each, that operands and results share; all others are whole."""
    del mesh
    others: list[str] = []

    def mapping(there: tuple[bool, ...], kind) -> ArrayMapping:
        batch = [f"b{level}" for level, t in enumerate(there) if t]
        own = [f"i{len(others) + k}" for k in range(kind.rank - len(batch))]
        others.extend(own)
        return ArrayMapping(*batch, *own)

    ins = tuple(mapping(m, k) for m, k in zip(mapped, operands, strict=True))
    outs = tuple(mapping((True,) * levels, k) for k in results)
    return SdyShardingRule(ins, outs, need_replication_factors=tuple(others))
