"""The decorators of public functions: :func:`algorithm`, and the checks of arguments within it.

The checks give a clear error instead of a wrong number. The shapes are read from the annotations of
the functions, for example ``q: Float[Array, " nq"]``.
"""

import functools
import inspect
from collections.abc import Callable
from types import NoneType, UnionType
from typing import Any, NamedTuple, TypeVar, Union, get_args, get_origin

import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import AbstractArray, Bool, Float

from ..lanes import lanes
from ._model import Model
from .topology import Topology

F = TypeVar("F", bound=Callable)
_SIZES = ("nq", "nv", "nb", "nj")  # dimensions that are attributes of the model
_FLOAT: Any = Float[Any, ""]
_BOOL: Any = Bool[Any, ""]
_KINDS = {_FLOAT.dtypes: "float", _BOOL.dtypes: "bool"}


class ArrayArgument(NamedTuple):
    """What the annotation of an argument says about its shape and its values."""

    dims: tuple[str | int, ...] | None
    """Sizes: a number, the name of a size of the model, or another name. None: any shape."""
    kind: str
    """``"float"``, ``"bool"`` or ``"any"``."""
    optional: bool
    """Whether None is allowed."""
    others: bool
    """Whether values that are no arrays, as functions, are allowed too."""

    @classmethod
    def of(cls, annotation: Any, fleet: bool = False) -> "ArrayArgument | None":
        """Read an annotation; None if it has no array, or more than one.

        ``fleet``: the first dimension stands for the axes of a fleet, and is left out.
        """
        union = get_origin(annotation) in (Union, UnionType)
        choices = get_args(annotation) if union else (annotation,)
        arrays = [c for c in choices if isinstance(c, type) and issubclass(c, AbstractArray)]
        if len(arrays) != 1:
            return None
        (array,) = arrays
        dims = tuple(int(d) if d.isdigit() else d for d in array.dim_str.split()[fleet:])
        plain = all(isinstance(d, int) or d.isidentifier() for d in dims)
        kind = _KINDS.get(array.dtypes, "any")
        others = any(c not in (array, NoneType, float, int) for c in choices)
        return cls(dims if plain else None, kind, NoneType in choices, others)

    def expected(self, model: Model | Topology) -> tuple[str | int, ...]:
        """The shape for this robot; sizes that the robot does not decide stay names."""
        return tuple(getattr(model, d) if d in _SIZES else d for d in self.dims or ())


def array_arguments(function: Callable) -> dict[str, ArrayArgument]:
    """The arguments of a function that are annotated as arrays."""
    parameters = inspect.signature(function).parameters.values()
    found = {p.name: ArrayArgument.of(p.annotation) for p in parameters}
    return {name: argument for name, argument in found.items() if argument is not None}


def algorithm(
    function: Callable | None = None,
    *,
    driven_joints: bool = False,
    project: tuple[int, ...] | None = None,
    requires: Callable[[str, Model], None] | None = None,
) -> Any:
    """The decorator of a public algorithm ``function(model, …)``, in one place.

    It checks the arguments (:func:`checked`), lets ``vmap`` compute one sample in every SIMD lane
    (:func:`rbd_jax.lanes`), and says what happens for a robot with driven joints, which is an error
    by default.

    Args:
        function: the algorithm. Leave it out if there are options: ``@algorithm(project=(0,))``.
        driven_joints: the function itself takes them.
        project: a robot with driven joints is handed over as the robot with all joints
            independent, with ``q``, ``v`` and ``a`` of all joints. The result is projected to the
            independent coordinates along these axes,
            which belong to degrees of freedom as a torque does.
        requires: ``(name of the function, model)``, a further check of the robot, which sees its
            numbers where they are known.
    """
    if function is None:
        return functools.partial(
            algorithm, driven_joints=driven_joints, project=project, requires=requires
        )
    plain = lanes(function)
    driven = None if project is None else lanes(_expanded(function, project))

    @functools.wraps(function)
    def wrapper(model: Any, *args, **kwargs):  # a model, or a scene as for ``checked``
        if requires is not None:
            requires(function.__name__, model)
        chosen = plain if driven is None or model.space is model.topology else driven
        return chosen(model, *args, **kwargs)

    accepts = driven_joints or project is not None
    return checked(takes_coordinates(wrapper) if accepts else wrapper)


def projected(*axes: int) -> Callable[[F], F]:
    """The option ``project`` of :func:`algorithm` alone, without its checks and without lanes."""

    def decorate(function: F) -> F:
        driven = _expanded(function, axes)

        @functools.wraps(function)
        def wrapper(model: Model, *args, **kwargs):
            chosen = function if model.space is model.topology else driven
            return chosen(model, *args, **kwargs)

        return takes_coordinates(wrapper)  # type: ignore[return-value]

    return decorate


