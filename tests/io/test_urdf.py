"""The URDF reader: what it reads, real robots against Pinocchio, mimic joints."""

import warnings
from functools import cache

import jax.numpy as jnp
import numpy as np
import pytest

import rbd_jax as rbd
from rbd_jax.io import example_robot, example_robots, load_urdf, read_urdf
from rbd_jax.io._build import collect_bodies
from rbd_jax.io._diagnose import diagnose
from rbd_jax.io._singular import gimbals, mass_matrix, singular_joints
from rbd_jax.model import with_mimics
from rbd_jax.spatial.host import rotation_of_rpy

EMPTY = {"ur3": "it has no links"}  # a xacro that was expanded to nothing
SINGULAR = {"romeo": 24, "romeo_laas_small": 2}  # massless fingers and grippers
ROBOTS = example_robots()
robots = pytest.mark.parametrize("name", [n for n in ROBOTS if n not in EMPTY])
if not ROBOTS:
    robots = pytest.mark.skip(reason="example-robot-data is not installed")

TEXT = """<?xml version="1.0"?>
<robot name="r">
  <link name="world"/>
  <link name="a"><inertial><origin xyz="1 2 3" rpy="0.1 0.2 0.3"/><mass value="2.5e0"/>
    <inertia ixx="1" ixy="0.1" ixz="0.2" iyy="2" iyz="0.3" izz="2.5"/></inertial></link>
  <link name="b"><inertial><mass value=".5"/>
    <inertia ixx="1" ixy="0" ixz="0" iyy="1" iyz="0" izz="1"/></inertial></link>
  <link name="c"/> <link name="d"/> <link name="e"/> <link name="f"/>
  <joint name="j1" type="revolute"><parent link="world"/><child link="a"/>
    <origin xyz="0 0  1" rpy="0 0 1.5707963267948966"/><axis xyz="0 3 4"/>
    <limit lower="-1" upper="2" effort="3" velocity="4"/>
    <dynamics damping="0.5" friction="0.25"/></joint>
  <joint name="j2" type="continuous"><parent link="a"/><child link="b"/>
    <limit lower="-1" upper="1" effort="5"/></joint>
  <joint name="j3" type="prismatic"><parent link="a"/><child link="c"/>
    <limit upper="1"/><mimic joint="j1" multiplier="-2" offset="0.1"/></joint>
  <joint name="j4" type="planar"><parent link="b"/><child link="d"/><axis xyz="0 1 0"/></joint>
  <joint name="j5" type="floating"><parent link="d"/><child link="e"/></joint>
  <joint name="j6" type="spherical"><parent link="a"/><child link="f"/></joint>
</robot>"""


@cache
def spec_of(name):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return read_urdf(ROBOTS[name])


def test_reads_what_is_written():
    spec = read_urdf(TEXT)
    assert [x.name for x in spec.links] == ["world", "a", "b", "c", "d", "e", "f"]
    a = spec.links[1]
    assert a.mass == 2.5
    np.testing.assert_array_equal(a.com, [1, 2, 3])
    I = np.array([[1, 0.1, 0.2], [0.1, 2, 0.3], [0.2, 0.3, 2.5]])
    R = rotation_of_rpy(np.array([0.1, 0.2, 0.3]))
    np.testing.assert_allclose(R.T @ a.inertia @ R, I, atol=1e-15)
    j = {j.name: j for j in spec.joints}
    kinds = ["revolute", "continuous", "prismatic", "planar", "free", "spherical"]
    assert [x.kind for x in spec.joints] == kinds
    np.testing.assert_allclose(j["j1"].axis, [0, 0.6, 0.8])
    np.testing.assert_allclose(j["j1"].R, [[0, -1, 0], [1, 0, 0], [0, 0, 1]], atol=1e-15)
    numbers = [getattr(j["j1"], k) for k in ("lower", "upper", "effort", "velocity")]
    assert numbers == [-1, 2, 3, 4]
    assert (j["j1"].damping, j["j1"].friction) == (0.5, 0.25)
    assert (j["j2"].lower, j["j2"].effort, j["j2"].velocity) == (None, 5, None)
    assert (j["j3"].lower, j["j3"].upper) == (0, 1)  # the specification's default
    np.testing.assert_array_equal(j["j3"].axis, [1, 0, 0])
    assert j["j3"].mimic == rbd.model.MimicSpec("j1", -2.0, 0.1)


