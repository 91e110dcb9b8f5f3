"""Shape checks of the public functions' arguments: a clear error instead of a wrong number."""

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


def checked(function: Callable) -> Callable:
    """Check the arguments that have one of the standard names before calling ``function``.

    Raises ValueError for a wrong shape and TypeError for integers, a string or a missing model;
    both name the argument, what was expected and the remedy. Costs nothing under ``jit``.
    """
    signature = inspect.signature(function)
    names = [n for n in signature.parameters if n in _SHAPES]

    @functools.wraps(function)
    def wrapper(*args, **kwargs):
        from .model import Model  # the model's own functions are checked too

        arguments = signature.bind(*args, **kwargs).arguments
        model = arguments["model"]
        if not isinstance(model, Model):
            raise TypeError(
                f"{function.__name__}: the first argument must be a rbd_jax.Model, got "
                f"{type(model).__name__}; make one with rbd_jax.load_urdf or rbd_jax.samples"
            )
        for name in names:
            if arguments.get(name) is not None:
                _check(function.__name__, model, name, arguments[name])
        return function(*args, **kwargs)

    return wrapper


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
