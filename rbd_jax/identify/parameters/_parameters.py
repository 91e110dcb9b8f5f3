"""Which parameters of a robot to learn, as one unconstrained vector, and the prior on them."""

from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Float

from ...model import Model
from ...model.topology import unknown
from ...spatial import inertia, so3
from ._charts import (
    Chart,
    Direction,
    InEllipsoid,
    LogCholesky,
    PoseChart,
    Positive,
    Real,
    check_inside,
)
from ._physical import entropic_residuals, entropic_root, upper_cholesky

_DOF = ("armature", "damping", "friction")
_BODY = ("inertia", "axis", "pitch", "placement")
LEAVES = (*_BODY, *_DOF, "gravity", "frame")


class Block(eqx.Module):
    """Rows of one leaf of the model, and their chart. :func:`select` makes it."""

    chart: Chart
    leaf: str = eqx.field(static=True)
    rows: tuple[int, ...] = eqx.field(static=True)
    names: tuple[str, ...] = eqx.field(static=True)
    """One name for each coordinate: ``inertia:upper_arm:3``, ``damping:elbow``."""

    def coordinates(self, model: Model) -> Float[Array, " k"]:
        """The coordinates of the model's values."""
        return self.chart.coordinates(_get(model, self.leaf, self.rows)).reshape(-1)

    def put(self, model: Model, z: Float[Array, " k"]) -> Model:
        """The model with the values that have the coordinates z."""
        return _set(model, self.leaf, self.rows, self.chart.value(z.reshape(len(self.rows), -1)))


class Parameters(eqx.Module):
    """The unknown parameters of a robot as one vector z. The rest stays as in ``nominal``.

    ``model(z)`` and ``coordinates(model)`` are inverse to each other. Their derivatives are those
    of autodiff.
    """

    nominal: Model
    blocks: tuple[Block, ...]

    def __init__(self, nominal: Model, *blocks: Block):
        taken: set[tuple[str, int]] = set()
        for block in blocks:
            rows = {(block.leaf, row) for row in block.rows}
            if taken & rows:
                raise ValueError(
                    f"Parameters: two blocks contain the same rows {sorted(taken & rows)}"
                )
            taken |= rows
        self.nominal, self.blocks = nominal, blocks

    @property
    def names(self) -> tuple[str, ...]:
        """One name for each entry of z."""
        return tuple(name for block in self.blocks for name in block.names)

    @property
    def start(self) -> Float[Array, " k"]:
        """The coordinates of the nominal robot."""
        return self.coordinates(self.nominal)

    def coordinates(self, model: Model) -> Float[Array, " k"]:
        """The vector z of a robot."""
        parts = [block.coordinates(model) for block in self.blocks]
        return jnp.concatenate([jnp.zeros((0,), model.dtype), *parts])

    def model(self, z: Array) -> Model:
        """The robot with the vector z."""
        if z.shape != (len(self.names),):
            hint = "; use jax.vmap for a batch" if z.ndim == 2 else ""
            raise ValueError(
                f"Parameters: z has shape {z.shape}, expected ({len(self.names)},){hint}"
            )
        model, at = self.nominal, 0
        for block in self.blocks:
            n = len(block.names)
            model, at = block.put(model, z[at : at + n]), at + n
        return model


def select(
    model: Model,
    leaf: str,
    names: Sequence[str] | str | None = None,
    chart: Chart | type | None = None,
) -> Block:
    """Select a part of the robot to learn.

    Args:
        model: the nominal robot. Charts that have a center are centered at its values.
        leaf: ``"inertia"``, ``"placement"`` (pose of the joint frame in the parent body),
            ``"axis"``, ``"pitch"``, ``"armature"``, ``"damping"``, ``"friction"``, ``"gravity"`` or
            ``"frame"`` (pose of a frame in its body).
        names: names of bodies or joints (joint i moves body i), or of frames for ``"frame"``. None
            selects all but massless bodies and joints that have no such parameter.
        chart: a chart, or the class of a chart. The default is :class:`LogCholesky` for inertias,
            :class:`PoseChart` for placements and frames, :class:`Direction` for axes,
            :class:`Positive` for armature, damping and friction, and :class:`Real` for pitch and
            gravity.

    Raises:
        ValueError: for an unknown leaf, or a nominal value outside the chart.
        KeyError: for an unknown name.
    """
    if leaf not in LEAVES:
        raise ValueError(f"select: leaf must be one of {LEAVES}, got {leaf!r}")
    rows, row_names = _rows_of(model, leaf, [names] if isinstance(names, str) else names)
    value = _get(model, leaf, rows)
    if chart is None or isinstance(chart, type):
        chart = _default_chart(leaf, chart, value)
    check_inside(chart, value, row_names, leaf)
    k = jax.eval_shape(chart.coordinates, value).shape[1]
    labels = [""] if k == 1 else [f":{i}" for i in range(k)]
    every = tuple(f"{leaf}:{name}{label}" for name in row_names for label in labels)
    return Block(chart, leaf, rows, every)


