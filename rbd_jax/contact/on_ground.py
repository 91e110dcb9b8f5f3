"""Scenes of robots that have no MJCF file: a robot with contact shapes on the ground."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..model import Affine, CoordinateModel, Model, neutral
from ..model.arguments import check_number
from .actuators import Actuators, motors
from .collision.detection import Pairs
from .collision.many import CONVEX_PAIRS
from .collision.primitives import PAIRS
from .collision.shapes import Shapes
from .collision.solids import Solid, shapes_at
from .constraints import Constraints
from .kinds.ball_limits import BallLimits
from .kinds.contacts import Contacts
from .kinds.joint_equalities import JointEqualities
from .kinds.joint_friction import JointFriction
from .kinds.joint_limits import JointLimits
from .kinds.welds import Welds
from .scene import Scene
from .solver.force_laws import SolverParams
from .weights import Parts

ONE_DOF = ("revolute", "prismatic", "helical")


class Surface(NamedTuple):
    """Contact parameters of a surface. The defaults are MuJoCo's."""

    friction: tuple[float, ...] = (1.0, 0.005, 0.0001)
    """Coefficients of sliding (1), spinning (m) and rolling friction (m)."""
    solref: tuple[float, float] = (0.02, 1.0)
    """As in :class:`SolverParams`."""
    solimp: tuple[float, ...] = (0.9, 0.95, 0.001, 0.5, 2.0)
    """As in :class:`SolverParams`."""
    margin: float = 0.0
    """Distance at which a contact begins to act (m)."""
    condim: int = 3
    """Number of rows: 1 without friction, 3 with sliding, 4 with spinning, 6 with rolling too."""


USUAL = Surface()
"""A surface with MuJoCo's defaults."""


def scene_on_ground(
    model: Model,
    solids: Sequence[Solid],
    *,
    surface: Surface = USUAL,
    actuators: Actuators | None = None,
    dt: float = 0.002,
    touching: Sequence[tuple[str, str]] = (),
    terrain: Callable[[Array], Array] | None = None,
    elliptic: bool = True,
    impratio: float = 1.0,
    integrator: str = "implicitfast",
    reference: Float[Array, " nq"] | None = None,
    mimics: bool = True,
) -> Scene:
    """Make a scene of any robot, with shapes that touch the ground ``z = 0`` or a terrain.

    The robot's position limits, dry friction and damping act as MuJoCo's do, with MuJoCo's default
    solver parameters. Mimic joints follow their targets by soft joint equalities, as in MuJoCo: the
    robot of the scene, ``scene.model``, has all joints in its q and v, the mimic joints too. Mimic
    joints of a robot that was loaded with ``mimic="independent"`` keep the limits of the file.
    Other mimic joints get the limits of their targets, times the multiplier and with the offset.

    Source: MuJoCo's documentation, "Computation", constraint model.

    Args:
        model: the robot.
        solids: shapes at its frames, see :func:`points`, :func:`corners` and :func:`solids_of`.
        surface: the parameters of all contacts, which become leaves of the scene.
        actuators: if None, motors at all joints of one degree of freedom but mimic joints.
        dt: time step (s).
        touching: names of two solids that may touch each other. Solids at frames of the fixed base
            stand still, and may be touched by others.
        terrain: a height function ``(x, y) -> z`` (m), a pytree if it has parameters.
        elliptic: elliptic friction cones, else pyramidal.
        impratio: impedance of friction over impedance of the normal direction.
        integrator: ``"implicitfast"``, ``"euler"`` or ``"rk4"``.
        reference: the configuration of ``scene.model`` in which the inverse weights are computed;
            the neutral one if None.
        mimics: whether mimic joints follow their targets, also those of a robot that was loaded
            with ``mimic="independent"``.

    Raises:
        TypeError: if joints of the robot are driven by laws that are not affine.
        ValueError: for an unknown kind of shape or integrator, a size of wrong length, two solids
            of one name, or a solid that shall touch itself, or two that stand still.
        KeyError: for an unknown frame or name.
    """
    followers = _followers(model) if mimics else []
    if isinstance(model, CoordinateModel):
        model = _limited(model.robot, followers)
    _check(surface, integrator)
    check_number("scene_on_ground", "dt", dt, positive=True)
    kind = model.dtype
    q0 = neutral(model) if reference is None else reference
    ground = Solid("world", "plane", (), name="ground")
    shapes = shapes_at("scene_on_ground", model, solids, [ground])
    moved = [k for k, body in enumerate(shapes.bodies) if body >= 0]
    pairs = [(0, k) for k in moved] + _touching_pairs(shapes, touching)
    order = sorted(pairs, key=lambda ij: (shapes.kinds[ij[0]], shapes.kinds[ij[1]]))
    n = len(order)
    slide, spin, roll = (*surface.friction, 0.0, 0.0)[:3]
    row = lambda *x: jnp.tile(jnp.array(x, kind), (n, 1))  # noqa: E731
    contacts = Contacts(
        shapes=shapes,
        pairs=Pairs(
            friction=row(slide, slide, spin, roll, roll),
            solref=row(*surface.solref),
            solref_friction=row(0.0, 0.0),
            solimp=row(*surface.solimp),
            margin=jnp.full((n,), surface.margin, kind),
            shapes=tuple(order),
            condim=(surface.condim,) * n,
        ),
        impratio=jnp.asarray(impratio, kind),
        least_time=jnp.asarray(2.0, kind),
        terrain=terrain,
        elliptic=elliptic,
    )
    driven = [x.joint for x in followers]
    names = [j for j in model.joint_names if _freedom(model, j) == 1 and j not in driven]
    return Scene(
        model=model,
        actuators=motors(model, names) if actuators is None else actuators,
        constraints=_constraints(model, contacts, followers),
        q0=q0,
        keyframes={},
        gravcomp=None,
        fluid=None,
        dt=jnp.asarray(dt, kind),
        integrator=integrator,
        implicit_damping=True,
        layout=None,
    )


