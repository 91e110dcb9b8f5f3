"""A robot with driven joints as a robot of all joints, and results back in its coordinates."""

import dataclasses
import inspect
from collections.abc import Callable
from functools import cached_property, wraps
from typing import TypeVar

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from ._model import Model
from .arguments import takes_coordinates
from .coordinates import LIMITS, CoordinateModel
from .rows import merge_rows, take_rows

F = TypeVar("F", bound=Callable)


class Expansion:
    """A robot at the coordinates y: the configuration of all joints, and the map Φ."""

    def __init__(self, model: Model, y: Float[Array, " nq_y"]):
        assert isinstance(model, CoordinateModel)
        self.model, self.y, self.places = model, y, model.places
        us = [take_rows(y, law.by_q) for law in self.places.laws]
        self.laws = list(zip(model.laws, self.places.laws, us, strict=True))

    @cached_property
    def robot(self) -> Model:
        """The robot with all its joints independent, for algorithms; its limits are not set."""
        model, topology = self.model, self.model.topology
        leaves = {f.name: getattr(model, f.name) for f in dataclasses.fields(Model)}
        for name, missing in LIMITS.items():
            n = topology.nq if name.startswith("position") else topology.nv
            leaves[name] = jnp.full((n,), missing, model.dtype)
        return Model(**leaves)

    @cached_property
    def q(self) -> Float[Array, " nq"]:
        """``φ(y)``, the configuration of all joints."""
        ours, theirs = self.places.kept_q
        parts = [(ours, take_rows(self.y, theirs))]
        for law, at, u in self.laws:
            position = law.position(u)
            if jnp.shape(position) != at.q.shape:
                raise ValueError(
                    f"robot {self.model.topology.name!r}: the law of {law.driven.joint_names} gave "
                    f"coordinates of shape {jnp.shape(position)}, expected {at.q.shape}"
                )
            parts.append((at.q, position))
        return merge_rows(parts, self.y)

    @cached_property
    def entries(self) -> list[Float[Array, " entries"]]:
        """The entries of Φ of each law."""
        return [law.entries(u) for law, _, u in self.laws]

    @property
    def pattern(self) -> Bool[np.ndarray, "nv nv_y"]:
        """Where Φ may differ from zero."""
        found = np.zeros((self.model.topology.nv, self.model.nv), dtype=bool)
        found[self.places.kept_v] = True
        for law, at, _ in self.laws:
            rows, columns = map(np.array, law.pattern)
            found[at.v[rows], at.by_v[columns]] = True
        return found

    def velocity(self, x: Float[Array, "nv_y *k"]) -> Float[Array, "nv *k"]:
        """``Φ x``."""
        ours, theirs = self.places.kept_v
        parts = [(ours, take_rows(x, theirs))]
        for (law, at, _), entries in zip(self.laws, self.entries, strict=True):
            rows, columns = map(np.array, law.pattern)
            terms = _times(entries, x[at.by_v[columns]])
            if len(rows) != law.driven.nv:
                terms = terms.reshape(law.driven.nv, -1, *x.shape[1:]).sum(axis=1)
            parts.append((at.v, terms))
        return merge_rows(parts, x)

    def acceleration(self, v: Float[Array, " nv_y"], a: Float[Array, " nv_y"]) -> Array:
        """``Φ a + Φ̇ v``."""
        full = self.velocity(a)
        for law, at, u in self.laws:
            if not law.linear:
                full = full.at[at.v].add(law.bias(u, take_rows(v, at.by_v)))
        return full

    def project(self, x: Float[Array, "nv *k"]) -> Float[Array, "nv_y *k"]:
        """``Φᵀ x``."""
        ours, theirs = self.places.kept_v
        new = np.setdiff1d(np.arange(self.model.nv), theirs)
        zeros = jnp.zeros((len(new), *x.shape[1:]), x.dtype)
        y = merge_rows([(theirs, take_rows(x, ours)), (new, zeros)], x)
        for (law, at, _), entries in zip(self.laws, self.entries, strict=True):
            rows, columns = map(np.array, law.pattern)
            y = y.at[at.by_v[columns]].add(_times(entries, x[at.v[rows]]))
        return y

    def project_axes(self, x: Array, axes: tuple[int, ...]) -> Array:
        """``Φᵀ`` along each of some axes."""
        for axis in axes:
            x = jnp.moveaxis(self.project(jnp.moveaxis(x, axis, 0)), 0, axis)
        return x


def _times(entries: Array, rows: Array) -> Array:
    return entries.reshape(-1, *[1] * (rows.ndim - 1)) * rows


def projected(*axes: int) -> Callable[[F], F]:
    """Let a function of a plain robot take robots with driven joints too, by :class:`Expansion`.

    Its arguments ``q``, ``v`` and ``a`` are expanded to all joints. Its result is projected along
    ``axes``, those that belong to degrees of freedom as a torque does.
    """

    def decorate(function: F) -> F:
        signature = inspect.signature(function)

        @wraps(function)
        def wrapper(model: Model, *args, **kwargs):
            if not isinstance(model, CoordinateModel):
                return function(model, *args, **kwargs)
            given = signature.bind(model, *args, **kwargs).arguments
            expansion = Expansion(model, given["q"])
            v, a = given.get("v"), given.get("a")
            if a is not None:
                given["a"] = expansion.acceleration(jnp.zeros_like(a) if v is None else v, a)
            if v is not None:
                given["v"] = expansion.velocity(v)
            result = function(**(given | {"model": expansion.robot, "q": expansion.q}))
            return expansion.project_axes(result, axes) if axes else result

        return takes_coordinates(wrapper)  # type: ignore[return-value]

    return decorate