def _expanded(function: Callable, axes: tuple[int, ...]) -> Callable:
    """A function of a plain robot as a function of a robot with driven joints."""
    signature = inspect.signature(function)

    @functools.wraps(function)
    def wrapper(model: Any, *args, **kwargs):
        given = signature.bind(model, *args, **kwargs).arguments
        x = model.coordinate_map(given["q"])
        v, a = given.get("v"), given.get("a")
        if a is not None:
            given["a"] = x.acceleration(jnp.zeros_like(a) if v is None else v, a)
        if v is not None:
            given["v"] = x.velocity(v)
        result = function(**(given | {"model": x.robot, "q": x.q}))
        return x.project_axes(result, axes) if axes else result

    return wrapper


_OWNERS = {
    "model": ("rbd_jax.Model", "rbd_jax.load_urdf or rbd_jax.samples"),
    "scene": ("rbd_jax.contact.Scene", "rbd_jax.load_mjcf"),
    "plant": ("rbd_jax.Model, an rbd_jax.contact.Scene or an rbd_jax.simulate.Plant",
              "rbd_jax.load_urdf or rbd_jax.load_mjcf"),
}  # fmt: skip
"""What the first argument of a checked function is, by its name, and what makes one."""


def checked(function: Callable) -> Callable:
    """Check the array arguments of a function of a ``model``, a ``scene`` or a ``plant``.

    The shapes are read from the annotations of the function. Sizes named ``nq``, ``nv``, ``nb`` and
    ``nj`` and plain numbers are compared. Of other sizes only their number is. Floats of another
    precision are cast to the precision of the model, which so decides the precision of the
    results. Costs nothing under ``jit``.

    Raises:
        ValueError: for a wrong shape of an argument or of a leaf of the model, and for a fleet of
            models that is not mapped over. The message names the argument, what was expected and
            the remedy.
        TypeError: for integers, for lists and other values that are no arrays, if the first
            argument is not a model, and if it has driven joints that the function does not take.
    """
    signature = inspect.signature(function)
    arguments = array_arguments(function)
    kind = next(iter(signature.parameters))
    name, accepts = function.__name__, getattr(function, "takes_coordinates", False)

    @functools.wraps(function)
    def wrapper(*args, **kwargs):
        bound = signature.bind(*args, **kwargs)
        given = bound.args[0]
        model = given if kind == "model" else getattr(given, "model", None)
        if kind == "plant" and isinstance(given, Model):
            model = given
        if not isinstance(model, Model):
            owner, made_by = _OWNERS[kind]
            remedy = f"make one with {made_by}"
            if isinstance(getattr(given, "model", None), Model):  # a scene or a plant
                remedy = "its robot is its attribute model, and rbd_jax.rollout moves the whole"
            raise TypeError(
                f"{name}: the first argument must be a {owner}, got {type(given).__name__}; "
                f"{remedy}"
            )
        if model.space is not model.topology and not accepts:
            raise TypeError(
                f"{name} takes no robot with driven (mimic) joints as {model.topology.name!r}; "
                f"model.robot has all joints independent"
            )
        check_leaves(name, model)
        for key, argument in arguments.items():
            if key in bound.arguments:
                value = check_array(name, model, key, bound.arguments[key], argument)
                bound.arguments[key] = value
        return function(*bound.args, **bound.kwargs)

    return wrapper


def takes_coordinates(function: F) -> F:
    """Mark a function that also takes a robot with driven joints; ``checked`` refuses others."""
    function.takes_coordinates = True  # type: ignore[attr-defined]
    return function


def of_dtype(model: Model, value):
    """The same array. Floats are in the precision of the model."""
    kind = getattr(value, "dtype", None)
    if kind is not None and kind in (model.dtype, jnp.bool_):  # None equals float64 to numpy
        return value
    return jnp.asarray(value, model.dtype)


_LEAVES = {
    name: leaf
    for name in (
        "inertia", "placement_R", "placement_p", "axis", "pitch", "gravity", "armature", "damping",
        "stiffness", "rest",
    )
    if (leaf := ArrayArgument.of(Model.__annotations__[name], fleet=True))
}  # fmt: skip


