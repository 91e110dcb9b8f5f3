"""Which form of an algorithm runs where. The table and the functions of this file decide it alone.

Algorithms hand over their forms, which are plain functions, and get back the one that is fastest
here. All forms give the same results up to rounding. The benchmarks ``python -m benchmarks
formulations``, ``kernels`` and ``gpu`` measure each row; their numbers are in
``benchmarks/results``.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Literal, NamedTuple, TypeVar

import jax

from ..lanes import clear_caches, enabled, for_one_thread
from ..model import Tree

Form = TypeVar("Form")


class Formulation(NamedTuple):
    """How passes over a tree are done, and how the mass matrix is inverted."""

    recursions: Literal["bodies", "levels"]
    """Passes from the root to the leaves and back: one body at a time, or one depth at a time."""
    products: Literal["bodies", "doubling"]
    """Associative products along each branch: one body at a time, or by pointer doubling."""
    sums: Literal["bodies", "doubling", "mask"]
    """Sums over ancestors or subtrees; ``"mask"`` is a product with the 0/1 matrix of ancestors."""
    mask: int
    """The largest number of nodes for which sums use the mask; above it they use doubling."""
    pairs: Literal["ancestors", "mask"]
    """Matrices that couple a node with its ancestors: such pairs alone, or all pairs and a mask."""
    inverse: int
    """The largest number of degrees of freedom for which M⁻¹ gives forward dynamics."""
    depth: int
    """The same for degrees of freedom in a row: M⁻¹ of longer chains loses digits."""
    solves: Literal["bodies", "entries"]
    """How other robots are solved for: by articulated bodies, or by the entries of M = Lᵀ L."""
    columns: int
    """The most columns of a matrix that are solved for at once: few stay in cache and registers.
    Where a step carries several numbers for a column, it is so many times fewer."""
    joined: bool
    """Whether the columns of several matrices are solved for as those of one. Teams solve for one
    matrix after the other: the memory of one then does for all."""
    apart: int
    """Of derivatives of forward dynamics: if a degree of freedom has so many others on average that
    are neither before nor behind it, columns are solved for (AZA). If it has fewer, M⁻¹ is
    multiplied by them (DMM). With 512 KiB of second-level cache a core, DMM takes of the time of
    AZA, in float64 and float32: HyQ (6 others) 0.80 and 0.82, a tree of 15 with branching 2 (9)
    0.89 and 0.82, G1 (17) 1.14 and 1.21, a tree of 30 (23) 0.96 and 0.96, Talos (28) 1.46 and 1.38,
    trees of 40 with branching 5 (35) and of 50 with branching 2 (41) 1.3 to 1.8. With 2 MiB, in
    ``figures``, both are equal at 77 and 15 others with branching 2."""
    length: tuple[int, int]
    """The same: trees with more degrees of freedom in a row are solved for. AZA and DMM cross on
    serial chains at N = 268 in float64 and 107 in float32 with 2 MiB of second-level cache a core,
    and between 100 and 200 in float64 with 512 KiB. On a chain of 100 errors of DMM are 1.3 to 2
    times those of AZA."""
    written: int
    """The largest matrix that is factorized entry by entry: much code, but no loops."""
    points: tuple[int, int]
    """How many candidate points of contact are handled all at once: in the search for the
    accelerations, and where derivatives are taken, in which a loop costs more. Of more points, a
    loop takes those that act. With 20 candidates (G1) a team would divide the four points of a
    round among 32 threads: by counts, its step takes 192 ns a robot all at once and 278 with the
    loop (``python -m benchmarks gpu_model``)."""
    known: bool = False
    """Whether the constants of a scene that is not traced are computed when a step is traced, and
    are numbers of its program. It spares a GPU 9 % of a step by counts, and costs 2 s of
    compilation. A CPU computes them once a call, which is nothing beside a batch."""
    whole: int = 0
    """The most degrees of freedom of a robot for which a batch of solves is one kernel, in which
    every group of samples has its own number of steps. With 64 starts of ``multiple_shooting`` it
    takes 0.45 of the time for a cart-pole (2), 0.2 to 0.3 for UR5 and a quadrotor (6), 0.36 for
    Panda (9), and 1.2 for a trot of HyQ (18), whose starts need the same few steps. ``ilqr``
    takes 0.6 for the cart-pole and 0.2 for UR5."""
    closed: tuple[bool, bool] = (False, True)
    """Of the Riccati sweep in double and in single precision: whether the Hessian of the cost to go
    is that of the motion under feedback, or the shorter difference ``Qxx + Quxᵀ K``. In float32 an
    arm with a speed limit is solved from 16 of 16 starts by the first, and from 14 by the second.
    In float64 the second takes nine tenths of the time of a sweep, and stiff barriers spoil fewer
    of its digits."""
    ancestors: int = 10**6
    """If degrees of freedom have more ancestors than this on average, a column is solved for by
    passes over the bodies, otherwise by passes over the ancestors. For chains of 30, whose mean is
    15, both take the same time. For chains of 50, 100, 200 and 500 the first takes 0.7, 0.6, 0.3
    and 0.2 of it in float64."""


FORMULATIONS = {
    # compiled to lanes, recursions are the least work and the most accurate form
    "lanes": Formulation(
        recursions="bodies",
        products="bodies",
        sums="bodies",
        mask=0,
        pairs="ancestors",
        inverse=0,
        depth=0,
        solves="bodies",
        columns=16,
        joined=True,
        apart=16,
        length=(150, 107),
        written=16,
        points=(16, 64),
        whole=12,
        ancestors=20,
    ),
    # compiled to lanes for a team of threads: few steps, with much to divide in each of them
    "teams": Formulation(
        recursions="levels",
        products="doubling",
        sums="doubling",
        mask=0,
        pairs="ancestors",
        inverse=0,
        depth=0,
        solves="entries",
        columns=1024,
        joined=False,
        apart=0,
        length=(0, 0),
        written=16,
        points=(64, 64),
        known=True,
    ),
    # XLA on a CPU: a short loop is cheap, many small operations in it are not
    "xla": Formulation(
        recursions="bodies",
        products="bodies",
        sums="mask",
        mask=128,
        pairs="mask",
        inverse=24,
        depth=12,
        solves="bodies",
        columns=1024,
        joined=True,
        apart=0,
        length=(0, 0),
        written=0,
        points=(16, 64),
    ),
    # XLA on an accelerator: one step of a loop is about ten kernels (``kernels``, ``gpu``)
    "accelerator": Formulation(
        recursions="levels",
        products="doubling",
        sums="mask",
        mask=128,
        pairs="mask",
        inverse=64,
        depth=24,
        solves="bodies",
        columns=1024,
        joined=True,
        apart=0,
        length=(0, 0),
        written=0,
        points=(16, 64),
    ),
}

_forced: ContextVar[Formulation | None] = ContextVar("formulation", default=None)


def current() -> Formulation:
    """The formulation of the program that is being traced."""
    forced = _forced.get()
    if forced is not None:
        return forced
    backend = jax.default_backend()
    lanes, xla = ("lanes", "xla") if backend == "cpu" else ("teams", "accelerator")
    lanes = "lanes" if for_one_thread() else lanes
    return FORMULATIONS[lanes if enabled(backend) else xla]


def for_recursions(*, bodies: Form, levels: Form) -> Form:
    """The form of passes from the root to the leaves and back."""
    return bodies if current().recursions == "bodies" else levels


def for_products(*, bodies: Form, doubling: Form) -> Form:
    """The form of associative products along each branch."""
    return bodies if current().products == "bodies" else doubling


def for_sums(nodes: int, *, bodies: Form, doubling: Form, mask: Form) -> Form:
    """The form of sums over ancestors or subtrees, in a tree of so many nodes."""
    row = current()
    if row.sums == "bodies":
        return bodies
    return mask if row.sums == "mask" and nodes <= row.mask else doubling


def for_pairs(*, ancestors: Form, mask: Form) -> Form:
    """The form of matrices that couple a node with its ancestors."""
    return mask if current().pairs == "mask" else ancestors


def for_mass_matrix(nv: int, depth: int = -1, *, inverse: Form, factor: Form) -> Form:
    """The form of forward dynamics: by the inverse of the mass matrix, or by its factor.

    Args:
        nv: degrees of freedom.
        depth: the depth of the tree of degrees of freedom; −1 if it does not matter.
        inverse: the form for small robots where loops are slow.
        factor: the form for all other robots.
    """
    row = current()
    return inverse if nv <= row.inverse and depth < row.depth else factor


def for_solves(*, bodies: Form, entries: Form) -> Form:
    """The form of forward dynamics by a factor."""
    return entries if current().solves == "entries" else bodies


def for_factorization(size: int, *, written: Form, loops: Form) -> Form:
    """The form of the factorization of a matrix: written out entry by entry, or by loops."""
    return written if size <= current().written else loops


def for_columns(tree: Tree, single: bool, *, inverse: Form, solves: Form) -> Form:
    """The form of a product with M⁻¹: by the inverse matrix, or a solution for each column.

    Args:
        tree: the tree of degrees of freedom.
        single: whether the precision is single.
        inverse: the form by the inverse matrix.
        solves: the form that solves.
    """
    row, n = current(), tree.n
    many = n * (n - 1) - 2 * len(tree.pairs[0]) >= row.apart * n
    return solves if many or tree.depths.max(initial=-1) + 1 > row.length[single] else inverse


def for_matrices(*, joined: Form, apart: Form) -> Form:
    """The form of the solutions for several matrices: as for one, or one after the other."""
    return joined if current().joined else apart


def for_column(tree: Tree, *, branches: Form, bodies: Form) -> Form:
    """The form of a solution for one column of many: over pairs with ancestors, or over bodies."""
    few = len(tree.pairs[0]) <= current().ancestors * tree.n
    return branches if few else bodies


def points_at_once(searched: bool) -> int:
    """How many candidate points of contact are handled without a loop over those that act.

    ``searched`` says whether this is for the search for the accelerations, not for derivatives.
    """
    return current().points[0 if searched else 1]


def for_fixed_arguments(*, traced: Form, known: Form) -> Form:
    """The form of what only depends on arguments that are not traced: in the program, or before."""
    return known if current().known else traced


def for_cost_to_go(single: bool, *, closed: Form, difference: Form) -> Form:
    """The form of the Hessian of the cost to go in a Riccati sweep.

    Args:
        single: whether the precision is single.
        closed: the form by the motion under feedback.
        difference: the form by a difference.
    """
    return closed if current().closed[single] else difference


def columns_at_once(columns: int, numbers: int = 1) -> int:
    """How many columns of a matrix are solved for at once: the greatest divisor that is allowed.

    ``numbers`` says how many numbers a step carries for each column.
    """
    most = max(1, min(columns, current().columns // numbers))
    return max(k for k in range(1, most + 1) if columns % k == 0)


def for_batches(alone: Callable, *, cpu: Callable, other: Callable) -> Callable:
    """A function with another form under ``vmap``.

    Args:
        alone: the form for one sample.
        cpu: the form for a batch on a CPU.
        other: the form for a batch on other devices. Which one runs is decided when XLA compiles
            the program, so that one exported program serves both.
    """
    function = jax.custom_batching.custom_vmap(alone)

    @function.def_vmap
    def _(size, batched, *args):
        axes = jax.tree.map(lambda b: 0 if b else None, batched)
        on_cpu, elsewhere = (jax.vmap(f, tuple(axes), axis_size=size) for f in (cpu, other))
        out = jax.lax.platform_dependent(*args, cpu=on_cpu, default=elsewhere)
        return out, jax.tree.map(lambda _: True, out)

    return function


def for_solves_in_batches(nv: int, alone: Callable, *, whole: Callable) -> Callable:
    """A solver of one problem, with another form under ``vmap`` if it pays.

    Args:
        nv: degrees of freedom of the robot.
        alone: the form for one problem. A batch of it goes on until its last problem is solved.
        whole: the form that is one kernel, for a batch on a CPU.
    """
    return for_batches(alone, cpu=whole, other=alone) if nv <= current().whole else alone


@contextmanager
def formulation(name: str, **changes: Any) -> Iterator[None]:
    """Trace programs in the form of another backend, for tests and benchmarks.

    ``changes`` are fields of the table's row with other values.
    """
    token = _forced.set(FORMULATIONS[name]._replace(**changes))
    clear_caches()
    try:
        yield
    finally:
        _forced.reset(token)
        clear_caches()
