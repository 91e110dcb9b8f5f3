"""The integrator with implicit damping, against MuJoCo and in closed form."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.integrator_cases import run

import rbd_jax as rbd
from rbd_jax import samples

ARM = """<robot name="r"><link name="base"/>
  <link name="a"><inertial><origin xyz="0.1 0 -0.2"/><mass value="1.5"/>
    <inertia ixx="0.02" iyy="0.03" izz="0.01" ixy="0" ixz="0" iyz="0"/></inertial></link>
  <link name="b"><inertial><origin xyz="0 0.05 0.1"/><mass value="0.01"/>
    <inertia ixx="2e-6" iyy="3e-6" izz="4e-6" ixy="0" ixz="0" iyz="0"/></inertial></link>
  <joint name="shoulder" type="continuous"><parent link="base"/><child link="a"/>
    <axis xyz="0 1 0"/><dynamics damping="0.5"/></joint>
  <joint name="finger" type="continuous"><parent link="a"/><child link="b"/>
    <origin xyz="0 0 -0.4"/><axis xyz="1 0 0"/><dynamics damping="3"/></joint></robot>"""


def test_implicit_damping_is_the_euler_step_of_mujoco():
    mujoco = pytest.importorskip("mujoco")
    m, mj = rbd.load_urdf(ARM), mujoco.MjModel.from_xml_string(ARM)
    mj.opt.timestep = dt = 0.01
    data = mujoco.MjData(mj)
    data.qpos[:], data.qvel[:] = q, v = np.array([0.3, -0.2]), np.array([1.0, 2.0])
    tau = data.qfrc_applied[:] = np.array([0.4, 0.1])
    run = jax.jit(lambda n, how: rbd.rollout(  # noqa: E731
        m, jnp.array(q), jnp.array(v), jnp.tile(tau, (n, 1)), dt, integrator=how
    ), static_argnums=(0, 1))  # fmt: skip
    path = run(40, "implicit_damping")
    for k in range(1, 41):
        mujoco.mj_step(mj, data)
        np.testing.assert_allclose(path.q[k], data.qpos, atol=1e-11)
        np.testing.assert_allclose(path.v[k], data.qvel, atol=1e-9)
    assert not bool(jnp.abs(run(40, "semi_implicit_euler").v).max() < 1e6)


def test_implicit_damping_of_one_wheel_in_closed_form():
    m = samples.pendulum()
    leaves = lambda m: (m.gravity, m.damping)  # noqa: E731
    m = eqx.tree_at(leaves, m, (jnp.zeros(3), jnp.full(1, 1e4)))
    I = float(run.mass_matrix(m, jnp.zeros(1))[0, 0])
    dt, d = jnp.asarray(0.1), jnp.ones(1)

    def end(damping):
        robot = eqx.tree_at(lambda m: m.damping, m, damping * d)
        return rbd.step(robot, 0 * d, d, 0 * d, dt, integrator="implicit_damping")[1][0]

    v, slope = jax.jit(jax.value_and_grad(end))(jnp.asarray(1e4))
    assert float(v) == pytest.approx(1 / (1 + 1e3 / I), rel=1e-12)
    assert float(slope) == pytest.approx(-0.1 / I / (1 + 1e3 / I) ** 2, rel=1e-12)
    with pytest.raises(TypeError, match="where the damping of the accelerations is known"):
        rbd.simulate.implicit_damping(m, lambda t, q, v: v, dt, d, d, dt)