def test_rpy_turns_about_fixed_axes():
    x, y, z = (rotation_of_rpy(a) for a in 0.3 * np.eye(3))
    np.testing.assert_allclose(rotation_of_rpy(np.full(3, 0.3)), z @ y @ x, atol=1e-15)
    np.testing.assert_allclose(x[1:, 1:], [[np.cos(0.3), -np.sin(0.3)], [np.sin(0.3), np.cos(0.3)]])


def test_load_urdf():
    model = load_urdf(TEXT, gravity=(0.0, 0.0, -1.62), mimic="independent")
    assert (model.nq, model.nv, model.nb) == (1 + 1 + 1 + 3 + 7 + 4, 1 + 1 + 1 + 3 + 6 + 3, 8)
    assert set(model.frame_names) == {"world", "a", "b", "c", "d", "e", "f"}
    assert model.v_slice("j4") == slice(2, 5)
    assert float(model.gravity[2]) == pytest.approx(-1.62)
    assert float(model.position_upper[model.q_slice("j2")][0]) == np.inf
    floating = load_urdf(TEXT, True, "float32", mimic="independent")
    assert (floating.nv, floating.dtype) == (model.nv + 6, np.float32)
    assert floating.joint_names[0] == "root_joint"
    following = load_urdf(TEXT)
    assert (following.nv, following.robot.nv) == (model.nv - 1, model.nv)
    assert [law.driven.joint_names for law in following.laws] == [("j3",)]
    with pytest.raises(rbd.RobotDescriptionError, match="joints that mimic another: 'j3'"):
        load_urdf(TEXT, mimic="error")


def test_example_robots():
    if not ROBOTS:
        with pytest.raises(FileNotFoundError, match="pip install"):
            example_robot("talos_full_v2")
        return
    assert len(ROBOTS) >= 69
    assert example_robot("hyq_no_sensors").is_file()
    assert example_robot("talos") == ROBOTS["talos_full_v2"]
    assert example_robot("hyq") == ROBOTS["hyq_no_sensors"]
    assert example_robot("panda") == ROBOTS["panda"]
    assert example_robot("talos_le").stem == "talos_left_arm"
    with pytest.raises(KeyError, match="no example robot 'tallos'; nearest .*talos"):
        example_robot("tallos")
    with pytest.raises(KeyError, match="no example robot ''; nearest or first"):
        example_robot("")
    for name, reason in EMPTY.items():
        with pytest.raises(rbd.RobotDescriptionError, match=reason):
            load_urdf(ROBOTS[name])


@robots
def test_real_robot_against_pinocchio(name):
    """Masses, degrees of freedom by joint name, and the whole mass matrix."""
    pin = pytest.importorskip("pinocchio")
    spec = spec_of(name)
    bodies = collect_bodies(spec, floating_base=False)
    text = ROBOTS[name].read_text(encoding="utf-8")
    fixed = pin.buildModelFromXML(text)
    floating = pin.buildModelFromXML(text, pin.JointModelFreeFlyer())
    mass = sum(I.mass for I in floating.inertias)
    np.testing.assert_allclose(sum(x.mass for x in spec.links), mass, rtol=1e-12)
    assert set(bodies.joint_names) == set(fixed.names) - {"universe"}
    q, theirs = np.random.default_rng(0).uniform(-2, 2, len(bodies.joints)), pin.neutral(fixed)
    order = np.zeros(fixed.nv, dtype=int)
    for i, (joint, value) in enumerate(zip(bodies.joints, q, strict=True)):
        j = fixed.joints[fixed.getJointId(joint.name)]
        assert j.nv == 1
        theirs[j.idx_q : j.idx_q + j.nq] = value if j.nq == 1 else (np.cos(value), np.sin(value))
        order[j.idx_v] = i
    singular = singular_joints(bodies)
    assert len(singular) == SINGULAR.get(name, 0)
    if fixed.nv == 0:
        return
    M = np.triu(pin.crba(fixed, fixed.createData(), theirs))
    M += np.triu(M, 1).T
    ours = mass_matrix(bodies, q)[0][np.ix_(order, order)]
    np.testing.assert_allclose(ours, M, atol=1e-10 * np.abs(M).max())
    scale = np.sqrt(np.diag(M))
    rank = np.linalg.matrix_rank(M / np.outer(scale, scale), tol=1e-9) if scale.all() else -1
    assert (rank < fixed.nv) == bool(singular)


