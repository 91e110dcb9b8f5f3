"""Rematerialization by a minimal cut: what one program stores for the next, in the fewest bytes."""

import numpy as np
from jax.extend import core as jcore

from ._jaxprs import VIEWS, _bytes, _free

_ALWAYS = 2**30
_CHEAP = {
    *VIEWS, "gather", "pad", "select_n", "convert_element_type", "reduce_sum",
    "add", "add_any", "sub", "mul", "neg", "div", "square", "integer_pow", "sqrt", "abs", "sign",
    "max", "min", "clamp", "lt", "le", "gt", "ge", "eq", "ne", "and", "or", "not",
}  # fmt: skip
"""Equations that are carried out again where that saves memory."""


def rematerialized(eqns: list, wanted: list, before: list) -> set[int]:
    """The ids of the equations that a program carries out, some of them for a second time.

    What else the program reads has been stored by the equations before it. Which of them are
    carried out again follows from a minimal cut: the stored arrays have the fewest bytes.

    Args:
        eqns: the equations of the program itself.
        wanted: its outputs.
        before: the equations before it.
    """
    from scipy.sparse import csr_matrix
    from scipy.sparse.csgraph import breadth_first_order, maximum_flow

    origin = {v: e for e in before for v in e.outvars}
    last = [v for v in _free(eqns, _variables(wanted)) if v in origin]
    if not last:
        return set(map(id, eqns))
    source, sink, made = 0, 1, {v: 2 * k for k, v in enumerate(origin, 1)}
    # each variable has two nodes, made and stored; the edge between them is what storing it costs
    edges = {(n, n + 1): _bytes([v]) for v, n in made.items()}
    edges |= {(made[v] + 1, sink): _ALWAYS for v in last}
    for v, e in origin.items():
        if e.primitive.name in _CHEAP:
            sources = [made[x] + 1 for x in _variables(e.invars) if x in origin]
        else:
            sources = [source]
        edges |= {(n, made[v]): _ALWAYS for n in sources}
    rows, columns = np.array(list(edges)).T
    values = np.fromiter(edges.values(), np.int32)
    graph = csr_matrix((values, (rows, columns)), shape=(2 + 2 * len(made),) * 2)
    left = graph - maximum_flow(graph, source, sink).flow
    left.data = np.maximum(left.data, 0)
    left.eliminate_zeros()
    reached = set(breadth_first_order(left, source, return_predecessors=False).tolist())
    found, waiting = set(map(id, eqns)), last
    while waiting:
        v = waiting.pop()
        if v in origin and made[v] not in reached and id(origin[v]) not in found:
            found.add(id(origin[v]))
            waiting += _variables(origin[v].invars)
    return found


def _variables(atoms) -> list:
    return [v for v in atoms if not isinstance(v, jcore.Literal)]
