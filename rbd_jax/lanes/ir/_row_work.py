"""Which kernels of one sample have rows of numbers that LLVM should turn into vectors.

LLVM looks for numbers that one vector can hold in the written-out operations of every block of code
(the SLP vectorizer). It finds them where loops run over the elements of arrays: in a product of
matrices, or in the columns that belong to a body. In a recursion over the bodies of a robot, each
round is written out, with some hundred operations on matrices of 3 × 3 and vectors of six. There
it searches for long and gains nothing.
"""

import math
from dataclasses import dataclass

from ._access_analysis import Axes, is_large
from ._blocks import Block, Op

MOST_RECURSION = 1 / 3
"""LLVM looks for rows unless recursions less rows make up more than this share of the work.

The table gives the share, the seconds of LLVM's passes with and without the search, and the run
time without it over the run time with it (float64, a core of an EPYC, LLVM 20).

=====================================================  ======  ============  ====
kernel                                                 share   passes        run
=====================================================  ======  ============  ====
steps of the gradient of a rollout of Talos             0.81   0.48 → 0.10   0.99
forward dynamics of Talos                               0.74   0.41 → 0.06   1.00
its vjp                                                 0.47   0.54 → 0.12   1.01
forces of the ground on a quadruped                     0.38   0.94 → 0.20   1.01
derivatives of the forward dynamics of UR5              0.37   0.43 → 0.09   1.00
*— from here on LLVM looks —*
its Jacobian by ``jax.jacfwd``                          0.32   0.44 → 0.09   1.03
inverse dynamics of Talos                               0.32   0.08 → 0.05   1.01
dynamics of a humanoid on the ground                    0.24   0.44 → 0.07   1.04
derivatives of the forward dynamics of HyQ              0.15   0.55 → 0.12   1.07
derivatives of the forward dynamics of Talos            0.10   0.54 → 0.12   1.43
mass matrix of Talos                                    0.04   0.07 → 0.05   1.04
forces of the ground on a humanoid                      0.02   0.95 → 0.29   1.13
derivatives of the inverse dynamics of Talos           −0.01   0.14 → 0.07   1.04
=====================================================  ======  ============  ====

In float32 the search costs less and gains more: without it the forward dynamics of Talos and its
vjp take 1.05 and 1.06 of the time, and the passes take 0.06 s and 0.12 s less. So recursions count
in float64 alone.
"""

_DENSE = ("cholesky", "triangular_solve")


def has_rows(program: Block) -> bool:
    """Whether LLVM shall look for rows in the kernel of a program, by :data:`MOST_RECURSION`."""
    return recursion_share(program) <= MOST_RECURSION


def recursion_share(program: Block) -> float:
    """The work of recursions less that of rows, over all work of a program, between −1 and 1."""
    work = _Work()
    work.add(program, 1, False)
    return (work.recursions - work.rows) / max(work.total, 1)


@dataclass
class _Work:
    """Numbers that a program computes, in all rounds of its loops."""

    total: int = 0
    recursions: int = 0
    """Those of eight bytes that a loop over steps without other such loops in it writes out."""
    rows: int = 0
    """Those of loops over elements in such a loop, of matrices, and of two loops in each other."""

    def add(self, block: Block, rounds: int, recursion: bool) -> None:
        """Count the operations of a block; a loop of unknown length counts as one round."""
        axes = Axes(block)
        for op in block.ops:
            if op.blocks:
                steps = rounds * op.params.get("length", 1)
                innermost = not any(inner.blocks for body in op.blocks for inner in body.ops)
                for body in op.blocks:
                    self.add(body, steps, recursion if op.name == "cond" else innermost)
                continue
            work, v = rounds * _numbers(op), op.outs[0]
            self.total += work
            loops = len(axes.looped(v.shape))
            matrix = op.name in _DENSE or op.name == "dot" and is_large(op, axes)
            if recursion and not loops and not matrix:
                self.recursions += work * (v.dtype.itemsize == 8)
            elif recursion or matrix or loops > 1:
                self.rows += work


def _numbers(op: Op) -> int:
    """How many numbers an operation computes, counting each term of its sums."""
    v, p = op.outs[0], op.params
    if v.dtype.kind != "f":
        return 0
    if op.name == "map":
        return v.size
    if op.name == "scatter":
        return 0 if p["fn"] == "set" else op.ins[2].size
    if op.name in ("reduce", "cumulate"):
        return op.ins[0].size
    if op.name == "dot":
        return v.size * math.prod(op.ins[0].shape[k] for k in p["contract"][0])
    if op.name == "cholesky":
        return v.size * v.shape[-1] // 6
    if op.name == "triangular_solve":
        return v.size * op.ins[0].shape[-1] // 2
    if op.name == "factorized":
        return sum(len(c) ** 2 for c in p["columns"]) // 2
    if op.name == "factorized_solve":
        return 2 * math.prod(v.shape[1:]) * sum(map(len, p["columns"]))
    return 0
