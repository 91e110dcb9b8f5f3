"""From a description to a model: merging, frames, leaves."""

import inspect

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.descriptions import Y, joint, merged, one_joint, robot
from support.helpers import KINDS, assert_close

import rbd_jax as rbd
from rbd_jax import LinkSpec, RobotSpec, build_model
from rbd_jax.spatial import inertia


def moved(spec: RobotSpec, *names: str) -> np.ndarray:
    """The product of these joints' placements, 4×4."""
    T = np.eye(4)
    for j in (j for n in names for j in spec.joints if j.name == n):
        step = np.eye(4)
        step[:3, :3], step[:3, 3] = j.R, j.p
        T = T @ step
    return T


# --- merging and frames --------------------------------------------------------------------------


def test_links_behind_fixed_joints_are_merged_into_their_body():
    spec = merged()
    model = build_model(spec)
    assert model.body_names == ("a", "d") and model.joint_names == ("j0", "j1")
    parts = {"a": moved(spec), "b": moved(spec, "weld1"), "c": moved(spec, "weld1", "weld2")}
    of = {x.name: x for x in spec.links}
    mass = sum(of[n].mass for n in parts)
    coms = {n: T[:3, :3] @ of[n].com + T[:3, 3] for n, T in parts.items()}
    com = sum(of[n].mass * coms[n] for n in parts) / mass
    total = np.zeros((3, 3))
    for n, T in parts.items():
        d = coms[n] - com
        shift = of[n].mass * (d @ d * np.eye(3) - np.outer(d, d))
        total += T[:3, :3] @ of[n].inertia @ T[:3, :3].T + shift
    body = model.inertia[0]
    assert_close(inertia.mass(body), mass, atol=1e-14)
    assert_close(inertia.com(body), com, atol=1e-14)
    assert_close(inertia.inertia_com(body), total, atol=1e-14)
    d = of["d"]
    alone = inertia.from_com(*map(jnp.asarray, (d.mass, d.com, d.inertia)))
    assert_close(model.inertia[1], alone, atol=1e-15)


@pytest.mark.parametrize("gravity", [-9.81, (0, 0), (0, 0, np.nan), np.zeros((1, 3))])
def test_gravity_is_three_finite_numbers(gravity):
    plain = inspect.unwrap(build_model)  # else the check of the annotations comes first
    with pytest.raises(ValueError, match="gravity must be three finite numbers"):
        plain(RobotSpec("rock", (LinkSpec("base", 1.0),), ()), gravity=gravity)


def test_a_robot_of_integers_is_refused():
    with pytest.raises(TypeError, match="dtype must be a float such as jnp.float32"):
        build_model(RobotSpec("rock", (LinkSpec("base", 1.0),), ()), dtype=int)


def test_joint_placements_go_through_merged_links():
    spec = merged()
    model = build_model(spec)
    for body, joints in enumerate([("j0",), ("weld1", "weld2", "j1")]):
        T = moved(spec, *joints)
        assert_close(model.placement_R[body], T[:3, :3], atol=1e-15)
        assert_close(model.placement_p[body], T[:3, 3], atol=1e-15)


def test_every_link_is_a_frame():
    spec = merged()
    model = build_model(spec)
    assert model.frame_names == ("base", "a", "b", "c", "d", "post")
    assert model.topology.frame_bodies == (-1, 0, 0, 0, 1, -1)
    for name, joints in {"c": ("weld1", "weld2"), "post": ("weld3",), "d": ()}.items():
        T, i = moved(spec, *joints), model.topology.frame_index(name)
        assert_close(model.frame_R[i], T[:3, :3], atol=1e-15)
        assert_close(model.frame_p[i], T[:3, 3], atol=1e-15)


def test_floating_base():
    spec = merged()
    fixed, free = build_model(spec), build_model(spec, floating_base=True)
    assert free.joint_names == ("root_joint", *fixed.joint_names)
    assert free.topology.kinds[0] == "free" and free.topology.parents == (-1, 0, 1)
    assert free.topology.frame_bodies == (0, 1, 1, 1, 2, 0)
    masses = {x.name: x.mass for x in spec.links}
    assert_close(inertia.mass(free.inertia[0]), masses["base"] + masses["post"], atol=1e-14)
    assert_close(free.inertia[1:], fixed.inertia, atol=0)


