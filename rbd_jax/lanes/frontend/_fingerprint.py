"""A name of a jaxpr that says all that it computes, and that is the same in every process.

What is made of a jaxpr is kept under this name on disk, so that another process need not make it
again. Two jaxprs have the same name only if the reader would read the same from both. A jaxpr with
anything whose meaning cannot be written down, such as a function that is no primitive's own, has
no name.
"""

import enum
import hashlib
from typing import Any

import numpy as np
from jax.core import Tracer
from jax.extend import core as jcore

from .._jax_internals import jaxpr_and_consts, literal, scan_counts
from ._reader import CALLS, IDLE, RULES, Expansions, called


class _Nameless(Exception):
    """Something has no name that is the same in every process."""


def fingerprint(closed) -> str | None:
    """The name of a jaxpr, or None if it has none."""
    try:
        return _Fingerprint().jaxpr(closed)
    except _Nameless:
        return None


class _Fingerprint:
    def __init__(self):
        self._expansions = Expansions()
        self._names: dict[int, tuple[Any, str]] = {}
        self._types: dict[tuple, str] = {}
        self._equations: dict[tuple, str] = {}

    def jaxpr(self, closed) -> str:
        """The name of a jaxpr with its constants."""
        if id(closed) not in self._names:
            self._names[id(closed)] = closed, self._name(closed)  # keeps it and its id
        return self._names[id(closed)][1]

    def _name(self, closed) -> str:
        jaxpr, consts = jaxpr_and_consts(closed)
        numbers: dict = {}
        lines = [*map(_array, consts)]

        def new(v) -> str:
            numbers[v] = str(len(numbers))
            kind = v.aval.dtype, v.aval.shape
            if kind not in self._types:
                self._types[kind] = f"{kind[0]}{kind[1]}"
            return self._types[kind]

        def place(v) -> str:
            return _array(literal(v)) if isinstance(v, jcore.Literal) else numbers[v]

        lines.append(",".join(map(new, (*jaxpr.constvars, *jaxpr.invars))))
        for eqn in jaxpr.eqns:
            ins = ",".join(map(place, eqn.invars))
            lines.append(f"{','.join(map(new, eqn.outvars))}={self._equation(eqn)}({ins})")
        lines.append(",".join(map(place, jaxpr.outvars)))
        return hashlib.sha256("\n".join(lines).encode()).hexdigest()

    def _equation(self, eqn) -> str:
        """What an equation does with its operands."""
        name, params = eqn.primitive.name, eqn.params
        if name in CALLS:
            return self.jaxpr(called(params))
        if name not in RULES and hasattr(eqn.primitive, "expand"):
            return self.jaxpr(self._expansions.of(eqn, [v.aval for v in eqn.invars]))
        if not all(map(_is_simple, params.values())):
            return self._with_parameters(name, params)
        key = name, *params.items(), *map(type, params.values())  # 1 is equal to True
        if key not in self._equations:
            self._equations[key] = self._with_parameters(name, params)
        return self._equations[key]

    def _with_parameters(self, name: str, params: dict) -> str:
        known = {k: self._parameter(k, x) for k, x in sorted(params.items())}
        if name == "scan":
            known["counts"] = repr(scan_counts(params))
        return f"{name}[{','.join(f'{k}={x}' for k, x in known.items())}]"

    def _parameter(self, name: str, x: Any) -> str:
        try:
            return self._text(x)
        except _Nameless:
            if name in IDLE:
                return ""
            raise

    def _text(self, x: Any) -> str:
        """What a parameter is."""
        kind = type(x)
        if kind in _PLAIN:
            return repr(x)
        if isinstance(x, jcore.ClosedJaxpr | jcore.Jaxpr):
            return self.jaxpr(x)
        if isinstance(x, tuple | list):
            return f"{kind.__name__}({','.join(map(self._text, x))})"
        if isinstance(x, enum.Enum):
            return f"{kind.__name__}.{x.name}"
        if isinstance(x, np.ndarray | np.generic):
            return _array(x)
        if isinstance(x, np.dtype | type):
            return str(x)
        raise _Nameless


_PLAIN = {type(None), bool, int, float, str}


def _is_simple(x: Any) -> bool:
    """Whether a parameter is equal to another one only if its text is the same."""
    if type(x) is tuple:
        return all(type(y) is int for y in x)
    return x is None or type(x) in (bool, int, str) or isinstance(x, np.dtype)


def _array(x) -> str:
    if isinstance(x, Tracer):
        raise _Nameless
    x = np.asarray(x)
    content = x.tobytes()
    text = content.hex() if len(content) <= 32 else hashlib.sha256(content).hexdigest()
    return f"{x.dtype}{x.shape}{text}"
