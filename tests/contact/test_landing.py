"""The derivative of a landing: first and second order, in both precisions, all gradient modes."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import rbd_jax as rbd

pytest.importorskip("mujoco")

HOPPER = """<mujoco><option timestep="0.002" cone="elliptic" integrator="implicitfast"/>
<default><geom contype="0" conaffinity="0"/><joint damping="0.5"/></default><worldbody>
<geom type="plane" size="5 5 1" conaffinity="1"/>
<body pos="0 0 .44"><joint name="x" type="slide" axis="1 0 0"/>
<joint name="z" type="slide" axis="0 0 1"/><geom type="box" size=".12 .08 .05" mass="4"/>
<body name="thigh"><joint name="hip" axis="0 1 0" frictionloss=".1"/>
<geom type="capsule" fromto="0 0 0 0 0 -.25" size=".03" mass="1"/>
<body name="shin" pos="0 0 -.25"><joint name="knee" axis="0 1 0" range="-70 0"/>
<geom type="capsule" fromto="0 0 0 0 0 -.25" size=".02" mass=".5"/>
<geom name="foot" size=".03" pos="0 0 -.25" contype="1" priority="1" {}/>
</body></body></body></worldbody>
<actuator><position joint="hip" kp="120" kv="4"/><position joint="knee" kp="120" kv="4"/></actuator>
</mujoco>"""
SOFT = 'solimp="0 .95 .02" margin=".02"'
POSE = jnp.array([0.6, -1.2])


def landing(scene, x, steps=200, **options):
    """The last state after a fall from height x[0] at speed x[1] with servos at x[2:]."""
    zero = jnp.zeros_like(x[0])
    q = jnp.concatenate([jnp.stack([zero, x[0]]), POSE.astype(x.dtype)])
    v = jnp.stack([x[1], zero, zero, zero])
    u = jnp.broadcast_to(x[2:], (steps, 2))
    path = rbd.rollout(scene, q, v, u, scene.dt, **options)
    return jnp.concatenate([path.q[-1], path.v[-1]])


@pytest.mark.slow
@pytest.mark.parametrize("contact", ["", SOFT], ids=["default", "soft"])
def test_gradient_of_a_landing(contact):
    """Of 200 steps through the impact, against differences of the motion, to 1e-6."""
    scene = rbd.load_mjcf(HOPPER.format(contact), "float64")
    x = jnp.array([0.08, 0.4, 0.6, -1.2])
    end = jax.jit(lambda x: landing(scene, x))
    J = jax.jit(jax.jacfwd(lambda x: landing(scene, x)))(x)
    h, columns = 1e-6, []
    for d in jnp.eye(4):
        at = lambda k, d=d: end(x + k * h * d)  # noqa: E731
        columns.append((8 * (at(1) - at(-1)) - at(2) + at(-2)) / (12 * h))
    difference = np.stack(columns, axis=1)
    size = np.abs(difference).max()
    assert size > 0.5 and np.abs(J[0]).max() > 0.01
    np.testing.assert_allclose(J, difference, atol=1e-6 * size)


@pytest.mark.slow
def test_modes_and_precisions_agree():
    """Reverse mode in all three gradient modes is forward mode; float32 is near float64."""
    x, c = jnp.array([0.08, 0.4, 0.6, -1.2]), jnp.linspace(-1.0, 1.0, 8)
    found = {}
    for dtype in ("float64", "float32"):
        scene = rbd.load_mjcf(HOPPER.format(SOFT), dtype)

        def cost(x, mode, scene=scene, dtype=dtype):
            return landing(scene, x, gradient=mode) @ c.astype(dtype)

        for mode in ("full", "checkpoint", "adjoint"):
            found[dtype, mode] = jax.jit(jax.grad(lambda x, m=mode, f=cost: f(x, m)))(
                x.astype(dtype)
            )
        tangent = jax.jit(jax.jacfwd(lambda x, f=cost: f(x, "full")))(x.astype(dtype))
        found[dtype, "forward"] = tangent
    expected = np.asarray(found["float64", "forward"])
    for (dtype, _), gradient in found.items():
        atol = 1e-9 if dtype == "float64" else 5e-2
        np.testing.assert_allclose(gradient, expected, atol=atol * np.abs(expected).max())


@pytest.mark.slow
def test_second_derivative_of_steps_in_contact():
    """Forward over reverse and reverse over reverse against differences of the gradient."""
    scene = rbd.load_mjcf(HOPPER.format(SOFT), "float64")
    q, v = jnp.array([0, -0.03, 0.6, -1.2]), jnp.array([0.3, -0.1, 0.2, 0.1])
    c = jnp.linspace(-1.0, 1.0, 8)

    def cost(x):
        r = rbd.contact.scene_step(scene, x[:4], x[4:8], x[8:])
        r = rbd.contact.scene_step(scene, r.q, r.v, x[8:])
        return c @ jnp.concatenate([r.q, r.v])

    x = jnp.concatenate([q, v, POSE])
    gradient = jax.jit(jax.grad(cost))
    forward, reverse = (jax.jit(f(jax.grad(cost)))(x) for f in (jax.jacfwd, jax.jacrev))
    h, rows = 1e-5, []
    for d in jnp.eye(10):
        at = lambda k, d=d: gradient(x + k * h * d)  # noqa: E731
        rows.append((8 * (at(1) - at(-1)) - at(2) + at(-2)) / (12 * h))
    difference = np.stack(rows, axis=1)
    size = np.abs(difference).max()
    assert size > 1
    np.testing.assert_allclose(forward, difference, atol=1e-6 * size)
    np.testing.assert_allclose(reverse, forward, atol=1e-9 * size)