def _default_chart(leaf: str, kind: type | None, value) -> Chart:
    if kind is None:
        if leaf == "inertia":
            kind = LogCholesky
        elif leaf in ("placement", "frame"):
            kind = PoseChart
        else:
            kind = Direction if leaf == "axis" else Positive if leaf in _DOF else Real
    if kind is LogCholesky:
        return LogCholesky(upper_cholesky(inertia.pseudo(value)))
    return kind(*value) if kind is PoseChart else kind(value) if kind is Direction else kind()


def _rows_of(
    model: Model, leaf: str, names: Sequence[str] | None
) -> tuple[tuple[int, ...], tuple[str, ...]]:
    topology = model.topology
    if leaf == "gravity":
        return (0,), ("world",)
    if leaf == "frame":
        wanted = topology.frame_names if names is None else names
        return tuple(topology.frame_index(n) for n in wanted), tuple(wanted)
    bodies = [i for i in range(topology.nb) if _has(model, leaf, i)]
    if names is not None:
        bodies = [_body(model, name) for name in names]
        bad = [topology.joint_names[i] for i in bodies if not _has(model, leaf, i)]
        if bad and leaf != "inertia":
            raise ValueError(f"select: joints {bad} have no {leaf}")
    labels = topology.body_names if leaf == "inertia" else topology.joint_names
    if leaf not in _DOF:
        return tuple(bodies), tuple(labels[i] for i in bodies)
    spans = [range(int(topology.v_starts[i]), int(topology.v_starts[i + 1])) for i in bodies]
    rows = tuple(row for span in spans for row in span)
    found = []
    for i, span in zip(bodies, spans, strict=True):
        found += [labels[i] if len(span) == 1 else f"{labels[i]}[{k}]" for k in range(len(span))]
    return rows, tuple(found)


def _has(model: Model, leaf: str, body: int) -> bool:
    """Whether the body has this parameter, so that a selection without names includes it."""
    kind = model.topology.kinds[body]
    if leaf == "inertia":
        traced = isinstance(model.inertia, Tracer)
        return traced or bool(np.any(np.asarray(model.inertia)[body] != 0))
    if leaf in _DOF:
        return kind != "free"
    wanted = {"axis": ("revolute", "prismatic", "helical"), "pitch": ("helical",)}
    return leaf not in wanted or kind in wanted[leaf]


def _body(model: Model, name: str) -> int:
    for names in (model.body_names, model.joint_names):
        if name in names:
            return names.index(name)
    known = (*model.body_names, *model.joint_names)
    raise KeyError(unknown("body or joint", name, known, model.topology.name))


def _get(model: Model, leaf: str, rows: tuple[int, ...]) -> Any:
    index = np.array(rows, dtype=np.int32)
    if leaf == "gravity":
        return model.gravity[None]
    if leaf in ("placement", "frame"):
        R, p = (getattr(model, f"{leaf}_{x}")[index] for x in "Rp")
        return so3.orthonormalize(R), p
    return getattr(model, leaf)[index]


def _set(model: Model, leaf: str, rows: tuple[int, ...], value) -> Model:
    index = np.array(rows, dtype=np.int32)
    if leaf == "gravity":
        return eqx.tree_at(lambda m: m.gravity, model, value[0])
    if leaf in ("placement", "frame"):
        names = [f"{leaf}_{x}" for x in "Rp"]
        where = lambda m: [getattr(m, n) for n in names]  # noqa: E731
        new = [getattr(model, n).at[index].set(x) for n, x in zip(names, value, strict=True)]
        return eqx.tree_at(where, model, new)
    old = getattr(model, leaf)
    new = old.at[index].set(value.reshape(len(rows), *old.shape[1:]))
    return eqx.tree_at(lambda m: getattr(m, leaf), model, new)


def prior_weight(prior: float, dtype) -> float:
    """The weight of the prior. It is positive, so that it determines what the data do not."""
    return max(float(prior), 1e-6, float(jnp.finfo(dtype).eps) ** 0.5)


def prior_residuals(
    parameters: Parameters, z: Float[Array, " k"], model: Model, weight: float
) -> Float[Array, " m"]:
    """Residuals of the prior: ``√weight`` times the entropic distances from the nominal robot.

    They cover all learned inertias and positive numbers. A weight w expects them to differ from
    their nominal values by w⁻¹ᐟ² in relative terms. The coordinates of all other charts have the
    least weight, so that of all robots that fit equally well the nearest one to the nominal robot
    is the best.
    """
    parts, at = [jnp.zeros((0,), model.dtype)], 0
    for block in parameters.blocks:
        rows, here = np.array(block.rows, np.int32), slice(at, at := at + len(block.names))
        if isinstance(block.chart, (LogCholesky, InEllipsoid)):
            U0 = upper_cholesky(inertia.pseudo(parameters.nominal.inertia[rows]))
            parts.append(weight**0.5 * entropic_residuals(U0, model.inertia[rows]).reshape(-1))
        elif isinstance(block.chart, Positive):
            old, new = (getattr(m, block.leaf)[rows] for m in (parameters.nominal, model))
            parts.append(weight**0.5 * entropic_root(0.5 * jnp.log(new / old)))
        else:
            least = prior_weight(0.0, z.dtype)
            parts.append(least**0.5 * (z[here] - block.coordinates(parameters.nominal)))
    return jnp.concatenate(parts)
