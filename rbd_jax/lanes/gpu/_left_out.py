"""What teams leave out of a program: elements of matrices that nobody reads, and sums with zeros.

**Diagonals.** Where a matrix is added that is zero but for few known places, such as a diagonal,
only these are added. So the sum needs no memory of its own.

**Systems.** A factorization with known zeros reads the entries on and below the diagonal that its
factor has, see ``frontend._sparse_cholesky``. Where a matrix is made for this alone, from updates
and sums of other matrices, only these entries are made, in a vector.
"""

import numpy as np

from ..frontend._gather_scatter import Known
from ..frontend._reader import live_operations
from ..frontend._sparse_cholesky import places
from ..ir._access_analysis import Rows, captured
from ..ir._blocks import Block, Op, Value, constant

_FEW = 4
"""An update is made of a sum if at most one of so many elements changes."""
_MOST = 4096
"""Elements of an update whose places are looked up."""


def leave_out(block: Block) -> None:
    """Change a block, and the blocks inside it, for teams."""
    for op in block.ops:
        for inner in op.blocks:
            leave_out(inner)
    _add_few(block)
    _pack_systems(block)


def _add_few(block: Block) -> None:
    """Sums with matrices of which few elements are not zero become updates of these."""
    ops: list[Op] = []
    for op in block.ops:
        few = _few(op)
        if few is None:
            ops.append(op)
            continue
        x, y, at = few
        out, table = op.outs[0], constant(at)
        op.name, op.ins = "scatter", [x, table, _picked(ops, y, at)]
        op.params = _update(table, out.ndim)
        ops.append(op)
    block.ops = live_operations(ops, block.outputs)


def _few(op: Op) -> tuple[Value, Value, np.ndarray] | None:
    """For a sum: what is added to, what is added, and at which places it may not be zero."""
    if op.name != "map" or op.params["fn"] != "add" or op.outs[0].ndim < 2:
        return None
    for x, term in (op.ins, op.ins[::-1]):
        chosen = term.op
        if chosen is None or chosen.name != "map" or chosen.params["fn"] != "select":
            continue
        mask, zero, y = chosen.ins
        if mask.const is None or mask.dtype != bool or zero.const is None or np.any(zero.const):
            continue
        at = np.argwhere(mask.const).astype(np.int32)
        if x.const is None and x.op is not None and 0 < _FEW * len(at) <= x.size:
            return x, y, at
    return None


def _update(table: Value, ndim: int) -> dict:
    """The parameters of sums at known places that are different; the table has a row for each."""
    at = table.const
    assert at is not None
    return {
        "index": lambda reader, table, idx: tuple(
            reader.lookup(table, (idx[0], k)) for k in range(ndim)
        ),
        "fn": "add", "limits": None, "free": lambda: range(1),
        "rows": lambda: Rows(at, (len(at),), ()),
    }  # fmt: skip


def _picked(ops: list[Op], x: Value, at: np.ndarray) -> Value:
    """Some elements of an array as a vector."""
    table = constant(at.astype(np.int32))

    def index(reader, idx):
        return tuple(reader.lookup(table, (idx[0], k)) for k in range(x.ndim))

    out = Value((len(at),), x.dtype, x.uniform)
    out.op = Op("view", [x, table], [out], {"index": index}, x.op.eqn if x.op else None)
    out.views = 1 + x.views
    ops.append(out.op)
    return out


def _pack_systems(block: Block) -> None:
    takers: dict[Value, int] = {}
    for op in block.ops:
        for v in (*op.ins, *(v for inner in op.blocks for v in captured(inner))):
            takers[v] = takers.get(v, 0) + 1
    for v in block.outputs:
        takers[v] = takers.get(v, 0) + 1
    ops: list[Op] = []
    for op in block.ops:
        if op.name == "factorized" and op.ins[0].ndim == 2:
            own = {v for other in ops for v in other.outs}
            single = {v for v in own if takers.get(v) == 1}
            op.ins[0] = _Packing(*places(op.params["columns"]), single, ops).entries(op.ins[0])
        ops.append(op)
    block.ops = live_operations(ops, block.outputs)


class _Packing:
    """Appends the operations that make some entries of matrices; ``single`` have one taker."""

    def __init__(self, rows: np.ndarray, columns: np.ndarray, single: set[Value], ops: list[Op]):
        self._at, self._single, self._ops = np.stack([rows, columns], 1), single, ops
        self._numbers = {(i, j): k for k, (i, j) in enumerate(self._at.tolist())}

    def entries(self, A: Value) -> Value:
        """The entries of a matrix as a vector."""
        if A.const is not None:
            return constant(A.const[self._at[:, 0], self._at[:, 1]])
        op = A.op
        if op is not None and A in self._single:
            if op.name == "map":
                return self._append("map", [self.entries(x) for x in op.ins], A, **op.params)
            if op.name == "scatter" and (changed := self._changed(op)) is not None:
                return changed
        return _picked(self._ops, A, self._at)

    def _append(self, name: str, ins: list[Value], like: Value, **params) -> Value:
        out = Value((len(self._at),), like.dtype, like.uniform)
        out.op = Op(name, ins, [out], params, like.op.eqn if like.op else None)
        self._ops.append(out.op)
        return out

    def _changed(self, op: Op) -> Value | None:
        """The same update of the entries, of which others are left out."""
        x, table, update, *_ = op.ins
        if table.const is None or op.params["limits"] is not None or update.size > _MOST:
            return None
        if len(op.ins) > 3 or update.size == 0:
            return None
        index = op.params["index"]
        pairs = [(idx, self._numbers.get(index(Known(), table, idx)))
                 for idx in np.ndindex(update.shape)]  # fmt: skip
        kept = [(idx, k) for idx, k in pairs if k is not None]
        if not kept:
            return self.entries(x)
        numbers = [k for _, k in kept]
        if len(set(numbers)) < len(numbers):
            return None
        where = constant(np.array(numbers, np.int32)[:, None])
        new = _picked(self._ops, update, np.array([idx for idx, _ in kept]))
        params = _update(where, 1) | {"fn": op.params["fn"]}
        return self._append("scatter", [self.entries(x), where, new], op.outs[0], **params)