def check_leaves(function: str, model: Model) -> None:
    """Compare the shapes of the model's leaves with the robot's sizes; ValueError if one differs.

    One row for all bodies would otherwise be broadcast without a word. TypeError for a leaf of
    another precision.
    """
    for name, leaf in _LEAVES.items():
        if (value := getattr(model, name)) is None:
            continue
        kind = getattr(value, "dtype", model.dtype)
        if kind != model.dtype and jnp.issubdtype(kind, jnp.floating):
            raise TypeError(
                f"{function}: model.{name} of robot {model.topology.name!r} is {kind}, its inertia "
                f"{model.dtype}; use astype, so that one precision decides that of the results"
            )
        shape, expected = jnp.shape(value), leaf.expected(model.topology)
        if shape != expected and shape != ():
            problem = f"model.{name} of robot {model.topology.name!r} has shape {shape}"
            if len(shape) > len(expected):
                raise ValueError(
                    f"{function}: {problem}, one axis too many for one robot; functions take one, "
                    f"use jax.vmap for a fleet"
                )
            raise ValueError(f"{function}: {problem}, expected {expected}")


def check_array(function: str, model: Model, name: str, value: Any, argument: ArrayArgument) -> Any:
    """The value of an argument in the precision of the model, if its shape and kind are right.

    Raises:
        ValueError: for a wrong shape. TypeError: for a value that is no array, or of integers.
    """
    if value is None and argument.optional:
        return None
    number = argument.dims == () and isinstance(value, int | float)
    if value is None or not (number or hasattr(value, "dtype")):
        if argument.others:
            return value
        wanted = "a number" if argument.dims == () else f"an array{_shape(argument, model)}"
        hint = "" if argument.dims == () else "; use jnp.asarray"
        raise TypeError(f"{function}: {name} must be {wanted}, got {type(value).__name__}{hint}")
    if argument.dims is not None:
        _check_shape(function, model, name, jnp.shape(value), argument)
    kind = jnp.result_type(value)
    if argument.kind == "bool" and kind != jnp.bool_:
        raise TypeError(f"{function}: {name} must be bool, got {kind}")
    if argument.kind != "float":
        return value
    if not (number or jnp.issubdtype(kind, jnp.floating)):
        raise TypeError(f"{function}: {name} must be floating point, got {kind}; use astype(float)")
    return of_dtype(model, value)


def check_number(
    function: str,
    name: str,
    value: Any,
    *,
    least: int | None = None,
    positive: bool = False,
    whole: bool = False,
) -> None:
    """Refuse an option that is no number, or none in its range.

    The value of a traced number is unknown, so that only its shape is checked.

    Args:
        function: for the message, as ``name``.
        name: of the option.
        value: of the option.
        least: the least value.
        positive: whether it has to be more than zero.
        whole: whether it has to be an integer, which may not be traced.

    Raises:
        ValueError: for an array, and for a value that is too small, infinite or NaN.
        TypeError: for a value that is no number, or no integer where one is needed.
    """
    where = f"{function}: {name}"
    if np.ndim(value) != 0:
        raise ValueError(f"{where} has shape {np.shape(value)}, expected a number")
    if not (isinstance(value, int | float) or hasattr(value, "dtype")):
        raise TypeError(f"{where} must be a number, got {type(value).__name__}")
    if whole and isinstance(value, Tracer):
        raise TypeError(f"{where} decides shapes, so it cannot be traced; make it static under jit")
    if whole and not jnp.issubdtype(jnp.result_type(value), jnp.integer):
        raise TypeError(f"{where} must be an integer, got {value}")
    if isinstance(value, Tracer):
        return
    number = float(value)
    if least is not None and not number >= least:
        raise ValueError(f"{where} must be at least {least}, got {value}")
    if positive and not number > 0:
        raise ValueError(f"{where} must be positive, got {value}")
    if not np.isfinite(number):
        raise ValueError(f"{where} must be finite, got {value}")


def _shape(argument: ArrayArgument, model: Model) -> str:
    """``" of shape (nv,) = (7,)"``."""
    if argument.dims is None:
        return ""
    return f" of shape {_sizes(argument, model)}"


def _sizes(argument: ArrayArgument, model: Model) -> str:
    """``"(nv,) = (7,)"``, or only the numbers if no size has a name."""
    dims, sizes = _text(argument.dims or ()), _text(argument.expected(model))
    return sizes if dims == sizes else f"{dims} = {sizes}"


def _text(dims: tuple) -> str:
    return "(" + ", ".join(map(str, dims)) + ("," if len(dims) == 1 else "") + ")"


def _check_shape(
    function: str, model: Model, name: str, shape: tuple[int, ...], argument: ArrayArgument
) -> None:
    expected = argument.expected(model)
    same = [isinstance(e, str) or e == n for e, n in zip(expected, shape, strict=False)]
    if len(shape) == len(expected) and all(same):
        return
    if expected == ():
        raise ValueError(f"{function}: {name} has shape {shape}, expected a number")
    hint = ""
    if len(shape) == len(expected) + 1:
        hint = "; functions take one sample, use jax.vmap for a batch"
    raise ValueError(
        f"{function}: {name} has shape {shape}, expected "
        f"{_sizes(argument, model)} for robot {model.topology.name!r}{hint}"
    )
