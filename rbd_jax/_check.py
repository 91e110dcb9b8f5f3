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
    "dt": (),
}
_LEAVES = {
    "inertia": ("nb", 10),
    "placement_R": ("nb", 3, 3),
    "placement_p": ("nb", 3),
    "axis": ("nb", 3),
    "pitch": ("nb",),
    "gravity": (3,),
    "armature": ("nv",),
    "damping": ("nv",),
    "stiffness": ("nv",),
    "rest": ("nq",),
}


def checked(function: Callable) -> Callable:
    """Check the arguments that have one of the standard names before calling ``function``.

    Raises ValueError for a wrong shape, of an argument or of a leaf of the model, and for a fleet
    that is not mapped over; TypeError for integers, for what is no array, and for a missing model.
    They name the argument, what was expected and the remedy. Floats of another precision are cast
    to that of the model, which so decides that of the results. Costs nothing under ``jit``.
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
        _check_leaves(function.__name__, model)
        for name in names:
            value, optional = arguments.get(name), signature.parameters[name].default is None
            if value is not None or not optional:
                _check(function.__name__, model, name, value)
                arguments[name] = of_dtype(model, value)
        return function(*bound.args, **bound.kwargs)

    return wrapper


def of_dtype(model: "Model", value):
    """The same array, if of floats then in the precision of the model."""
    kind = getattr(value, "dtype", None)
    if kind is not None and kind in (model.dtype, jnp.bool_):  # None equals float64 to numpy
        return value
    return jnp.asarray(value, model.dtype)


def _sizes(model: "Model", dims: tuple) -> tuple[int, ...]:
    return tuple(getattr(model, d) if isinstance(d, str) else d for d in dims)


def _check_leaves(function: str, model: "Model") -> None:
    for name, dims in _LEAVES.items():
        if (leaf := getattr(model, name)) is None:
            continue
        shape, expected = jnp.shape(leaf), _sizes(model, dims)
        if shape != expected and shape != ():
            problem = f"model.{name} of robot {model.topology.name!r} has shape {shape}"
            if len(shape) > len(expected):
                raise ValueError(
                    f"{function}: {problem}, one axis too many for one robot; functions take one, "
                    f"use jax.vmap for a fleet"
                )
            raise ValueError(f"{function}: {problem}, expected {expected}")


def _check(function: str, model: "Model", name: str, value) -> None:
    dims = _SHAPES[name]
    if dims == ():
        if not (hasattr(value, "dtype") or isinstance(value, int | float)):
            raise TypeError(f"{function}: {name} must be a number, got {type(value).__name__}")
        if jnp.shape(value) != ():
            raise ValueError(f"{function}: {name} has shape {jnp.shape(value)}, expected a number")
        return
    expected = _sizes(model, dims)
    wanted = "(" + ", ".join(str(d) for d in dims) + ("," if len(dims) == 1 else "") + ")"
    if not hasattr(value, "dtype"):
        raise TypeError(
            f"{function}: {name} must be an array of shape {wanted} = {expected}, got "
            f"{type(value).__name__}; use jnp.asarray"
        )
    shape = jnp.shape(value)
    if shape != expected:
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
