"""The MuJoCo environments of gymnasium: the robots, observations, rewards and failures of there.

The file of each robot comes from the package ``gymnasium`` that is installed, so the models are
those of its version. What they do stands in three tables, :data:`RUNNERS`, :data:`BALANCERS` and
:data:`REACHERS`, each with a class.
"""

from pathlib import Path
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Key

from ...algorithms.energy import center_of_mass
from ...algorithms.kinematics import frame_placement
from ...contact import Scene, load_mjcf
from ...io import Layout
from ...learn import SceneEnvironment, State
from ...spatial import so3
from ..robots._packages import package_folder


class Runner(NamedTuple):
    """What one of the environments is that reward a robot for running along x."""

    file: str
    substeps: int
    noise: float
    """Episodes begin near the reference configuration; each coordinate differs by at most this."""
    normal: bool = False
    """Whether the first velocities are normally distributed; otherwise they are uniform."""
    forward: float = 1.0
    """The reward for one metre per second."""
    alive: float = 0.0
    effort: float = 1e-3
    """The cost of the squared controls."""
    hidden: int = 1
    """How many first coordinates the policy does not see, because nothing depends on them."""
    fastest: float = np.inf
    """Velocities are observed up to this size."""
    mass_center: bool = False
    """Whether the center of mass has to run; otherwise the first coordinate."""
    healthy: tuple[tuple[int, float, float], ...] = ()
    """Places of ``(qpos, qvel)`` and the bounds outside of which the robot has failed."""
    others: tuple[float, float] | None = None
    """Bounds of all places of ``(qpos, qvel)`` from the third one on."""


RUNNERS = {
    "Ant-v5": Runner(
        "ant.xml", 5, 0.1, normal=True, alive=1.0, effort=0.5, hidden=2, healthy=((2, 0.2, 1.0),)
    ),
    "HalfCheetah-v5": Runner("half_cheetah.xml", 5, 0.1, normal=True, effort=0.1),
    "Hopper-v5": Runner(
        "hopper.xml",
        4,
        5e-3,
        alive=1.0,
        fastest=10.0,
        healthy=((1, 0.7, np.inf), (2, -0.2, 0.2)),
        others=(-100.0, 100.0),
    ),
    "Humanoid-v5": Runner(
        "humanoid.xml",
        5,
        0.01,
        forward=1.25,
        alive=5.0,
        effort=0.1,
        hidden=2,
        mass_center=True,
        healthy=((2, 1.0, 2.0),),
    ),
    "Swimmer-v5": Runner("swimmer.xml", 4, 0.1, effort=1e-4, hidden=2),
    "Walker2d-v5": Runner(
        "walker2d_v5.xml",
        4,
        5e-3,
        alive=1.0,
        fastest=10.0,
        healthy=((1, 0.8, 2.0), (2, -1.0, 1.0)),
    ),
}
"""Source: the files ``ant_v5.py``, ``half_cheetah_v5.py`` and so on of gymnasium."""


class Balancer(NamedTuple):
    """What one of the environments is that reward a pole for staying upright on a cart."""

    file: str
    substeps: int
    noise: float
    normal: bool


BALANCERS = {
    "InvertedDoublePendulum-v5": Balancer("inverted_double_pendulum.xml", 5, 0.1, True),
    "InvertedPendulum-v5": Balancer("inverted_pendulum.xml", 2, 0.01, False),
}


class Reacher(NamedTuple):
    """What one of the environments is that reward an arm for bringing something to a target."""

    file: str
    substeps: int
    episode: int
    arm: int
    """Joints of the arm; the other coordinates are those of objects."""
    hand: str
    object: str
    target: str
    near: float
    """The cost of the distance between hand and object."""
    effort: float


REACHERS = {
    "Pusher-v5": Reacher(
        "pusher_v5.xml", 5, 100, 7, "tips_arm", "object", "goal", near=0.5, effort=0.1
    ),
    "Reacher-v5": Reacher(
        "reacher.xml", 2, 50, 2, "fingertip", "fingertip", "target", near=0.0, effort=1.0
    ),
}