def test_bodies_are_numbered_depth_first_in_document_order():
    edges = [("base", "l"), ("base", "r"), ("l", "l2"), ("r", "r2"), ("l", "l3")]
    spec = robot(*(joint(f"to_{c}", "revolute", p, c) for p, c in edges))
    assert build_model(spec).body_names == ("l", "l2", "l3", "r", "r2")


# --- leaves --------------------------------------------------------------------------------------


@pytest.mark.float64
@pytest.mark.parametrize("dtype", [None, jnp.float32, "float32", np.dtype("float64")])
def test_dtype_of_the_leaves(dtype):
    model = build_model(merged(), dtype=dtype)
    assert {x.dtype for x in jax.tree.leaves(model)} == {np.dtype(dtype or "float64")}


def test_gravity_is_a_leaf():
    assert_close(build_model(merged()).gravity, np.array([0, 0, -9.81]), atol=0)
    assert_close(
        build_model(merged(), gravity=(1.0, 2.0, 3.0)).gravity, np.array([1.0, 2, 3]), atol=0
    )


@pytest.mark.float64
def test_limits_damping_friction_and_armature_reach_their_leaves():
    given = {"damping": 0.1, "friction": 0.2, "armature": 0.3, "velocity": 4.0, "effort": 5.0}
    model = build_model(one_joint("revolute", lower=-1.0, upper=2.0, **given))
    leaves = (model.damping, model.friction, model.armature, model.velocity_limit,
              model.effort_limit, model.position_lower, model.position_upper)  # fmt: skip
    assert [float(x[0]) for x in leaves] == [0.1, 0.2, 0.3, 4.0, 5.0, -1.0, 2.0]


@pytest.mark.parametrize("kind", [k for k in KINDS if k != "helical"])
def test_missing_limits_are_infinite(kind):
    model = build_model(one_joint(kind, axis2=Y))
    for high in (model.position_upper, model.velocity_limit, model.effort_limit):
        assert np.all(high == np.inf)
    assert np.all(model.position_lower == -np.inf)
    assert not np.any(model.pitch)


def test_a_continuous_joint_is_revolute_without_limits():
    model = build_model(one_joint("continuous", lower=-1.0, upper=1.0))
    assert model.topology.kinds == ("revolute",)
    assert model.position_lower[0] == -np.inf and model.position_upper[0] == np.inf


def test_pitch_is_for_helical_joints_only():
    assert build_model(one_joint("helical", pitch=0.1)).pitch[0] == 0.1
    assert build_model(one_joint("revolute", pitch=0.1)).pitch[0] == 0.0


def test_axes_are_normalized():
    assert_close(build_model(one_joint("revolute", axis=3 * Y)).axis, Y[None], atol=0)


URDF = """<robot name="r"><link name="base"/><link name="a"/><link name="b"/>
<joint name="j" type="prismatic"><parent link="base"/><child link="a"/>
<limit effort="1" velocity="1"/></joint>
<joint name="k" type="prismatic"><parent link="a"/><child link="b"/>
<limit effort="1" velocity="1"/><mimic joint="j" multiplier="2"/></joint></robot>"""
MJCF = """<mujoco><worldbody><geom type="plane" size="1 1 1"/><body><freejoint/><geom size=".1"/>
</body></worldbody></mujoco>"""
BUILDERS = {
    "build_model": lambda: build_model(one_joint("revolute")),
    "load_urdf": lambda: rbd.load_urdf(URDF),
    "load_mjcf": lambda: rbd.load_mjcf(MJCF),
}


@pytest.mark.parametrize("name", BUILDERS)
def test_what_is_built_within_jit_has_numbers(name):
    """A cache may keep it when the trace has ended."""
    if name == "load_mjcf":
        pytest.importorskip("mujoco")
    kept = []
    jax.eval_shape(lambda: kept.append(BUILDERS[name]()))
    leaves = jax.tree.leaves(kept)
    assert leaves and not any(isinstance(leaf, jax.core.Tracer) for leaf in leaves)