def _check(surface: Surface, integrator: str) -> None:
    several = isinstance(surface.friction, tuple | list) or getattr(surface.friction, "ndim", 0)
    if not several or not 1 <= len(surface.friction) <= 3:
        raise ValueError(
            f"scene_on_ground: the friction of a Surface is one to three numbers (sliding, "
            f"spinning, rolling), got {surface.friction}"
        )
    if surface.condim not in (1, 3, 4, 6):
        raise ValueError(f"scene_on_ground: condim is {surface.condim}, expected 1, 3, 4 or 6")
    if integrator not in ("implicitfast", "euler", "rk4"):
        raise ValueError(
            f"scene_on_ground: integrator {integrator!r}, expected 'implicitfast', 'euler' or 'rk4'"
        )


def _touching_pairs(shapes: Shapes, touching: Sequence[tuple[str, str]]) -> list[tuple[int, int]]:
    found = []
    for pair in touching:
        for name in pair:
            if name not in shapes.names:
                raise KeyError(f"no solid {name!r}; there are {', '.join(shapes.names[1:])}")
        i, j = (shapes.names.index(name) for name in pair)
        if i == j:
            raise ValueError(f"scene_on_ground: {pair[0]!r} cannot touch itself")
        if shapes.bodies[i] == shapes.bodies[j] == -1:
            raise ValueError(f"scene_on_ground: {pair[0]!r} and {pair[1]!r} both stand still")
        kinds = shapes.kinds[i], shapes.kinds[j]
        if kinds not in PAIRS and kinds not in CONVEX_PAIRS:
            i, j = j, i
        found.append((i, j))
    return found


def _parts(model: Model) -> Parts:
    """One part for each body, at its center of mass."""
    zero, n = jnp.zeros((model.nb, 3), model.dtype), model.nb
    return Parts(zero, tuple(range(n)), (True,) * n)


def _params(n: int, kind) -> SolverParams:
    tile = lambda x: jnp.tile(jnp.array(x, kind), (n, 1))  # noqa: E731
    return SolverParams(tile(USUAL.solref), tile(USUAL.solimp))


