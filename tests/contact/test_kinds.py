"""A kind of constraint of a user's own: one class of parameters and one class of rows."""

import dataclasses
from collections.abc import Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array, Float

import rbd_jax as rbd
from rbd_jax.contact import SolverParams
from rbd_jax.contact.solver import force_laws
from rbd_jax.contact.solver.rows import Constraint, JointRows, State, slope

mujoco = pytest.importorskip("mujoco")

PENDULUM = """<mujoco><worldbody><body><joint name="a" axis="0 1 0" damping=".1"/>
<geom size=".1" pos=".3 0 0" contype="0"/><body pos=".5 0 0"><joint name="b" axis="0 1 0"/>
<geom size=".1" pos=".2 0 0" contype="0"/></body></body></worldbody>{}</mujoco>"""
HELD = '<equality><joint joint1="b" polycoef=".2 0 0 0 0"/></equality>'


class Hold(Constraint):
    """One degree of freedom is held at an angle."""

    angle: Float[Array, " 1"]
    params: SolverParams
    dof: int = eqx.field(static=True)

    def rows(self, state: State) -> Sequence["HoldRows"]:
        own = slice(self.dof, self.dof + 1)
        weight = state.constants.weights.dofs[own]
        error, speed = state.q[own] - self.angle, state.v[own]
        R, a_ref = self.params.regularized(error, speed, weight, state.least_time)
        return [HoldRows(a_ref, 1 / R, self.dof)]


class HoldRows(JointRows):
    """``z = a − a_ref`` of the degree of freedom."""

    a_ref: Float[Array, " 1"]
    D: Float[Array, " 1"]
    dof: int = eqx.field(static=True)

    def force(self, z):
        return force_laws.equality(z, self.D)

    def map(self, a):
        return a[self.dof : self.dof + 1]

    def pull(self, f, tau):
        return tau.at[self.dof].add(f[0])

    def diagonal(self, z, total):
        return total.at[self.dof].add(-slope(self.force, z)[0])

    def report(self, f, joints):
        return {"hold": f}


@pytest.mark.slow
def test_a_kind_of_ones_own_is_the_equality_that_it_copies():
    free, held = rbd.load_mjcf(PENDULUM.format("")), rbd.load_mjcf(PENDULUM.format(HELD))
    params = held.constraints.joint_equalities.params

    def with_hold(angle):
        constraints = dataclasses.replace(free.constraints, others=(Hold(angle, params, 1),))
        return dataclasses.replace(free, constraints=constraints)

    q, v, u = jnp.array([0.3, 0.1]), jnp.array([1.0, -2.0]), jnp.zeros(0)
    step = jax.jit(lambda scene: rbd.contact.scene_step(scene, q, v, u, forces=True))
    ours, theirs = step(with_hold(jnp.array([0.2]))), step(held)
    np.testing.assert_allclose(ours.v, theirs.v, atol=1e-12)
    assert float(jnp.abs(ours.v - step(free).v).max()) > 1e-3
    np.testing.assert_allclose(ours.forces.others["hold"], theirs.forces.joint_equalities)
    np.testing.assert_allclose(ours.forces.total, theirs.forces.total)

    def derivative(scene_with):
        after = lambda x: rbd.contact.scene_step(scene_with(x), q, v, u).v  # noqa: E731
        return jax.jacrev(after)(jnp.array([0.2]))

    def copied(angle):
        where = lambda s: s.constraints.joint_equalities.polynomial  # noqa: E731
        return eqx.tree_at(where, held, where(held).at[0, 0].set(angle[0]))

    np.testing.assert_allclose(derivative(with_hold), derivative(copied), atol=1e-10)


DRY = """<mujoco><option cone="elliptic"/>
<default><joint frictionloss=".3" damping=".01"/></default>
<worldbody><geom type="plane" size="5 5 1"/><body pos="0 0 .099" quat=".9 .1 .2 .3">
<joint name="f" type="free"/><geom type="box" size=".1 .05 .05"/><body pos=".1 0 0">
<joint axis="0 1 0"/><geom size=".03" pos=".1 0 0"/></body></body></worldbody></mujoco>"""


@pytest.mark.slow
@pytest.mark.float64
def test_dry_friction_of_a_free_joint_is_mujocos():
    m = mujoco.MjModel.from_xml_string(DRY)
    m.opt.tolerance, m.opt.iterations, m.opt.ls_tolerance = 0, 100, 1e-10
    d, scene = mujoco.MjData(m), rbd.contact.scene_of(m)
    d.qvel[:] = [0.3, -0.2, 0.5, 1.0, 2.0, -1.0, 0.4]
    layout = scene.layout
    step = jax.jit(lambda q, v: rbd.contact.scene_step(scene, q, v, jnp.zeros(0), forces=True))
    for _ in range(30):
        q = layout.q_from(jnp.array(d.qpos))
        r = step(q, layout.v_from(q, jnp.array(d.qvel)))
        mujoco.mj_step(m, d)
        np.testing.assert_allclose(layout.q_to(r.q), d.qpos, atol=1e-8)
        np.testing.assert_allclose(layout.v_to(r.q, r.v), d.qvel, atol=1e-8)
    assert r.forces.joint_friction["f"].shape == (6,)
