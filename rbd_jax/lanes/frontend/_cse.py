"""Elimination of common subexpressions: equations that say the same are read once.

Functions that are put together ask for the same things again: several parts of a derivative need
the poses of the bodies. JAX leaves that to XLA, so lanes look for it themselves.
"""

import numpy as np
from jax.core import Tracer
from jax.extend import core as jcore

from .._jax_internals import literal
from ..ir._blocks import Value

_SMALL = 4096  # bytes of a constant that is compared by its numbers
_PLAIN = {type(None), bool, int, str}  # types of parameters that are compared as they are
_JAXPRS = jcore.ClosedJaxpr, jcore.Jaxpr
_FLOATS = float, np.floating


class CommonSubexpressions:
    """Names for constants, for jaxprs and for equations: equal ones have the same name."""

    def __init__(self):
        self._constants: dict = {}
        self._names: dict = {}
        self._jaxprs: dict[int, tuple] = {}

    def constant(self, v: Value) -> Value:
        """One value for all equal constants, unless it is large."""
        c = v.const
        if c is None or c.nbytes > _SMALL or c.size > _SMALL:
            return v
        return self._constants.setdefault((c.dtype.str, c.shape, c.tobytes()), v)

    def equation(self, eqn, ins: list[Value]):
        """What an equation computes of which values; None if that cannot be told."""
        params = self._params(eqn.params)
        if params is None:
            return None
        return eqn.primitive.name, tuple(map(id, ins)), params, tuple(map(_kind, eqn.outvars))

    def _params(self, params: dict):
        """The parameters of an equation, hashable; None if one of them is not."""
        found = []
        for name, x in params.items():
            kind = type(x)
            found.append((name, (kind, x) if kind in _PLAIN else self._param(x)))
        found = tuple(found)
        try:
            hash(found)
        except TypeError:
            return None
        return found

    def _param(self, x):
        if isinstance(x, tuple):
            for y in x:
                if isinstance(y, jcore.ClosedJaxpr):
                    return tuple(map(self._param, x))
            return type(x), x
        if isinstance(x, _JAXPRS):
            return "jaxpr", self._jaxpr(x)
        if isinstance(x, _FLOATS):
            return repr(x)  # NaN is not equal to itself, and 0 is equal to −0
        return type(x), x

    def _jaxpr(self, closed) -> int:
        """The name of a jaxpr with its constants."""
        if id(closed) not in self._jaxprs:
            self._jaxprs[id(closed)] = closed, self._fingerprint(closed)  # keeps it and its id
        return self._jaxprs[id(closed)][1]

    def _fingerprint(self, closed) -> int:
        jaxpr = getattr(closed, "jaxpr", closed)
        numbers = {v: k for k, v in enumerate((*jaxpr.constvars, *jaxpr.invars))}

        def place(atom):
            if isinstance(atom, jcore.Literal):
                x = literal(atom)
                return x.dtype.str, x.shape, x.tobytes()
            return numbers[atom]

        lines: list = [tuple(_kind(v) for v in numbers), tuple(map(self._table, _consts(closed)))]
        for eqn in jaxpr.eqns:
            params = self._params(eqn.params)
            same = params if params is not None else ("only", id(eqn))
            ins = tuple(place(v) for v in eqn.invars)
            lines.append((eqn.primitive.name, ins, same, tuple(map(_kind, eqn.outvars))))
            for v in eqn.outvars:
                numbers[v] = len(numbers)
        lines.append(tuple(place(v) for v in jaxpr.outvars))
        return self._names.setdefault(tuple(lines), len(self._names))

    def _table(self, c):
        if isinstance(c, Tracer) or np.size(c) > _SMALL:
            return "array", id(c)
        x = np.asarray(c)
        return (x.dtype.str, x.shape, x.tobytes()) if x.nbytes <= _SMALL else ("array", id(c))


def _consts(closed) -> tuple:
    return tuple(getattr(closed, "consts", ()))


def _kind(v):
    return v.aval.shape, v.aval.dtype
