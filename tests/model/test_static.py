"""Objects that are built twice, pickled or copied are alike: one tree structure, one program."""

import copy
import pickle

import chex
import equinox as eqx
import jax
import numpy as np
import pytest

import rbd_jax as rbd
from rbd_jax import constraints, contact, optimize, screw, tasks

MIMIC = """<robot name="gripper"><link name="base"/>
<link name="one"><inertial><mass value="1"/><inertia ixx=".1" iyy=".1" izz=".1" ixy="0" ixz="0"
iyz="0"/></inertial></link><link name="two"><inertial><mass value="1"/><inertia ixx=".1" iyy=".1"
izz=".1" ixy="0" ixz="0" iyz="0"/></inertial></link>
<joint name="a" type="prismatic"><parent link="base"/><child link="one"/><axis xyz="1 0 0"/>
<limit lower="0" upper=".1" effort="5" velocity="1"/></joint>
<joint name="b" type="prismatic"><parent link="base"/><child link="two"/><axis xyz="-1 0 0"/>
<limit lower="0" upper=".1" effort="5" velocity="1"/><mimic joint="a" multiplier="1"/></joint>
</robot>"""

SCENE = """<mujoco><worldbody><geom type="plane" size="1 1 1"/><body name="ball" pos="0 0 1">
<freejoint/><geom name="ball" type="sphere" size=".1"/><body name="arm" pos=".1 0 0">
<joint name="hinge" range="-1 1" limited="true" frictionloss=".1"/>
<geom type="box" size=".1 .1 .1"/></body></body><body name="other" pos="1 0 1">
<joint name="turn"/><geom type="sphere" size=".1"/></body></worldbody>
<equality><weld body1="ball" body2="other"/><joint joint1="hinge" joint2="turn"/></equality>
<actuator><position joint="hinge"/></actuator><keyframe><key name="start"/></keyframe></mujoco>"""


ARM = rbd.samples.arm


def foot_points():
    return contact.points([n for n in rbd.samples.quadruped().frame_names if "foot" in n], 0.02)


def on_ground():
    return contact.scene_on_ground(rbd.samples.quadruped(), foot_points(), terrain=_slope)


def _slope(x):
    return 0.1 * x[0]


def _twice(u):
    return 2 * u


def _cost(model, t, q, v, u):
    return u @ u


def _end(model, q, v):
    return v @ v


def problem():
    return optimize.Problem(ARM(), _cost, _end, 0.01, 5)


def layout():
    mujoco = pytest.importorskip("mujoco")
    return rbd.convert.mujoco(rbd.load_mjcf(SCENE).model, mujoco.MjModel.from_xml_string(SCENE))


def driven():
    robot = ARM()
    return rbd.with_coordinates(robot, _twice, [robot.joint_names[1]], [robot.joint_names[0]])


def screws():
    model = rbd.samples.double_pendulum()
    Y, _ = screw.spatial_screws(model)
    inertia = np.asarray(rbd.spatial.inertia.matrix(model.inertia))
    return screw.from_spatial_screws(np.asarray(Y), inertia)


def learned(name):
    def make():
        pytest.importorskip("rbd_jax.learn")
        return getattr(tasks, name)()

    return make


def policy():
    learn = pytest.importorskip("rbd_jax.learn")
    settings = learn.Settings(robots=2, hidden=(4,))
    return learn.start(tasks.cart_pole_environment(), settings, jax.random.key(0))


def blocks():
    return pytest.importorskip("rbd_jax.identify").select(ARM(), "inertia")


def networks():
    pytest.importorskip("optax")
    return rbd.identify.learned_dynamics(ARM(), parts=("friction",), key=jax.random.key(0))


