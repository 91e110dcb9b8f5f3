"""A fitted robot is written to its URDF. We and Pinocchio read the same robot from it."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.helpers import within

import rbd_jax as rbd
from rbd_jax.spatial.host import rotation_of_rpy, rpy_of_rotation

TOL = within(1e-12, 1e-6)
URDF = """<?xml version="1.0"?>
<!-- kept -->
<robot name="r">
  <link name="base"><inertial><mass value="3"/>
    <inertia ixx="1" ixy="0" ixz="0" iyy="1" iyz="0" izz="1"/></inertial></link>
  <link name="upper"><inertial><origin xyz="0 0.1 0.2" rpy="0.1 0.2 0.3"/><mass value="2"/>
    <inertia ixx="0.1" ixy="0.01" ixz="0" iyy="0.2" iyz="0" izz="0.15"/></inertial>
    <visual><geometry><sphere radius="1"/></geometry></visual></link>
  <link name="tool"><inertial><mass value="1"/>
    <inertia ixx="0.1" ixy="0" ixz="0" iyy="0.1" iyz="0" izz="0.1"/></inertial></link>
  <link name="lower"/>
  <joint name="shoulder" type="revolute"><parent link="base"/><child link="upper"/>
    <origin xyz="0 0 1" rpy="0.5 0 0"/><axis xyz="0 0 1"/>
    <limit lower="-1" upper="1" effort="5" velocity="2"/></joint>
  <joint name="mount" type="fixed"><parent link="upper"/><child link="tool"/>
    <origin xyz="0.3 0 0" rpy="0 0.4 0"/></joint>
  <joint name="elbow" type="prismatic"><parent link="tool"/><child link="lower"/>
    <axis xyz="0 1 0"/><limit lower="-1" upper="1" effort="5" velocity="2"/>
    <dynamics damping="0.1"/></joint>
