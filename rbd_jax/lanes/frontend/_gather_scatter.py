"""Rules for gather, scatter and dynamic slices: reading and writing at computed places."""

from functools import cache

import jax
import numpy as np

from .._failures import Unsupported
from ..ir._access_analysis import Rows
from ..ir._blocks import Value, constant
from ._reader import Reader, rule

_FOLDED = 4096
"""Elements of a table that are looked up while the program is read."""


@rule("dynamic_slice")
def _dynamic_slice(r: Reader, eqn, x, *starts):
    sizes = tuple(eqn.params["slice_sizes"])
    starts = starts[: x.ndim]
    if all(s.const is not None for s in starts):
        at = [min(max(int(s.const), 0), n - k) for s, n, k in
              zip(starts, x.shape, sizes, strict=True)]  # fmt: skip
        return r.slice(x, at, [a + k for a, k in zip(at, sizes, strict=True)], (1,) * x.ndim)

    def index(reader, idx):
        return tuple(
            i if n == k else reader.clamped(s, (), n - k) + i
            for i, s, n, k in zip(idx, starts, x.shape, sizes, strict=True)
        )

    return r.view(x, sizes, index, starts=starts)


@rule("dynamic_update_slice")
def _dynamic_update(r: Reader, eqn, x, update, *starts):
    if update.shape == x.shape:
        return update

    def index(reader, table, idx):
        return tuple(
            i if n == k else reader.clamped(s, (), n - k) + i
            for i, s, n, k in zip(idx, starts, x.shape, update.shape, strict=True)
        )

    return r.op("scatter", [x, constant(np.int32(0)), update, *starts], x.shape, x.dtype,
                index=index, fn="set", limits=None, once=True,
                free=lambda: range(x.ndim))  # fmt: skip


@rule("add", "add_any")
def _add(r: Reader, eqn, x, y):
    """A sum. Where one term is zero but for some places, only these are added to the other."""
    for total, term in ((x, y), (y, x)):
        op = term.op
        if op is None or op.name != "scatter" or total.shape != term.shape:
            continue
        zeros, *rest = op.ins
        sums = op.params["fn"] == "add" or op.params.get("once")
        if sums and zeros.const is not None and not np.any(zeros.const):
            return r.op("scatter", [total, *rest], term.shape, term.dtype,
                        **op.params | {"fn": "add"})  # fmt: skip
    return r.map("add", x, y)


def _checks(drop: bool, indices: Value, sizes: list[int]) -> tuple[bool, bool]:
    """How a gather or scatter treats places out of bounds: whether it clamps, and drops them."""
    if indices.const is not None:
        c = indices.const
        if c.size == 0 or bool(np.all((c >= 0) & (c <= np.array(sizes)))):
            return False, False
    return True, drop


@rule("gather")
def _gather(r: Reader, eqn, x, indices):
    d, sizes = eqn.params["dimension_numbers"], eqn.params["slice_sizes"]
    shape = eqn.outvars[0].aval.shape
    batch = [k for k in range(len(shape)) if k not in d.offset_dims]
    limits = [x.shape[a] - sizes[a] for a in d.start_index_map]
    drop = eqn.params["mode"] == jax.lax.GatherScatterMode.FILL_OR_DROP
    clamp, drop = _checks(drop, indices, limits)
    windows = [a for a in range(x.ndim)
               if a not in d.collapsed_slice_dims and a not in d.operand_batching_dims]  # fmt: skip

    def starts(reader, idx):
        at = tuple(idx[k] for k in batch)
        for k, axis in enumerate(d.start_index_map):
            place = (*at, k)
            yield axis, (reader.clamped(indices, place, limits[k]) if clamp
                         else reader.lookup(indices, place))  # fmt: skip

    def index(reader, idx):
        out: list = [0] * x.ndim
        for axis, k in zip(windows, d.offset_dims, strict=True):
            out[axis] = idx[k]
        for axis, k in zip(d.operand_batching_dims, d.start_indices_batching_dims, strict=True):
            out[axis] = idx[batch[k]]
        for axis, start in starts(reader, idx):
            out[axis] = start + out[axis]
        return tuple(out)

    def valid(reader, idx):
        at = tuple(idx[k] for k in batch)
        return reader.inside(indices, [((*at, k), n) for k, n in enumerate(limits)])

    if x.const is not None and indices.const is not None and not drop:
        size = int(np.prod(shape, dtype=int))
        if size <= _FOLDED:
            known = [x.const[index(Known(), idx)] for idx in np.ndindex(shape)]
            return constant(np.array(known, x.dtype).reshape(shape))
    params = {"index": index}
    if drop:
        params |= {"valid": valid, "fill": eqn.params.get("fill_value")}
    return r.op("view", [x, indices], shape, x.dtype, **params)


