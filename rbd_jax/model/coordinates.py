"""Robots in fewer coordinates than they have joints: mimic joints, gears, the user's own.

With the maps of all laws together (:mod:`rbd_jax.model.laws`), a robot of driven joints has

    q = φ(y),   v = Φ ẏ,   a = Φ ÿ + Φ̇ ẏ,   τ_y = Φᵀ τ,   M_y = Φᵀ M Φ

where y are the coordinates of all other joints and of new ones. Joints that are not driven keep
their coordinates, so that Φ is a few numbers beside a unit matrix.
"""

import dataclasses
from collections.abc import Sequence
from functools import cached_property, lru_cache
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from ._model import Model
from .functions import as_module
from .laws import Function, Law
from .rows import merge_rows, take_rows
from .topology import NV, Topology, unknown

LIMITS = {
    # leaves that are laid out as the independent coordinates, and what says that there is no limit
    "position_lower": -np.inf,
    "position_upper": np.inf,
    "velocity_limit": np.inf,
    "effort_limit": np.inf,
}


class CoordinateModel(Model):
    """A robot some of whose joints are driven by laws; made by :func:`with_coordinates`.

    ``q`` and ``v`` of such a robot, and so ``nq`` and ``nv``, are those of the other joints and of
    new coordinates, the *independent* ones. Inertias, placements, armature, damping and springs are
    those of all joints, as in the robot itself. Limits are those of the independent coordinates.
    """

    position_lower: Float[jax.Array, "*b n_q"]
    position_upper: Float[jax.Array, "*b n_q"]
    velocity_limit: Float[jax.Array, "*b n_v"]
    effort_limit: Float[jax.Array, "*b n_v"]
    laws: tuple[Law, ...] = ()
    """How the driven joints move. The parameters of the laws are leaves."""
    independent: Topology = eqx.field(static=True, default=None)  # type: ignore[assignment]
    """The joints and coordinates whose positions are q."""

    @property
    def space(self) -> Topology:
        """The joints and coordinates whose positions are q."""
        return self.independent

    @property
    def places(self) -> "Places":
        """Where the numbers of the robot and of the independent coordinates live."""
        named = tuple((law.driven.joint_names, law.by) for law in self.laws)
        return places_of(self.topology, self.independent, named)

    @property
    def robot(self) -> Model:
        """The robot with all its joints independent. Driven joints have no limits."""
        places = self.places
        leaves = {f.name: getattr(self, f.name) for f in dataclasses.fields(Model)}
        for name, missing in LIMITS.items():
            x, of_q = leaves[name], name.startswith("position")
            ours, theirs = places.kept_q if of_q else places.kept_v
            n = self.topology.nq if of_q else self.topology.nv
            full = jnp.full((*x.shape[:-1], n), missing, self.dtype)
            leaves[name] = full.at[..., ours].set(x[..., theirs])
        return Model(**leaves)

    def coordinate_map(self, y: Float[jax.Array, " nq"]) -> "CoordinateMap":
        """The map from the coordinates y to all joints."""
        return CoordinateMap(self, y)

    def q_slice(self, joint: str) -> slice:
        """Where the named joint or coordinate lives in q; KeyError if it is driven or unknown."""
        self._check_independent(joint)
        return self.space.q_slice(joint)

    def v_slice(self, joint: str) -> slice:
        """Where the named joint or coordinate lives in v; KeyError if it is driven or unknown."""
        self._check_independent(joint)
        return self.space.v_slice(joint)

    def _check_independent(self, joint: str) -> None:
        for law in self.laws:
            if joint in law.driven.joint_names:
                raise KeyError(
                    f"robot {self.topology.name!r}: joint {joint!r} is driven by "
                    f"{', '.join(law.by)} and has no coordinates of its own"
                )


class _Law(NamedTuple):
    """Rows of the driven joints in q and v of the robot, and places of u in y and ẏ."""

    q: np.ndarray
    v: np.ndarray
    by_q: np.ndarray
    by_v: np.ndarray


class Places(NamedTuple):
    """Where numbers live: rows of the robot, and places of the independent coordinates."""

    kept_q: tuple[np.ndarray, np.ndarray]
    """Rows of q that are coordinates, and their places in y."""
    kept_v: tuple[np.ndarray, np.ndarray]
    """The same in v and ẏ."""
    laws: tuple[_Law, ...]


@lru_cache(maxsize=256)
def places_of(topology: Topology, space: Topology, named: tuple) -> Places:
    """The places for laws that are named by their driven joints and by what drives them."""

    def rows(of: Topology, starts: str, names: Sequence[str]) -> np.ndarray:
        at, index = getattr(of, starts), [of.joint_names.index(n) for n in names]
        parts = [np.arange(at[i], at[i + 1]) for i in index]
        return np.concatenate([np.zeros(0, int), *parts]).astype(np.int32)

    kept = [n for n in space.joint_names if n in topology.joint_names]
    kept_q, kept_v = (
        (rows(topology, starts, kept), rows(space, starts, kept))
        for starts in ("q_starts", "v_starts")
    )
    laws = [
        _Law(
            rows(topology, "q_starts", driven), rows(topology, "v_starts", driven),
            rows(space, "q_starts", by), rows(space, "v_starts", by),
        )
        for driven, by in named
    ]  # fmt: skip
    return Places(kept_q, kept_v, tuple(laws))