</robot>
"""


def _changed(m, seed=0):
    """A model with changes of every parameter that a URDF can store."""
    rng = np.random.default_rng(seed)
    noise = lambda x, s: x + s * jnp.asarray(rng.normal(size=x.shape))  # noqa: E731
    A = rng.normal(size=(m.nb, 4, 4))
    P = jnp.asarray(A @ np.swapaxes(A, 1, 2))
    turn = jax.jit(lambda R, w: rbd.spatial.so3.matmul(R, rbd.spatial.so3.exp(w)))
    axis = noise(m.axis, 0.1)
    leaves = {
        "inertia": jax.jit(rbd.spatial.inertia.from_pseudo)(P),
        "placement_p": noise(m.placement_p, 0.1),
        "placement_R": turn(m.placement_R, noise(m.placement_p * 0, 0.3)),
        "axis": axis / jnp.linalg.norm(axis, axis=-1, keepdims=True),
        "damping": jnp.abs(noise(m.damping, 0.1)),
        "friction": jnp.abs(noise(m.friction, 0.1)),
    }
    return eqx.tree_at(lambda m: [getattr(m, k) for k in leaves], m, list(leaves.values()))


def _same(a, b, atol=None):
    for name in vars(a):
        if name == "topology":
            continue
        one, other = getattr(a, name), getattr(b, name)
        assert (one is None) == (other is None), name
        if one is not None:
            np.testing.assert_allclose(one, other, rtol=0, atol=TOL if atol is None else atol)


@pytest.mark.parametrize("floating", [False, True])
def test_there_and_back(floating, tmp_path):
    m = rbd.load_urdf(URDF, floating_base=floating)
    same = rbd.export_urdf(m, URDF)
    assert 'rpy="0.1 0.2 0.3"' in same and 'xyz="0.3 0 0"' in same
    _same(rbd.load_urdf(same, floating_base=floating), m, 0.0)
    changed = _changed(m)
    if floating:  # The root joint is not in the file.
        keep = lambda m: [m.placement_R, m.placement_p, m.axis, m.damping, m.friction]  # noqa: E731
        old, new = keep(m), keep(changed)
        first = [x.at[: (6 if x.ndim == 1 else 1)].set(y[: (6 if x.ndim == 1 else 1)])
                 for x, y in zip(new, old, strict=True)]  # fmt: skip
        changed = eqx.tree_at(keep, changed, first)
    text = rbd.export_urdf(changed, URDF, tmp_path / "out.urdf")
    again = rbd.load_urdf(tmp_path / "out.urdf", floating_base=floating)
    _same(again, changed)
    assert "<!-- kept -->" in text and "<sphere" in text
    assert rbd.load_urdf(text, floating_base=floating).topology == m.topology


def test_pinocchio_reads_the_same_robot():
    pin = pytest.importorskip("pinocchio")
    m = _changed(rbd.load_urdf(URDF), 1)
    theirs = pin.buildModelFromXML(rbd.export_urdf(m, URDF))
    for body, inertia in zip(m.inertia, list(theirs.inertias)[1:], strict=True):
        np.testing.assert_allclose(inertia.toDynamicParameters(), body, rtol=0, atol=TOL)
    for i in range(m.nb):
        T = theirs.jointPlacements[i + 1]
        np.testing.assert_allclose(T.translation, m.placement_p[i], rtol=0, atol=TOL)
        np.testing.assert_allclose(T.rotation, m.placement_R[i], rtol=0, atol=TOL)


def test_what_cannot_be_written_is_said():
    m = rbd.load_urdf(URDF)
    heavy = eqx.tree_at(lambda m: m.armature, m, m.armature + 1.0)
    with pytest.warns(rbd.RobotDescriptionWarning, match="armature"):
        rbd.export_urdf(heavy, URDF)
    with pytest.raises(ValueError, match="loaded from"):
        rbd.export_urdf(rbd.samples.pendulum(), URDF)


@pytest.mark.parametrize("which", ["plain", "no_name", "own_root_joint"])
def test_the_own_file_is_taken(which, tmp_path):
    path = tmp_path / "nameless.urdf"
    path.write_text({
        "plain": URDF,
        "no_name": URDF.replace(' name="r"', ""),
        "own_root_joint": URDF.replace("shoulder", "root_joint"),
    }[which])  # fmt: skip
    m = rbd.load_urdf(path)
    _same(rbd.load_urdf(rbd.export_urdf(m, path)), m)


def test_mass_on_a_frame_that_moved_stays_where_it_was():
    """The inertia belongs to the body. A link that moves must not take its part along."""
    m = rbd.load_urdf(URDF)
    tool = m.topology.frame_index("tool")
    moved = eqx.tree_at(lambda m: m.frame_p, m, m.frame_p.at[tool, 2].add(0.3))
    _same(rbd.load_urdf(rbd.export_urdf(moved, URDF)), moved)


@pytest.mark.parametrize("floating", [False, True])
@pytest.mark.parametrize("link", ["base", "upper", "lower"])
def test_a_moved_frame_that_is_not_behind_a_fixed_joint_is_refused(link, floating):
    m = rbd.load_urdf(URDF, floating_base=floating)
    k = m.topology.frame_index(link)
    moved = eqx.tree_at(lambda m: m.frame_p, m, m.frame_p.at[k, 2].add(0.3))
    turned = eqx.tree_at(lambda m: m.frame_R, m, m.frame_R.at[k].set(np.diag([-1.0, -1.0, 1.0])))
    for odd in (moved, turned):
        with pytest.raises(ValueError, match=f"frame of link '{link}' has moved"):
            rbd.export_urdf(odd, URDF)


def test_a_first_moment_without_a_mass_is_refused():
    m = rbd.load_urdf(URDF)
    odd = eqx.tree_at(lambda m: m.inertia, m, m.inertia.at[0, 0].set(0.0))
    with pytest.raises(ValueError, match="body 'upper' has the mass 0.0 and the first moment"):
        rbd.export_urdf(odd, URDF)


def test_another_robot_is_refused_with_what_differs():
    with pytest.raises(ValueError, match="with other frame_names; give the file"):
        rbd.export_urdf(rbd.load_urdf(URDF), URDF.replace('"tool"', '"hand"'))


@pytest.mark.parametrize(
    "name", ["position_lower", "position_upper", "velocity_limit", "effort_limit"]
)
def test_changed_limits_are_warned_of(name):
    m = rbd.load_urdf(URDF)
    changed = eqx.tree_at(lambda m: getattr(m, name), m, getattr(m, name).at[0].set(jnp.inf))
    with pytest.warns(rbd.RobotDescriptionWarning, match=f"change of {name} is not written"):
        rbd.export_urdf(changed, URDF)


def test_rpy():
    rng = np.random.default_rng(0)
    special = [[0.3, s * np.pi / 2, -0.4] for s in (1, -1)] + [[np.pi, 0, 0], [0, np.pi, 0]]
    for rpy in [*rng.uniform(-3, 3, (20, 3)), *special]:
        R = rotation_of_rpy(np.array(rpy))
        np.testing.assert_allclose(rotation_of_rpy(rpy_of_rotation(R)), R, rtol=0, atol=1e-14)
