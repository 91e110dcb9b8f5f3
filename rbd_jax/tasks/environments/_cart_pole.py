"""A pole on a cart that swings up: a small task that is learned within a minute."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Key

from ...contact import Scene, load_mjcf
from ...learn import SceneEnvironment, State

MJCF = """<mujoco model="cart_pole">
  <option timestep="0.02"/>
  <default><geom contype="0" conaffinity="0"/></default>
  <worldbody>
    <body name="cart"><joint name="slide" type="slide" axis="1 0 0" damping="0.1"/>
      <geom type="box" size=".1 .06 .05" mass="1"/>
      <body name="pole"><joint name="hinge" axis="0 1 0" damping="0.01"/>
        <geom type="capsule" fromto="0 0 0 0 0 .6" size=".02" mass=".2"/></body></body>
  </worldbody>
  <actuator><motor name="push" joint="slide" ctrlrange="-10 10"/></actuator>
</mujoco>"""
"""The pole stands at zero. Written for this task."""


class CartPole(SceneEnvironment):
    """Swing a pole up, which hangs at first, and hold it in the middle of the track."""

    scene: Scene
    force: Float[Array, ""]
    """The force of an action of one (N)."""
    substeps: int = eqx.field(static=True, default=2)
    episode: int = eqx.field(static=True, default=120)
    actions: int = eqx.field(static=True, default=1)

    def begin(self, key: Key[Array, ""]) -> State:
        """Hanging, nearly at rest."""
        dtype = self.scene.model.dtype
        noise = 0.1 * jax.random.normal(key, (4,), dtype)
        q = jnp.array([0, jnp.pi], dtype) + noise[:2]
        return self.state(q, noise[2:], jnp.zeros((1,), dtype))

    def observe(self, state: State) -> Float[Array, "5"]:
        """Place and speed of the cart; sine, cosine and rate of the angle."""
        x, angle = state.q
        return jnp.stack([x, jnp.sin(angle), jnp.cos(angle), *state.v])

    def controls(self, state: State, action: Float[Array, "1"]) -> Float[Array, "1"]:
        """The force on the cart (N)."""
        return self.force * action

    def reward(self, before: State, action: Array, after: State) -> Float[Array, ""]:
        """Two at most: for a standing pole, less for place, speeds and force."""
        x, angle = after.q
        v, w = after.v
        cost = 0.2 * x**2 + 0.02 * v**2 + 0.005 * w**2 + 0.01 * action[0] ** 2
        return 1 + jnp.cos(angle) - cost

    def failed(self, state: State) -> Bool[Array, ""]:
        """Whether the cart is more than 4 m from the middle of the track."""
        return jnp.abs(state.q[0]) > 4


def cart_pole_environment(dtype=None) -> CartPole:
    """The swing-up of a cart-pole with a motor of 10 N. Needs the extra ``mjcf``."""
    scene = load_mjcf(MJCF, dtype)
    force = jnp.asarray(10.0, scene.model.dtype)
    return CartPole(scene=scene, force=force)  # pyright: ignore[reportCallIssue]
