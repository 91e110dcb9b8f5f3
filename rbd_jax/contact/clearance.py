"""What has to stay apart: links of a robot, obstacles that stand in the world."""

from collections.abc import Mapping, Sequence

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, Float

from ..model import CoordinateModel, Model
from .collision.solids import Solid, shapes_at
from .distances import Distances, PlacedShapes, between, distances_of, numbers, shapes_of
from .scene import Scene


class Clearance(eqx.Module):
    """Pairs of shapes whose distances are to be at least ``margin``.

    Made by :func:`clear_of` and :func:`keep_apart`. Poses and sizes of all shapes are leaves, so
    that obstacles can be mapped over and differentiated. ``control.inverse_kinematics(clear=…)``
    takes it, and ``optimize.clear_of`` and ``optimize.keep_apart`` make constraints of it.
    """

    placed: PlacedShapes
    margin: Float[Array, ""]
    """The least distance (m)."""
    body_names: tuple[str, ...] = eqx.field(static=True)
    """The bodies of the robot that it was made for."""

    @property
    def names(self) -> tuple[tuple[str, str], ...]:
        """The names of both shapes of each pair."""
        return self.placed.names

    def check(self, model: Model) -> None:
        """Raise ValueError for a robot of other bodies."""
        robot = model.robot if isinstance(model, CoordinateModel) else model
        if robot.body_names != self.body_names:
            raise ValueError(
                f"Clearance: its shapes are on the bodies {', '.join(self.body_names)}, but robot "
                f"{model.topology.name!r} has {', '.join(robot.body_names)}"
            )

    def at(self, R: Float[Array, "nb 3 3"], p: Float[Array, "nb 3"]) -> Distances:
        """The distances for poses of the bodies in the world."""
        return Distances(*between(self.placed, R, p), self.names)

    def distances(self, model: Model, q: Float[Array, " nq"]) -> Distances:
        """The distances at a configuration, see :func:`rbd_jax.contact.distances`."""
        self.check(model)
        if isinstance(model, CoordinateModel):
            found = model.coordinate_map(q)
            model, q = found.robot, found.q
        return Distances(*distances_of(model, q, self.placed), self.names)


def clear_of(
    model: Model,
    spheres: Mapping[str, float] | Sequence[Solid],
    obstacles: ArrayLike | Sequence[Solid] = (),
    margin: float | Array = 0.0,
    *,
    apart: Sequence[tuple[str, str]] = (),
) -> Clearance:
    """Every shape of the robot stays clear of every obstacle, and some of its shapes of each other.

    Args:
        model: the robot.
        spheres: the radius (m) of a sphere around the origin of each frame; or shapes of any kind
            at frames, such as those of :func:`solids_of`.
        obstacles: center and radius of spheres in the world, (m, 4) (m), which may be traced; or
            shapes at the frame ``"world"``, such as ``Solid("world", "box", (0.2, 0.3, 0.01), p=p,
            name="table")`` with half lengths.
        margin: the least distance of the surfaces (m).
        apart: names of two shapes each of the robot that stay apart too. A sphere has the name of
            its frame.

    Raises:
        KeyError: for an unknown frame, or a name that no shape has.
        ValueError: if nothing has to stay apart, for two shapes of one name, for a shape of a wrong
            kind or size, or obstacles of another shape.
    """
    own = spheres
    if isinstance(own, Mapping):
        own = [Solid(frame, "sphere", (radius,)) for frame, radius in own.items()]
    others = _obstacles(model, obstacles)
    shapes, m = shapes_at("clear_of", model, own, others), len(others)
    pairs = [(m + i, j) for i in range(len(own)) for j in range(m)] + numbers(shapes, apart)
    if not pairs:
        raise ValueError("clear_of: nothing has to stay apart; give shapes and obstacles, or apart")
    robot = model.robot if isinstance(model, CoordinateModel) else model
    placed = PlacedShapes(shapes, None, tuple(pairs))
    return Clearance(placed, jnp.asarray(margin, model.dtype), robot.body_names)


def keep_apart(
    scene: Scene, pairs: Sequence[tuple[str, str]] | None = None, margin: float | Array = 0.0
) -> Clearance:
    """Shapes of a scene stay apart: links from each other, and from what stands in the world.

    Args:
        scene: the shapes.
        pairs: names of two shapes each; all that may touch if None.
        margin: the least distance (m).

    Raises:
        KeyError: for a name that no shape has. ValueError: if there is no pair.
    """
    placed = shapes_of(scene, pairs)
    if not placed.pairs:
        raise ValueError("keep_apart: no shapes of the scene may touch; give pairs of names")
    return Clearance(placed, jnp.asarray(margin, scene.model.dtype), scene.model.body_names)


def _obstacles(model: Model, obstacles) -> list[Solid]:
    """Obstacles as shapes in the world."""
    if isinstance(obstacles, Sequence) and all(isinstance(x, Solid) for x in obstacles):
        for x in obstacles:
            if x.frame != "world":
                raise ValueError(
                    f"clear_of: obstacle {x.name!r} is at the frame {x.frame!r}, expected 'world'; "
                    f"shapes of the robot stand before the obstacles"
                )
        unnamed = [f"obstacle {k}" if not x.name else x.name for k, x in enumerate(obstacles)]
        return [x._replace(name=name) for x, name in zip(obstacles, unnamed, strict=True)]
    balls = jnp.asarray(obstacles, model.dtype)
    if balls.ndim != 2 or balls.shape[1] != 4:
        raise ValueError(
            f"clear_of: expected obstacles (m, 4), centers and radii of spheres, or a list of "
            f"Solid, got obstacles of shape {balls.shape}"
        )
    return [
        Solid("world", "sphere", (x[3],), p=x[:3], name=f"obstacle {k}")  # type: ignore[arg-type]
        for k, x in enumerate(balls)
    ]