class FromGymnasium(SceneEnvironment):
    """What the environments of gymnasium share: the reference configuration and the controls."""

    scene: Scene
    noise: Float[Array, ""]
    """How far episodes begin from the reference configuration."""
    normal: bool = eqx.field(static=True)
    """Whether the first velocities are normally distributed; otherwise they are uniform."""
    substeps: int = eqx.field(static=True)
    episode: int = eqx.field(static=True)
    actions: int = eqx.field(static=True)

    def begin(self, key: Key[Array, ""]) -> State:
        """Near the reference configuration, with velocities as small."""
        place, speed = jax.random.split(key)
        q, layout = self.scene.q0, self.layout
        theirs = layout.q_to(q)
        uniform = jax.random.uniform(place, theirs.shape, q.dtype, -1, 1)
        q = self._placed(theirs + self.noise * uniform, key)
        shape = (self.scene.model.nv,)
        draw = jax.random.normal if self.normal else _uniform
        v = layout.v_from(q, self._speeds(draw(speed, shape, q.dtype)))
        return self.state(q, v, jnp.zeros((self.scene.nu,), q.dtype))

    @property
    def layout(self) -> Layout:
        """The map to MuJoCo's order and frames, which every scene of a file has."""
        assert self.scene.layout is not None
        return self.scene.layout

    def _placed(self, theirs: Array, key: Array) -> Array:
        """The configuration of MuJoCo's coordinates, with unit quaternions."""
        q = self.layout.q_from(theirs)
        for at, _ in self.layout.quats:
            q = q.at[at : at + 4].set(so3.quat_normalize(q[at : at + 4]))
        return q

    def _speeds(self, random: Array) -> Array:
        """The first velocities, of random numbers of size one."""
        return self.noise * random

    def coordinates(self, state: State) -> tuple[Float[Array, " nq"], Float[Array, " nv"]]:
        """Positions and velocities in MuJoCo's order and frames."""
        layout = self.layout
        return layout.q_to(state.q), layout.v_to(state.q, state.v)

    def controls(self, state: State, action: Float[Array, " na"]) -> Float[Array, " nu"]:
        """The range of the controls, of which actions of −1 and 1 are the ends."""
        low, high = self.scene.actuators.ctrlrange.T
        return (low + high) / 2 + (high - low) / 2 * action


class Running(FromGymnasium):
    """A robot that is to run along x. See :class:`Runner` for what its numbers are."""

    forward: Float[Array, ""]
    alive: Float[Array, ""]
    effort: Float[Array, ""]
    lower: Float[Array, " n"]
    """Bounds of positions and velocities between which the robot is healthy."""
    upper: Float[Array, " n"]
    hidden: int = eqx.field(static=True)
    fastest: float = eqx.field(static=True)
    mass_center: bool = eqx.field(static=True)

    def observe(self, state: State) -> Float[Array, " n"]:
        """MuJoCo's coordinates without the hidden ones, and the velocities."""
        q, v = self.coordinates(state)
        return jnp.concatenate([q[self.hidden :], jnp.clip(v, -self.fastest, self.fastest)])

    def reward(self, before: State, action: Array, after: State) -> Float[Array, ""]:
        """Speed along x, the reward for being healthy, and the cost of the controls."""
        speed = (self._place(after) - self._place(before)) / self.period
        u = after.controls
        well = jnp.where(self.failed(after), 0, self.alive)
        return self.forward * speed + well - self.effort * jnp.sum(u * u)

    def _place(self, state: State) -> Array:
        if self.mass_center:
            return center_of_mass(self.scene.model, state.q)[0]
        return self.layout.q_to(state.q)[0]

    def failed(self, state: State) -> Bool[Array, ""]:
        """Whether a coordinate has left its bounds."""
        x = jnp.concatenate(self.coordinates(state))
        return ~jnp.all((self.lower < x) & (x < self.upper))


