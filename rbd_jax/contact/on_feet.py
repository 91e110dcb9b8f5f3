"""A scene of any robot that stands on points of its bodies, without MJCF."""

from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..algorithms.jacobians import jacobian
from ..derivatives.rules import mass_matrix_solve
from ..model import Model, neutral
from .actuators import Actuators, motors
from .contacts import Contacts, Pairs, Shapes
from .equalities import Couplings, Equalities, Welds
from .joints import BallLimits, Dry, Joints, Limits, Soft
from .rows import Constraints
from .scene import Scene


def on_feet(
    model: Model,
    feet: Sequence[str],
    *,
    friction: float | Float[Array, ""] = 0.7,
    radius: float = 0.0,
    time_constant: float | Float[Array, ""] = 0.02,
    dt: float = 0.002,
    terrain: Callable[[Array], Array] | None = None,
    actuators: Actuators | None = None,
    q: Float[Array, " nq"] | None = None,
) -> Scene:
    """A scene in which spheres at some frames of a robot touch the ground, and nothing else does.

    It gives a robot of a URDF file, or of :func:`rbd_jax.build_model`, the contacts of
    :func:`rbd_jax.load_mjcf`: elliptic friction cones, MuJoCo's softness. The joints have no
    limits and no dry friction.

    Source: MuJoCo's documentation, "Computation", constraint model; the inverse inertia of a foot
    is the mean of the diagonal of ``J M⁻¹ Jᵀ``, as in ``body_invweight0``.

    Args:
        model: the robot.
        feet: names of the frames.
        friction: coefficient of sliding friction.
        radius: of the spheres, whose centers are the origins of the frames (m).
        time_constant: of the contacts (s), MuJoCo's ``solref[0]``; contacts are critically damped.
        dt: time step (s).
        terrain: height of the ground, ``(x, y) -> z`` in m; the plane z = 0 if None.
        actuators: one torque motor for each joint of one degree of freedom if None.
        q: configuration in which the inverse inertia of the feet is taken; neutral if None.

    Raises:
        KeyError: for an unknown frame.
    """
    topology, n, dtype = model.topology, len(feet), model.dtype
    frames = [topology.frame_index(f) for f in feet]
    q = neutral(model) if q is None else q
    zero = lambda *shape: jnp.zeros(shape, dtype)  # noqa: E731
    rows = lambda *x: jnp.tile(jnp.asarray(x, dtype), (n, 1))  # noqa: E731
    eye = jnp.tile(jnp.eye(3, dtype=dtype), (n + 1, 1, 1))
    shapes = Shapes(
        R=eye,
        p=jnp.concatenate([zero(1, 3), model.frame_p[np.array(frames, int)]]),
        size=jnp.concatenate([zero(1, 3), rows(radius, 0, 0)]),
        corners=zero(0, 0, 3),
        kinds=("plane", *("sphere",) * n),
        bodies=(-1, *(int(topology.frame_bodies[f]) for f in frames)),
        names=("ground", *feet),
        faces=(),
        hulls=(-1,) * (n + 1),
    )
    mobility = [_mobility(model, q, f) for f in feet]
    slide = jnp.asarray(friction, dtype)
    pairs = Pairs(
        friction=jnp.concatenate([jnp.broadcast_to(slide, (n, 2)), rows(0.005, 1e-4, 1e-4)], 1),
        solref=jnp.concatenate(
            [jnp.broadcast_to(jnp.asarray(time_constant, dtype), (n, 1)), rows(1.0)], 1
        ),
        solref_friction=zero(n, 2),
        solimp=rows(0.9, 0.95, 0.001, 0.5, 2.0),
        margin=zero(n),
        weight=jnp.stack(mobility),
        shapes=tuple((0, i + 1) for i in range(n)),
        condim=(3,) * n,
    )
    one = jnp.ones((), dtype)
    contacts = Contacts(shapes, pairs, one, 2 * one, terrain, True)
    if actuators is None:
        names = [
            j for j in model.joint_names if model.v_slice(j).stop - model.v_slice(j).start == 1
        ]
        actuators = motors(model, names)
    return Scene(
        model=model,
        actuators=actuators,
        constraints=Constraints(contacts, _no_joints(dtype), _no_equalities(dtype)),
        keyframes={},
        dt=jnp.asarray(dt, dtype),
        integrator="euler",
        implicit_damping=True,
        layout=None,
    )


def _mobility(model: Model, q: Array, frame: str) -> Float[Array, "2"]:
    """Inverse inertia of a frame against forces (1/kg) and torques (1/(kg m²))."""
    J = jacobian(model, q, frame, reference="local_world_aligned")
    A = jnp.sum(J * jax.vmap(lambda row: mass_matrix_solve(model, q, row))(J), axis=1)
    return jnp.stack([jnp.mean(A[3:]), jnp.mean(A[:3])])


def _soft(dtype) -> Soft:
    return Soft(jnp.zeros((0, 2), dtype), jnp.zeros((0, 5), dtype), jnp.zeros((0,), dtype))


def _no_joints(dtype) -> Joints:
    none = jnp.zeros((0,), dtype)
    limits = Limits(_soft(dtype), none, (), ())
    return Joints(limits, BallLimits(_soft(dtype), none, none, (), ()), Dry(_soft(dtype), ()))


def _no_equalities(dtype) -> Equalities:
    zero = lambda *shape: jnp.zeros((0, *shape), dtype)  # noqa: E731
    welds = Welds(zero(3), zero(3), zero(4), zero(4), zero(), zero(2), zero(5), zero(2), zero(),
                  (), ())  # fmt: skip
    couplings = Couplings(zero(5), zero(2), zero(2), zero(5), zero(), zero(), (), ())
    return Equalities(welds, couplings)