CASES = {
    **{f"samples.{n}": getattr(rbd.samples, n) for n in
       ("pendulum", "double_pendulum", "quadruped", "arm", "cart_pole", "quadrotor_arm")},
    "samples.chain": lambda: rbd.samples.chain(3),
    "samples.tree": lambda: rbd.samples.tree(4),
    "load_urdf": lambda: rbd.load_urdf(MIMIC, floating_base=True),
    "load_urdf, independent": lambda: rbd.load_urdf(MIMIC, mimic="independent"),
    "load_mjcf": lambda: rbd.load_mjcf(SCENE),
    "convert.mujoco": layout,
    "scene_on_ground": on_ground,
    "motors": lambda: contact.motors(ARM(), ARM().joint_names),
    "pd_actuators": lambda: contact.pd_actuators(ARM(), ARM().joint_names, 3.0),
    "constraints.point": lambda: constraints.point(ARM(), ARM().frame_names[-1]),
    "constraints.frame": lambda: constraints.frame(ARM(), ARM().frame_names[-1]),
    "constraints.lock": lambda: constraints.lock(ARM(), ARM().joint_names[0]),
    "constraints.none": lambda: constraints.none(ARM()),
    "with_coordinates": driven,
    "from_spatial_screws": screws,
    "Problem": problem,
    "joint_limits": lambda: optimize.joint_limits(ARM()),
    "torque_limits": lambda: optimize.torque_limits(problem()),
    **{f"tasks.{n}": getattr(tasks, n) for n in
       ("cart_pole", "double_pendulum", "reach", "reorient", "quadrotor", "stand_up", "trot")},
    "controller": lambda: optimize.controller(tasks.cart_pole().problem),
    **{f"tasks.{n}": learned(n) for n in ("cart_pole_environment", "quadruped", "stander")},
    "learn.start": policy,
    "sampler": lambda: optimize.sampler(problem(), jax.random.key(0), noise=0.1),
    "half_space": lambda: optimize.half_space(ARM(), ARM().frame_names[-1], (0, 0, 1.0), 0.1),
    "GeneralizedAlpha": rbd.simulate.GeneralizedAlpha,
    "Touching": rbd.simulate.Touching,
    "identify.select": blocks,
    "learned_dynamics": networks,
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_built_twice_pickled_and_copied(name):
    """The same tree structure, with one hash, and one program for all four."""
    first, second = CASES[name](), CASES[name]()
    four = first, second, pickle.loads(pickle.dumps(first)), copy.deepcopy(first)
    chex.clear_trace_counter()  # it counts the traces of all cases together

    @eqx.filter_jit
    @chex.assert_max_traces(1)
    def copied(x):
        return [y + 0 for y in jax.tree.leaves(eqx.filter(x, eqx.is_inexact_array))]

    structure = jax.tree.structure(first)
    values = jax.tree.leaves(first)
    for other in four:
        assert jax.tree.structure(other) == structure
        assert hash(jax.tree.structure(other)) == hash(structure)
        for x, y in zip(values, jax.tree.leaves(other), strict=True):
            if eqx.is_array(x) and not jax.numpy.issubdtype(x.dtype, jax.dtypes.prng_key):
                np.testing.assert_array_equal(x, y)
            elif not eqx.is_array(x):
                assert x == y and hash(x) == hash(y)
        copied(other)


def test_reloaded_scenes_are_stacked():
    """Variants of one file are a batch, whose steps are mapped."""
    pytest.importorskip("mujoco")
    one = rbd.load_mjcf(SCENE)
    other = rbd.load_mjcf(SCENE.replace('size=".1"/><body', 'size=".12"/><body'))
    both = jax.tree.map(lambda *x: jax.numpy.stack(x), one, other)
    zero = jax.numpy.zeros(one.model.nv), jax.numpy.zeros(1)
    step = lambda s: contact.scene_step(s, s.q0, *zero).v  # noqa: E731
    mapped = jax.jit(jax.vmap(step))(both)
    for v, scene in zip(mapped, (one, other), strict=True):
        np.testing.assert_allclose(v, step(scene), rtol=1e-9, atol=1e-12)