class Balancing(FromGymnasium):
    """One or two poles on a cart that are to stay upright."""

    def observe(self, state: State) -> Float[Array, " n"]:
        """Position and velocities; the angles of two poles by sine and cosine."""
        q, v = self.coordinates(state)
        if q.shape[0] == 2:
            return jnp.concatenate([q, v])
        return jnp.concatenate([q[:1], jnp.sin(q[1:]), jnp.cos(q[1:]), jnp.clip(v, -10, 10)])

    def _tip(self, state: State) -> Array:
        return frame_placement(self.scene.model, state.q, "tip")[1]

    def reward(self, before: State, action: Array, after: State) -> Float[Array, ""]:
        """One while the pole is upright; of two poles ten, less the squares of place and speed."""
        q, v = self.coordinates(after)
        well = 1 - self.failed(after).astype(q.dtype)
        if q.shape[0] == 2:
            return well
        x, _, z = self._tip(after)
        return 10 * well - 0.01 * x**2 - (z - 2) ** 2 - 1e-3 * v[1] ** 2 - 5e-3 * v[2] ** 2

    def failed(self, state: State) -> Bool[Array, ""]:
        """Whether the pole has fallen."""
        q, _ = self.coordinates(state)
        return jnp.abs(q[1]) > 0.2 if q.shape[0] == 2 else self._tip(state)[2] <= 1


class Reaching(FromGymnasium):
    """An arm that is to bring its hand, or an object, to a target. See :class:`Reacher`."""

    near: Float[Array, ""]
    effort: Float[Array, ""]
    arm: int = eqx.field(static=True)
    hand: str = eqx.field(static=True)
    object: str = eqx.field(static=True)
    target: str = eqx.field(static=True)

    def _placed(self, theirs: Array, key: Array) -> Array:
        if self.pushes:  # the arm begins where the file says; the target stays in the middle
            start = self.layout.q_to(self.scene.q0)
            return super()._placed(
                start.at[-4:].set(
                    jnp.append(_beside(key, theirs.dtype), jnp.zeros(2, theirs.dtype))
                ),
                key,
            )
        return super()._placed(theirs.at[-2:].set(_in_disk(key, theirs.dtype)), key)

    def _speeds(self, random: Array) -> Array:
        return jnp.where(jnp.arange(random.shape[0]) < self.arm, 0.005 * random, 0)

    @property
    def pushes(self) -> bool:
        """Whether the hand pushes an object; otherwise it is the hand that is to reach."""
        return self.object != self.hand

    def _places(self, state: State) -> tuple[Array, Array, Array]:
        m = self.scene.model
        names = self.hand, self.object, self.target
        return tuple(frame_placement(m, state.q, name)[1] for name in names)  # pyright: ignore[reportReturnType]

    def observe(self, state: State) -> Float[Array, " n"]:
        """Angles and velocities of the arm, and where hand, object and target are."""
        q, v = self.coordinates(state)
        hand, thing, target = self._places(state)
        if self.pushes:
            return jnp.concatenate([q[: self.arm], v[: self.arm], hand, thing, target])
        angles = q[: self.arm]
        gap = (hand - target)[:2]
        return jnp.concatenate(
            [jnp.cos(angles), jnp.sin(angles), q[self.arm :], v[: self.arm], gap]
        )

    def reward(self, before: State, action: Array, after: State) -> Float[Array, ""]:
        """Minus the distances and the cost of the controls."""
        hand, thing, target = self._places(after)
        u = after.controls
        away = distance(thing, target) + self.near * distance(thing, hand)
        return -away - self.effort * jnp.sum(u * u)


def _uniform(key: Array, shape: tuple[int, ...], dtype) -> Array:
    return jax.random.uniform(key, shape, dtype, -1, 1)


def _in_disk(key: Array, dtype) -> Float[Array, "2"]:
    """A random point at most 0.2 m from the middle."""
    far, turn = jax.random.uniform(jax.random.fold_in(key, 1), (2,), dtype)
    return 0.2 * jnp.sqrt(far) * jnp.stack([jnp.cos(2 * jnp.pi * turn), jnp.sin(2 * jnp.pi * turn)])


def _beside(key: Array, dtype) -> Float[Array, "2"]:
    """A random point of a rectangle at the side of the target, but more than 0.17 m from it.

    The first of many draws that is far enough; none is in one of 10¹³ cases.
    """
    x, y = jax.random.uniform(jax.random.fold_in(key, 1), (2, 32), dtype)
    x, y = -0.3 * x, 0.4 * y - 0.2
    k = jnp.argmax(x * x + y * y > 0.17**2)
    return jnp.stack([x[k], y[k]])


