"""All pairs of shapes at random and degenerate poses: float32 against float64.

All pairs are in one program, and poses are a batch. The inputs are numbers of float32, so that both
precisions get the same ones.
"""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.spatial.transform import Rotation
from support import geoms

import rbd_jax as rbd
from rbd_jax.contact.collision.detection import Pairs, candidates
from rbd_jax.contact.collision.hulls import convex_hull, tables
from rbd_jax.contact.collision.shapes import Shapes
from rbd_jax.contact.collision.support import CONVEX
from rbd_jax.contact.distances import PlacedShapes, between

SIZES = {
    "plane": (0.0, 0.0, 0.0),
    "sphere": (0.1, 0.0, 0.0),
    "capsule": (0.06, 0.2, 0.0),
    "ellipsoid": (0.2, 0.15, 0.1),
    "cylinder": (0.15, 0.2, 0.0),
    "box": (0.2, 0.15, 0.1),
    "mesh": (0.0, 0.0, 0.0),
}
EXTENTS = SIZES | {
    "sphere": (0.1, 0.1, 0.1),
    "capsule": (0.06, 0.06, 0.26),
    "cylinder": (0.15, 0.15, 0.2),
    "mesh": (0.15, 0.12, 0.1),
}
"""How far the shapes reach along their axes (m)."""
HULL = convex_hull(np.float32(geoms.drum(9)))
PAIRS = [("plane", k) for k in CONVEX] + [(a, b) for i, a in enumerate(CONVEX) for b in CONVEX[i:]]
KINDS = [k for pair in PAIRS for k in pair]
SCALES = (0.005, 0.1, 1.0, 10.0, 50.0)
"""The shapes are 1 mm to 10 m large."""
TURNS = Rotation.create_group("O").as_matrix().round()
FAMILIES = (
    "random", "aligned", "turned", "nearly aligned", "edge", "vertex", "far", "centred", "deep",
)  # fmt: skip
DEEP = ("centred", "deep")
"""Where the centers lie close to each other several directions out are nearly alike, and the search
may end with another one than the best."""
PER_FAMILY = 100
EPS = float(np.finfo(np.float32).eps)
NOISE = 128 * EPS
"""The rounding of float32 as a fraction of the shapes: the search itself allows for half of it."""
MARGIN = 0.02


class Poses(NamedTuple):
    scale: np.ndarray
    R: np.ndarray
    p: np.ndarray
    family: np.ndarray

    @property
    def size(self) -> np.ndarray:
        """A length of the order of the shapes, or of the distance from the origin."""
        far = np.abs(self.p).max(axis=2).reshape(len(self.p), -1, 2).max(axis=2)
        return 0.4 * self.scale[:, None].astype(float) + far


def one_pose(rng, family: str, extents):
    """Two orientations, the place of the second shape, and of the first, for shapes of scale 1."""
    R1, R2 = TURNS[rng.integers(24, size=2)]
    reach = [np.abs(R) @ x for R, x in zip((R1, R2), extents, strict=True)]
    sum_, difference = reach[0] + reach[1], reach[0] - reach[1]
    axis = rng.integers(3)
    any_ = rng.uniform(-1, 1, size=3) * sum_
    d = np.choose(rng.integers(4, size=3), [0 * sum_, sum_, difference, any_])
    d[axis] = sum_[axis] + rng.choice([0, 0, 1e-4, -1e-4, -0.02, -0.05, 0.05])
    origin = np.zeros(3)
    if family == "random":
        R1, R2 = Rotation.random(2, random_state=rng.integers(1 << 31)).as_matrix()
        d = rng.normal(size=3) * rng.choice([0.1, 0.2])
    elif family == "centred":
        d = np.array([0, 0, rng.choice([0, 0.01, 1e-7])])
    elif family == "deep":
        d = 0.02 * rng.normal(size=3)
    elif family == "nearly aligned":
        R2 = Rotation.from_rotvec(rng.normal(size=3) * 10 ** rng.uniform(-8, -1)).as_matrix() @ R2
    elif family == "edge":
        turn = np.eye(3)[rng.integers(3)] * rng.choice([1, -1]) * np.pi / 4
        R2 = Rotation.from_rotvec(turn).as_matrix() @ R2
    elif family == "vertex":
        R2 = Rotation.align_vectors([[0, 0, 1]], [[1, 1, 1]])[0].as_matrix() @ R2
    elif family == "far":
        origin = 50 * rng.normal(size=3)
    if family in ("edge", "vertex"):
        d[axis] = sum_[axis] * rng.choice([1, 1.2, 0.9])
    if family == "turned" or (family not in ("random", "aligned") and rng.random() < 0.5):
        Q = Rotation.random(random_state=rng.integers(1 << 31)).as_matrix()
        R1, R2, d = Q @ R1, Q @ R2, Q @ d
    return R1, R2, origin + d, origin


def poses(seed: int = 0) -> Poses:
    rng, n = np.random.default_rng(seed), PER_FAMILY * len(FAMILIES)
    family, scale = np.arange(n) % len(FAMILIES), rng.choice(SCALES, n)
    R, p = np.empty((n, len(KINDS), 3, 3)), np.empty((n, len(KINDS), 3))
    for k in range(n):
        for i, pair in enumerate(PAIRS):
            extents = [EXTENTS[x] for x in pair]
            R1, R2, p2, p1 = one_pose(rng, FAMILIES[family[k]], extents)
            R[k, 2 * i], R[k, 2 * i + 1] = R1, R2
            p[k, 2 * i], p[k, 2 * i + 1] = p1 * scale[k], p2 * scale[k]
    return Poses(np.float32(scale), np.float32(R), np.float32(p), family)