class CoordinateMap:
    """The map from the independent coordinates y to all joints: ``q = φ(y)`` and the matrix Φ."""

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


def independent_dofs(model: Model) -> tuple[np.ndarray, np.ndarray]:
    """Degrees of freedom of the robot that are independent, and their places in v."""
    if isinstance(model, CoordinateModel):
        return model.places.kept_v
    return np.arange(model.nv), np.arange(model.nv)


def with_coordinates(
    model: Model,
    function: Any,
    joints: Sequence[str],
    by: Sequence[str],
) -> CoordinateModel:
    """The robot whose ``joints`` move as a function of other joints or of new coordinates.

    Source: Kim (36) and (40) with S(q) and Ṡ; ``q = φ(y), v = Φ ẏ, a = Φ ÿ + Φ̇ ẏ, τ_y = Φᵀ τ``.
    All algorithms, rules and integrators run on the result, in the coordinates that are left. The
    order of q is that of the joints in the robot, then new coordinates. More laws can be added by
    further calls.

    Args:
        model: the robot.
        function: ``u -> q``: from the positions of ``by`` (rad, m) to the coordinates of
            ``joints``, one joint after the other. A function of JAX; or an equinox module, whose
            arrays become leaves of the model. It must be smooth where the robot moves.
        joints: names of the driven joints. They may be of any kind; a free joint becomes a joint
            with the placement and the motion subspace of your choice.
        by: names of joints of one degree of freedom that drive, or new names for coordinates that
            are no joints, such as the angle of a motor.

    Raises:
        KeyError: for an unknown joint. ValueError: if a joint is driven twice, drives itself, or
            drives and is driven; or if the function returns the wrong number of coordinates.
    """
    topology = model.topology
    _check_names(model, joints, by)
    driven = topology.joints_alone(tuple(topology.joint_names.index(j) for j in joints))
    law = Function(function=as_module(function), driven=driven, by=tuple(by))
    u = jax.ShapeDtypeStruct((len(by),), model.dtype)
    given = eqx.filter_eval_shape(law.position, u)
    if getattr(given, "shape", None) != (driven.nq,):
        raise ValueError(
            f"with_coordinates: the function returned {given}, expected the {driven.nq} "
            f"coordinates of {tuple(joints)}"
        )
    return drive(model, law)


def drive(model: Model, law: Law) -> CoordinateModel:
    """The robot with one more law."""
    topology, space = model.topology, model.space
    laws = (*(model.laws if isinstance(model, CoordinateModel) else ()), law)
    gone = {name for law in laws for name in law.driven.joint_names}
    kept = tuple(i for i, name in enumerate(topology.joint_names) if name not in gone)
    new = [n for n in space.joint_names if n not in topology.joint_names]
    new += [n for n in law.by if n not in (*topology.joint_names, *new)]
    independent = topology.joints_alone(kept, tuple(new))
    leaves = {f.name: getattr(model, f.name) for f in dataclasses.fields(Model)}
    for name, missing in LIMITS.items():
        starts = "q_starts" if name.startswith("position") else "v_starts"
        places, at, parts = {n: i for i, n in enumerate(space.joint_names)}, leaves[name], []
        for joint in independent.joint_names:
            if joint in places:
                first, last = getattr(space, starts)[places[joint] :][:2]
                parts.append(at[..., int(first) : int(last)])
            else:
                parts.append(jnp.full((*at.shape[:-1], 1), missing, model.dtype))
        leaves[name] = jnp.concatenate([at[..., :0], *parts], axis=-1)
    return CoordinateModel(**leaves, laws=laws, independent=independent)


def _check_names(model: Model, joints: Sequence[str], by: Sequence[str]) -> None:
    topology = model.topology
    laws = model.laws if isinstance(model, CoordinateModel) else ()
    driven = {name for law in laws for name in law.driven.joint_names}
    several = {n for n, k in zip(topology.joint_names, topology.kinds, strict=True) if NV[k] > 1}
    several |= {name for name, _, _ in topology.composites}
    for name in joints:
        if name not in topology.joint_names:
            raise KeyError(unknown("joint", name, topology.joint_names, topology.name))
    names = [*joints, *by]
    wrong = {
        "is named twice": {n for n in names if names.count(n) > 1},
        "is driven already": driven & {*joints},
        "drives others, so that it cannot be driven": {
            n for law in laws for n in law.by if n in joints
        },
        "is driven, so that it cannot drive; let the function depend on what drives it": driven
        & {*by},
        "has several degrees of freedom, so that it cannot drive": several & {*by},
    }
    for problem, found in wrong.items():
        for name in sorted(found):
            raise ValueError(
                f"with_coordinates: joint {name!r} of robot {topology.name!r} {problem}"
            )