def _constraints(model: Model, contacts: Contacts, followers: list["_Follower"]) -> Constraints:
    """Contacts, limits of all joints of one degree of freedom, dry friction, and mimic joints.

    Limits and dry friction do nothing where the model has no limit and no friction.
    """
    topology, kind = model.topology, model.dtype
    straight = [b for b, joint in enumerate(topology.kinds) if joint in ONE_DOF]
    dofs = tuple(int(topology.v_starts[b]) for b in straight)
    places = tuple(int(topology.q_starts[b]) for b in straight)
    rows = lambda *n: jnp.zeros((0, *n), kind)  # noqa: E731
    p3, p4, none = rows(3), rows(4), _params(0, kind)
    return Constraints(
        contacts,
        JointLimits(_params(len(dofs), kind), jnp.zeros((len(dofs),), kind), dofs, places),
        BallLimits(none, rows(), rows(), (), ()),
        JointFriction(_params(model.nv, kind), tuple(range(model.nv))),
        Welds(p3, p3, p4, p4, rows(), none, rows(), (), (), (), ()),
        _joint_equalities(model, followers),
        _parts(model),
    )


class _Follower(NamedTuple):
    """A mimic joint: its position is ``multiplier · position(target) + offset``."""

    joint: str
    target: str
    multiplier: Float[Array, ""] | float
    offset: Float[Array, ""] | float


def _followers(model: Model) -> list[_Follower]:
    """The mimic joints. If laws drive them, their numbers are leaves of these laws."""
    if not isinstance(model, CoordinateModel):
        return [_Follower(*x) for x in model.topology.mimics]
    found = []
    for law in model.laws:
        joints = law.driven.joint_names
        single = all(k == 1 for k in _sizes(model, (*joints, *law.by)))
        if not (isinstance(law, Affine) and single):
            raise TypeError(
                f"scene_on_ground: robot {model.topology.name!r}: joints {', '.join(joints)} are "
                f"driven by a law that is not affine in joints, which scenes do not have; give "
                f"model.robot, whose joints are independent"
            )
        for k, (joint, i) in enumerate(zip(joints, law.source, strict=True)):
            found.append(_Follower(joint, law.by[i], law.multiplier[k], law.offset[k]))
    return found


def _limited(robot: Model, followers: list[_Follower]) -> Model:
    """The robot, with the limits of its mimic joints set to those of their targets."""
    lower, upper = robot.position_lower, robot.position_upper
    for x in followers:
        at, of = (robot.topology.q_slice(name).start for name in (x.joint, x.target))
        ends = jnp.stack([robot.position_lower[of], robot.position_upper[of]])
        found = jnp.where(jnp.isfinite(ends), x.multiplier * ends + x.offset, ends)
        low, high = jnp.where(jnp.asarray(x.multiplier) < 0, found[::-1], found)
        far = jnp.asarray(jnp.inf, robot.dtype)
        lower = lower.at[at].set(jnp.where(jnp.isfinite(low), low, -far))
        upper = upper.at[at].set(jnp.where(jnp.isfinite(high), high, far))
    return eqx.tree_at(lambda m: (m.position_lower, m.position_upper), robot, (lower, upper))


def _freedom(model: Model, joint: str) -> int:
    s = model.topology.v_slice(joint)
    return s.stop - s.start


def _sizes(model: Model, joints: Sequence[str]) -> list[int]:
    """Degrees of freedom of joints of the robot; none for new coordinates."""
    return [_freedom(model, j) if j in model.topology.joint_names else 0 for j in joints]


def _joint_equalities(model: Model, followers: list[_Follower]) -> JointEqualities:
    """Mimic joints as MuJoCo's joint equalities, which count from zero."""
    topology, kind, n = model.topology, model.dtype, len(followers)
    line = [[x.offset, x.multiplier, 0.0, 0.0, 0.0] for x in followers]
    line = [jnp.stack([jnp.asarray(y, kind) for y in x]) for x in line]
    pairs = [(x.joint, x.target) for x in followers]
    at = lambda of: tuple((int(of(a).start), int(of(b).start)) for a, b in pairs)  # noqa: E731
    return JointEqualities(
        jnp.stack(line) if n else jnp.zeros((0, 5), kind),
        jnp.zeros((n, 2), kind),
        _params(n, kind),
        jnp.ones((n,), kind),
        at(topology.v_slice),
        at(topology.q_slice),
    )