def orthonormal(R: np.ndarray) -> np.ndarray:
    """The rotations next to matrices that were rounded."""
    R = R.astype(float)
    for _ in range(3):
        R = R @ (1.5 * np.eye(3) - 0.5 * np.swapaxes(R, -1, -2) @ R)
    return R


NUMBERS = tuple((2 * i, 2 * i + 1) for i in range(len(PAIRS)))


def shapes_of(dtype) -> Shapes:
    n, hull = len(KINDS), tables([HULL])
    return Shapes(
        R=jnp.tile(jnp.eye(3, dtype=dtype), (n, 1, 1)),
        p=jnp.zeros((n, 3), dtype),
        size=jnp.array(np.float32([SIZES[k] for k in KINDS]), dtype),
        corners=jnp.array(np.float32(hull.corners), dtype),
        kinds=tuple(KINDS),
        bodies=tuple(range(n)),
        parts=tuple(range(n)),
        names=tuple(f"{k}:{i}" for i, k in enumerate(KINDS)),
        faces=hull.faces,
        hulls=tuple(0 if k == "mesh" else -1 for k in KINDS),
        polygons=hull.polygons,
    )


def scaled(shapes: Shapes, scale) -> Shapes:
    both = lambda s: (s.size, s.corners)  # noqa: E731
    return eqx.tree_at(both, shapes, tuple(scale * x for x in both(shapes)))


class Found(NamedTuple):
    """Of each pose and pair."""

    distance: np.ndarray
    ends: np.ndarray
    normal: np.ndarray


class Touching(NamedTuple):
    """The contact points of each pose, far away for those that do not act."""

    depth: np.ndarray
    place: np.ndarray


def with_slopes(function, kind, dtype, x: Poses):
    """Values at all poses, and their derivatives along one change of all inputs."""

    @jax.jit
    @jax.vmap
    def both(*x):
        return jax.jvp(rbd.lanes(function), x, tuple(0.3 * y for y in x))

    R = orthonormal(x.R) if dtype == np.float64 else x.R
    with jax.numpy_dtype_promotion("standard"):
        found = both(*(jnp.asarray(y, dtype) for y in (x.scale, R, x.p)))
    assert all(y.dtype == dtype for y in found[0])
    return tuple(kind(*(np.asarray(y, float) for y in z)) for z in found)


def found_in(dtype, x: Poses) -> tuple[Found, Found]:
    shapes = shapes_of(dtype)

    def distances(scale, R, p):
        return between(PlacedShapes(scaled(shapes, scale), None, NUMBERS), R, p)

    return with_slopes(distances, Found, dtype, x)


def touching_in(dtype, x: Poses) -> tuple[Touching, Touching, np.ndarray]:
    """The contact points, their slopes, and the pair of each."""
    shapes, n = shapes_of(dtype), len(PAIRS)
    zero = lambda *k: jnp.zeros((n, *k), dtype)  # noqa: E731
    owner = np.empty(0, int)

    def contacts(scale, R, p):
        nonlocal owner
        margin = jnp.broadcast_to(MARGIN * scale, (n,))
        pairs = Pairs(zero(5), zero(2), zero(2), zero(5), margin, NUMBERS, (3,) * n)
        world = jnp.eye(3, dtype=dtype), jnp.zeros((3,), dtype)
        R_all, p_all = (jnp.concatenate([y, w[None]]) for y, w in zip((R, p), world, strict=True))
        (touch,) = candidates(scaled(shapes, scale), pairs, None, R_all, p_all)
        owner = np.array(touch.pair)
        return touch.points.distance, touch.points.point

    value, slopes = with_slopes(contacts, Touching, dtype, x)
    return value, slopes, owner


def in_both(function):
    x = poses()
    with jax.enable_x64(True):
        return x, function(np.float64, x), function(np.float32, x)


@pytest.fixture(scope="module")
def found():
    return in_both(found_in)


def test_values_and_slopes_are_finite(found):
    _, double, single = found
    assert all(np.isfinite(y).all() for z in (*double, *single) for y in z)


@pytest.mark.parametrize("precision", ["float64", "float32"])
def test_the_points_realize_the_distance(found, precision):
    """The ends are as far apart along the normal as the distance states."""
    x, *every = found
    y = every[precision == "float32"][0]
    noise = (NOISE if precision == "float32" else 1e-9) * x.size
    gap = y.ends[:, :, 1] - y.ends[:, :, 0] - y.distance[..., None] * y.normal
    assert (np.abs(gap).max(axis=2) < noise).all()


def test_distances_of_float32_are_those_of_float64(found):
    x, (double, _), (single, _) = found
    wrong = np.abs(single.distance - double.distance) > NOISE * x.size
    deep = np.isin(x.family, [FAMILIES.index(k) for k in DEEP])
    assert wrong[~deep].mean() < 5e-4 and wrong[deep].mean() < 0.01
    assert (np.abs(single.distance - double.distance) < 0.3 * x.size).all()


@pytest.mark.slow
@pytest.mark.float64
def test_deepest_contacts_are_those_of_float64_off_ties():
    """Pairs at random poses. Where faces are parallel, rounding chooses among alike contacts."""
    x, *both = in_both(touching_in)
    assert all(np.isfinite(y).all() for *z, _ in both for w in z for y in w)
    own, wrong = np.flatnonzero(x.family == FAMILIES.index("random")), 0
    for k in own:
        for i in range(len(PAIRS)):
            margin = MARGIN * x.scale[k]
            d, e = (y.depth[k, (owner == i) & (y.depth[k] < margin)] for y, _, owner in both)
            low, same = (min(y, default=margin) for y in (d, e))
            wrong += abs(low - same) > NOISE * x.size[k, i] or len(d) != len(e)
    assert wrong < 1e-3 * len(own) * len(PAIRS)
