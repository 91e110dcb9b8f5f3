"""Checks of the public functions' arguments: a clear error instead of a wrong number."""

import functools
import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING

import jax.numpy as jnp

if TYPE_CHECKING:
    from .model import Model

_SHAPES = {
    "q": ("nq",),
    "q0": ("nq",),
    "q1": ("nq",),
    "dq": ("nq",),
    "v": ("nv",),
    "v0": ("nv",),
    "a": ("nv",),
    "j": ("nv",),
    "dv": ("nv",),
    "tau": ("nv",),
    "lam": ("nv",),
    "f_ext": ("nb", 6),
    "prescribed": ("nb",),
    "V": ("nb", 6),
    "dV": ("nb", 6),
    "Pi": ("nb", 6),
    "dPi": ("nb", 6),
    "stiffness": ("nv",),
    "rotor": ("nv",),
}
_RANKS = {"inertia": 2, "placement_R": 3, "placement_p": 2, "axis": 2, "pitch": 1, "gravity": 1,
          "armature": 1, "damping": 1}  # fmt: skip


def checked(function: Callable) -> Callable:
    """Check the arguments that have one of the standard names before calling ``function``.

    Raises ValueError for a wrong shape or a fleet of models that is not mapped over, and TypeError
    for integers, a string or a missing model; they name the argument, what was expected and the
    remedy. Floats of another precision are cast to that of the model, which so decides that of the
    results. Costs nothing under ``jit``.
    """
    signature = inspect.signature(function)
    names = [n for n in signature.parameters if n in _SHAPES]

    @functools.wraps(function)
    def wrapper(*args, **kwargs):
        from .model import Model  # the model's own functions are checked too

        bound = signature.bind(*args, **kwargs)
        arguments = bound.arguments
        model = arguments["model"]
        if not isinstance(model, Model):
            raise TypeError(
                f"{function.__name__}: the first argument must be a rbd_jax.Model, got "
                f"{type(model).__name__}; make one with rbd_jax.load_urdf or rbd_jax.samples"
            )
        _check_ranks(function.__name__, model)
        for name in names:
            if arguments.get(name) is not None:
                _check(function.__name__, model, name, arguments[name])
                arguments[name] = of_dtype(model, arguments[name])
        return function(*bound.args, **bound.kwargs)

    return wrapper


def of_dtype(model: "Model", value):
    """The same array, if of floats then in the precision of the model."""
    kind = getattr(value, "dtype", None)
    if kind == model.dtype or kind == jnp.bool_:
        return value
    return jnp.asarray(value, model.dtype)


def _check_ranks(function: str, model: "Model") -> None:
    for name, rank in _RANKS.items():
        shape = jnp.shape(getattr(model, name))
        if len(shape) > rank:
            raise ValueError(
                f"{function}: model.{name} of robot {model.topology.name!r} has shape {shape}, one "
                f"axis too many for one robot; functions take one, use jax.vmap for a fleet"
            )


def _check(function: str, model: "Model", name: str, value) -> None:
    dims = _SHAPES[name]
    expected = tuple(getattr(model, d) if isinstance(d, str) else d for d in dims)
    shape = jnp.shape(value)
    if shape != expected:
        wanted = "(" + ", ".join(str(d) for d in dims) + ("," if len(dims) == 1 else "") + ")"
        hint = ""
        if len(shape) == len(expected) + 1:
            hint = "; functions take one sample, use jax.vmap for a batch"
        raise ValueError(
            f"{function}: {name} has shape {shape}, expected {wanted} = {expected} "
            f"for robot {model.topology.name!r}{hint}"
        )
    kind = jnp.result_type(value)
    if name == "prescribed":
        if kind != jnp.bool_:
            raise TypeError(f"{function}: prescribed must be bool, got {kind}")
    elif not jnp.issubdtype(kind, jnp.floating):
        raise TypeError(f"{function}: {name} must be floating point, got {kind}; use astype(float)")