def distance(x: Float[Array, "*b n"], y: Float[Array, "*b n"]) -> Float[Array, "*b"]:
    """The distance of points, with a derivative of zero where they are the same."""
    square = jnp.sum((x - y) ** 2, axis=-1)
    return jnp.where(square > 0, jnp.sqrt(jnp.where(square > 0, square, 1)), 0)


def from_gymnasium(name: str, dtype=None) -> FromGymnasium:
    """One of the MuJoCo environments of gymnasium, with gradients and in batches.

    The robot is that of gymnasium's file, which the installed package has. States, rewards and
    failures are those of gymnasium after the same actions, but for this:

    - Actions are between −1 and 1 here, and in the range of the controls there.
    - Places of bodies, and so the speed of the ant and of the humanoid, are those at the end of a
      step. Gymnasium has them from one simulation step before.
    - The first states have unit quaternions.
    - Forces of contacts and limits are not observed and cost nothing, nor are the inertias,
      velocities and torques of the humanoid's bodies observed. Gymnasium does the same with
      ``include_cfrc_ext_in_observation=False`` and ``contact_cost_weight=0``, and for the humanoid
      with ``include_cinert_in_observation``, ``include_cvel_in_observation`` and
      ``include_qfrc_actuator_in_observation`` too. ``"InvertedDoublePendulum-v5"`` has one number
      more there, the force on the cart.

    Args:
        name: as in gymnasium: ``"Ant-v5"``, ``"HalfCheetah-v5"``, ``"Hopper-v5"``,
            ``"Humanoid-v5"``, ``"InvertedDoublePendulum-v5"``, ``"InvertedPendulum-v5"``,
            ``"Pusher-v5"``, ``"Reacher-v5"``, ``"Swimmer-v5"`` or ``"Walker2d-v5"``.
        dtype: of the robot; JAX's default precision if None.

    Raises:
        ImportError: without the extras ``gymnasium`` and ``mjcf``.
        ValueError: for an unknown name.

    Source: gymnasium 1.1 and newer (Farama Foundation), ``gymnasium/envs/mujoco``.
    """
    known = {**RUNNERS, **BALANCERS, **REACHERS}
    if name not in known:
        raise ValueError(f"from_gymnasium: the name must be one of {sorted(known)}, got {name!r}")
    spec = known[name]
    scene = load_mjcf(_asset(spec.file), dtype=dtype)
    number = lambda x: jnp.asarray(x, scene.model.dtype)  # noqa: E731
    shared: dict[str, Any] = {"scene": scene, "substeps": spec.substeps, "actions": scene.nu}
    if isinstance(spec, Reacher):
        return Reaching(
            **shared, noise=number(0.1), normal=False, episode=spec.episode, near=number(spec.near),
            effort=number(spec.effort), arm=spec.arm, hand=spec.hand, object=spec.object,
            target=spec.target,
        )  # fmt: skip
    shared |= {"noise": number(spec.noise), "normal": spec.normal, "episode": 1000}
    if isinstance(spec, Balancer):
        return Balancing(**shared)
    lower, upper = _healthy(spec, scene)
    return Running(
        **shared, forward=number(spec.forward), alive=number(spec.alive),
        effort=number(spec.effort), lower=number(lower), upper=number(upper), hidden=spec.hidden,
        fastest=spec.fastest, mass_center=spec.mass_center,
    )  # fmt: skip


def _healthy(spec: Runner, scene: Scene) -> tuple[np.ndarray, np.ndarray]:
    """The bounds of all positions and velocities."""
    n = scene.q0.shape[0] + scene.model.nv
    lower, upper = np.full(n, -np.inf), np.full(n, np.inf)
    if spec.others is not None:
        lower[2:], upper[2:] = spec.others
    for place, low, high in spec.healthy:
        lower[place], upper[place] = low, high
    return lower, upper


def _asset(file: str) -> Path:
    """A file of the package gymnasium, which need not be imported for it."""
    folder = package_folder(
        "gymnasium",
        "from_gymnasium needs the package gymnasium, whose robots it loads; install it with: "
        "pip install 'rbd-jax[gymnasium,mjcf]'",
    )
    path = folder / "envs" / "mujoco" / "assets" / file
    if not path.exists():
        raise ImportError(
            f"from_gymnasium: the package gymnasium in {path.parents[3]} has no {file}; "
            "version 1.1 or newer has"
        )
    return path