@robots
def test_real_robot_loads_with_few_warnings(name):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        spec = read_urdf(ROBOTS[name])
        found = diagnose(spec, collect_bodies(spec, floating_base=True))
    assert len(caught) + len(found) <= 3
    assert all(w.category is rbd.RobotDescriptionWarning for w in caught)


def test_massless_bodies_inside_the_tree_are_fine():
    if not ROBOTS:
        pytest.skip("example-robot-data is not installed")
    bodies = collect_bodies(spec_of("human"), floating_base=False)
    assert sum(P[3, 3] == 0 for P in bodies.pseudo) >= 15
    assert not singular_joints(bodies)


def test_chains_of_hinges_with_massless_links_lock_at_a_right_angle():
    """The middle hinge makes the first and the last axis parallel."""
    if not ROBOTS:
        pytest.skip("example-robot-data is not installed")
    bodies = collect_bodies(spec_of("human"), floating_base=False)
    middle = [bodies.joint_names.index(chain[1]) for chain in gimbals(bodies)]
    q = np.random.default_rng(0).uniform(-0.5, 0.5, len(bodies.joints))
    for angle, locked in ((0.3, 0), (np.pi / 2, len(middle))):
        q[middle] = angle
        M, _ = mass_matrix(bodies, q)
        scale = np.sqrt(np.diag(M))
        assert np.sum(np.linalg.eigvalsh(M / np.outer(scale, scale)) < 1e-9) == locked
    assert len(middle) >= 5


def _chain(*mimics, kinds=("revolute",) * 4):
    spec = [rbd.LinkSpec("l0")]
    joints = []
    for i, kind in enumerate(kinds):
        spec.append(rbd.LinkSpec(f"l{i + 1}", 1.0, np.ones(3), np.eye(3)))
        rule = {j: m for j, m in mimics}.get(f"j{i}")
        joints.append(rbd.JointSpec(f"j{i}", kind, f"l{i}", f"l{i + 1}", mimic=rule))
    return rbd.build_model(rbd.RobotSpec("r", tuple(spec), tuple(joints)))


def test_mimic_chain():
    """j1 follows j2, which comes later and follows j3."""
    model = with_mimics(
        _chain(
            ("j1", rbd.model.MimicSpec("j2", 2.0, 0.1)),
            ("j2", rbd.model.MimicSpec("j3", -3.0, 0.2)),
        )
    )
    assert model.space.joint_names == ("j0", "j3")
    (law,) = model.laws
    assert (law.driven.joint_names, law.by) == (("j1", "j2"), ("j3",))
    np.testing.assert_allclose(law.position(jnp.array([1.0])), [2 * (-3 + 0.2) + 0.1, -3 + 0.2])
    np.testing.assert_allclose(law.multiplier, [-6, -3])


@pytest.mark.parametrize(
    ("target", "kinds", "message"),
    [
        ("no", "revolute", "joint 'j1' cannot mimic 'no': 'no' is no moving joint of this robot"),
        ("j1", "revolute", "joint 'j1' mimics itself: j1 -> j1; break the cycle"),
        ("j2", "revolute", "joint 'j1' mimics itself: j1 -> j2 -> j1"),
        ("j3", "spherical", "'j3' does not have exactly one degree of freedom"),
        ("j3", "planar", "'j3' does not have exactly one degree of freedom"),
        ("j3", "fixed", "'j3' is no moving joint"),
    ],
)
def test_mimic_errors(target, kinds, message):
    rules = [("j1", rbd.model.MimicSpec(target)), ("j2", rbd.model.MimicSpec("j1"))]
    model = _chain(*rules[: 2 if target == "j2" else 1], kinds=(*("revolute",) * 3, kinds))
    with pytest.raises(rbd.RobotDescriptionError, match=message):
        with_mimics(model)