def _applies(jaxpr) -> bool:
    """Whether an update computes something instead of taking the new element."""
    return jaxpr is not None and jaxpr.outvars != [jaxpr.invars[1]]


class Known:
    """Reads the numbers of a constant table."""

    def lookup(self, table: Value, idx: tuple) -> int:
        assert table.const is not None
        return int(table.const[idx])

    def clamped(self, table: Value, idx: tuple, limit: int) -> int:
        return min(max(self.lookup(table, idx), 0), limit)


def _apart(index, indices: Value, shape: tuple[int, ...]) -> bool:
    """Whether all elements are known to have different places."""
    if indices.const is None:
        return False
    places = [index(Known(), indices, idx) for idx in np.ndindex(shape)]
    return len(set(places)) == len(places)


_COMBINED = ("add", "sub", "mul", "min", "max")


@rule("scatter", *(f"scatter{sign}{fn}" for fn in _COMBINED for sign in "-_"))
def _scatter(r: Reader, eqn, x, indices, updates):
    d, fn = eqn.params["dimension_numbers"], eqn.primitive.name[8:] or "set"
    if fn == "set" and _applies(eqn.params.get("update_jaxpr")):
        raise Unsupported("a function applied to the old elements")
    window = d.update_window_dims
    batch = [k for k in range(updates.ndim) if k not in window]
    inner = [a for a in range(x.ndim)
             if a not in d.inserted_window_dims and a not in d.operand_batching_dims]  # fmt: skip
    width = dict(zip(inner, (updates.shape[k] for k in window), strict=True))
    limits = [x.shape[a] - width.get(a, 1) for a in d.scatter_dims_to_operand_dims]
    # XLA never writes out of bounds, also where they are promised; rules of JAX rely on it
    drop = eqn.params["mode"] != jax.lax.GatherScatterMode.CLIP
    clamp, drop = _checks(drop, indices, limits)

    def index(reader, table, idx):
        at, out = tuple(idx[k] for k in batch), [0] * x.ndim
        for axis, k in zip(inner, window, strict=True):
            out[axis] = idx[k]
        for axis, k in zip(d.operand_batching_dims, d.scatter_indices_batching_dims, strict=True):
            out[axis] = idx[batch[k]]
        for k, axis in enumerate(d.scatter_dims_to_operand_dims):
            start = (reader.clamped(table, (*at, k), limits[k]) if clamp
                     else reader.lookup(table, (*at, k)))  # fmt: skip
            out[axis] = start + out[axis]
        return tuple(out)

    def valid(reader, idx):
        at = tuple(idx[k] for k in batch)
        return reader.inside(indices, [((*at, k), n) for k, n in enumerate(limits)])

    def free():
        """Axes of the updates along which no two elements have the same place.

        Unique indices do not say so: those out of bounds are brought to the nearest place, where
        the old number is written again.
        """
        if _apart(index, indices, updates.shape):
            return range(updates.ndim)
        return window

    def rows():
        """The place of the first element of each update, if all are known and rows are whole."""
        whole = all(width[a] == x.shape[a] for a in inner)
        if indices.const is None or drop or not whole or batch != list(range(len(batch))):
            return None
        lead = tuple(updates.shape[k] for k in batch)
        first = [index(Known(), indices, (*at, *[0] * len(window))) for at in np.ndindex(lead)]
        return Rows(np.array(first, dtype=int).reshape(-1, x.ndim), lead, tuple(inner))

    return r.op("scatter", [x, indices, updates], x.shape, x.dtype, index=index, fn=fn,
                limits=valid if drop else None, free=free, rows=cache(rows))  # fmt: skip
