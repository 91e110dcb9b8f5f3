"""From a description to a model: merging, frames, composites, refusals, the shape of the tree."""

import dataclasses
import inspect
import time

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.helpers import KINDS, assert_close, jit

import rbd_jax as rbd
from rbd_jax import JointSpec, LinkSpec, RobotDescriptionError, RobotSpec, build_model
from rbd_jax.model import ELEMENTARY, joint_placements
from rbd_jax.spatial import inertia

samples = rbd.samples
X, Y, Z = np.eye(3)


def link(name: str, seed: int) -> LinkSpec:
    """A link with a random physical inertia."""
    return samples._random_link(np.random.default_rng(seed), name)


def joint(name: str, kind: str, parent: str, child: str, seed: int | None = None, **more):
    """A joint with a random placement, or none without a seed."""
    if seed is not None:
        rng = np.random.default_rng(seed)
        more = {"R": samples._random_rotation(rng), "p": rng.normal(size=3)} | more
    return JointSpec(name, kind, parent, child, **more)


def robot(*joints: JointSpec, links=None, name="robot") -> RobotSpec:
    """A robot of these joints; links not given are made from their names."""
    names = dict.fromkeys(n for j in joints for n in (j.parent, j.child))
    return RobotSpec(name, tuple(links or (link(n, i) for i, n in enumerate(names))), joints)


def one_joint(kind: str, **more) -> RobotSpec:
    return robot(joint("j", kind, "base", "link", **more))


def merged() -> RobotSpec:
    """base –revolute→ a –fixed→ b –fixed→ c –revolute→ d, and base –fixed→ post."""
    return robot(
        joint("j0", "revolute", "base", "a", 1, axis=Y),
        joint("weld1", "fixed", "a", "b", 2),
        joint("weld2", "fixed", "b", "c", 3),
        joint("j1", "revolute", "c", "d", 4, axis=Z),
        joint("weld3", "fixed", "base", "post", 5),
    )


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


@pytest.mark.parametrize("dtype", [None, jnp.float32, "float32", np.dtype("float64")])
def test_dtype_of_the_leaves(dtype):
    model = build_model(merged(), dtype=dtype)
    assert {x.dtype for x in jax.tree.leaves(model)} == {np.dtype(dtype or "float64")}


def test_gravity_is_a_leaf():
    assert_close(build_model(merged()).gravity, np.array([0, 0, -9.81]), atol=0)
    assert_close(
        build_model(merged(), gravity=(1.0, 2.0, 3.0)).gravity, np.array([1.0, 2, 3]), atol=0
    )


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


def test_axes_are_normalised():
    assert_close(build_model(one_joint("revolute", axis=3 * Y)).axis, Y[None], atol=0)


# --- composites ----------------------------------------------------------------------------------


def rotation(axis: np.ndarray, angle: float) -> np.ndarray:
    K = np.cross(axis / np.linalg.norm(axis), np.eye(3)).T
    return np.eye(3) + np.sin(angle) * K + (1 - np.cos(angle)) * K @ K


def whole(spec: RobotSpec, q) -> tuple[np.ndarray, np.ndarray]:
    """Pose of the last body of a chain that starts at the world."""
    R, p = np.eye(3), np.zeros(3)
    Rs, ps = map(np.asarray, jit(joint_placements)(build_model(spec), jnp.asarray(q)))
    for Ri, pi in zip(Rs, ps, strict=True):
        R, p = R @ Ri, p + R @ pi
    return R, p


def test_cylindrical_joint():
    axis = np.array([0.0, 0.6, 0.8])
    R, p = whole(one_joint("cylindrical", axis=axis), [0.3, 0.7])
    assert_close((R, p), (rotation(axis, 0.7), 0.3 * axis), atol=1e-15)


def test_universal_joint():
    axis2 = np.array([0.0, 0.6, 0.8])
    R, p = whole(one_joint("universal", axis=X, axis2=axis2), [0.3, 0.7])
    assert_close((R, p), (rotation(X, 0.3) @ rotation(axis2, 0.7), np.zeros(3)), atol=1e-15)


def test_planar_joint_about_z_moves_in_x_and_y():
    R, p = whole(one_joint("planar", axis=2 * Z), [0.3, 0.7, 1.1])
    assert_close((R, p), (rotation(Z, 1.1), np.array([0.3, 0.7, 0.0])), atol=1e-15)


def _tilted(angle: float) -> np.ndarray:
    return np.array([0.6 * np.sin(angle), 0.8 * np.sin(angle), -np.cos(angle)])


NORMALS = [X, -X, Y, -Y, Z, -Z, np.array([1.0, -2.0, 0.5])]
NEAR_DOWN = [_tilted(t) for t in (1e-7, 1e-6, 2e-6, 1e-5, 1e-3)]


@pytest.mark.parametrize("normal", [*NORMALS, *NEAR_DOWN])
def test_planar_axes_are_a_right_handed_frame_with_the_normal(normal):
    model = build_model(one_joint("planar", axis=normal))
    frame = np.asarray(model.axis).T
    assert_close(frame.T @ frame, np.eye(3), atol=1e-15)
    assert np.linalg.det(frame) > 0
    assert_close(frame[:, 2], normal / np.linalg.norm(normal), atol=1e-15)


@pytest.mark.parametrize("kind, parts", [("cylindrical", 2), ("universal", 2), ("planar", 3)])
def test_composites_put_the_placement_first_and_the_mass_last(kind, parts):
    spec = robot(
        joint("j", kind, "base", "link", 7, axis2=Y), joint("next", "revolute", "link", "tip")
    )
    model = build_model(spec)
    assert model.nb == parts + 1 and model.topology.parents == tuple(range(-1, parts))
    assert model.body_names[-2:] == ("link", "tip")
    assert not np.any(model.inertia[: parts - 1]) and model.inertia[parts - 1, 0] > 0
    eye = np.broadcast_to(np.eye(3), (parts - 1, 3, 3))
    assert_close(model.placement_R[1:parts], eye, atol=0)
    assert_close(model.placement_R[0], spec.joints[0].R, atol=0)
    assert model.v_slice("j") == slice(0, parts) and model.v_slice("next") == slice(
        parts, parts + 1
    )


# --- refusals ------------------------------------------------------------------------------------


def _chain(**changes) -> RobotSpec:
    """base → a → b, with the first joint changed."""
    first = dataclasses.replace(joint("j0", "revolute", "base", "a"), **changes)
    return robot(
        first, joint("j1", "revolute", "a", "b"), links=[link(n, 0) for n in ("base", "a", "b")]
    )


def _with(spec: RobotSpec, *joints: JointSpec, links=()) -> RobotSpec:
    return dataclasses.replace(spec, joints=spec.joints + joints, links=spec.links + tuple(links))


def _with_link(**changes) -> RobotSpec:
    spec = _chain()
    return dataclasses.replace(
        spec, links=(*spec.links[:-1], dataclasses.replace(spec.links[-1], **changes))
    )


REFUSED = {
    "scaled rotation": (_chain(R=2 * np.eye(3)), r"joint 'j0' has an R that is no rotation matrix"),
    "reflection": (_chain(R=np.diag([1.0, 1, -1])), r"joint 'j0' has an R that is no rotation"),
    "two numbers for a place": (_chain(p=np.zeros(2)), r"'j0' needs a finite p of shape \(3,\)"),
    "negative mass": (_with_link(mass=-1.0), r"link 'b' has mass -1.0; it must be finite"),
    "infinite mass": (_with_link(mass=np.inf), r"link 'b' has mass inf; it must be finite"),
    "no inertia matrix": (_with_link(inertia=np.zeros(3)), r"'b' needs inertia of shape \(3, 3\)"),
    "no number": (_with_link(com=np.full(3, np.nan)), r"'b' needs com of shape \(3,\), finite"),
    "unknown kind": (_chain(kind="ball"), r"joint 'j0' has the unknown type 'ball'; known: rev"),
    "unknown parent": (_chain(parent="nobody"), r"joint 'j0' names the parent link 'nobody'"),
    "unknown child": (_chain(child="nobody"), r"joint 'j0' names the child link 'nobody', which"),
    "zero axis": (_chain(axis=np.zeros(3)), r"joint 'j0' has a zero axis"),
    "nan axis": (_chain(axis=np.full(3, np.nan)), r"joint 'j0' has a zero axis"),
    "zero normal": (_chain(kind="planar", axis=np.zeros(3)), r"joint 'j0' has a zero axis"),
    "no second axis": (_chain(kind="universal"), r"universal joint 'j0' needs axis2"),
    "parallel axes": (_chain(kind="universal", axis=Y, axis2=-2 * Y), r"not parallel to its axis"),
    "no links": (RobotSpec("robot", (), ()), r"it has no links"),
    "link twice": (_with(_chain(), links=[link("a", 1)]), r"link name 'a' is used more than once"),
    "joint twice": (
        _with(_chain(), joint("j0", "fixed", "b", "c"), links=[link("c", 1)]),
        r"joint name 'j0' is used more than once",
    ),
    "loop": (
        _with(_chain(), joint("j2", "revolute", "base", "b")),
        r"link 'b' is the child of 2 joints \['j1', 'j2'\]: a kinematic loop",
    ),
    "several roots": (
        _with(_chain(), links=[link("island", 1)]),
        r"it has 2 root links \['base', 'island'\]",
    ),
    "cycle": (
        _with(_chain(), joint("j2", "revolute", "b", "base")),
        r"every link is some joint's child: the joints form a cycle",
    ),
    "cycle beside the root": (
        _with(_chain(), joint("j2", "fixed", "c", "d"), joint("j3", "fixed", "d", "c"),
              links=[link("c", 1), link("d", 2)]),
        r"links \['c', 'd'\] hang on a cycle of joints and not on the root",
    ),
    "link on itself": (
        _with(_chain(), joint("j2", "revolute", "c", "c"), links=[link("c", 1)]),
        r"links \['c'\] hang on a cycle",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_descriptions_that_are_refused(case):
    spec, message = REFUSED[case]
    with pytest.raises(RobotDescriptionError, match=message):
        build_model(spec)


def test_the_description_that_the_refusals_spoil_is_accepted():
    assert build_model(_chain()).body_names == ("a", "b")


def test_a_second_root_joint_is_refused():
    spec = _chain(name="root_joint")
    assert build_model(spec).joint_names[0] == "root_joint"
    with pytest.raises(RobotDescriptionError, match="'root_joint' already"):
        build_model(spec, floating_base=True)


@pytest.mark.parametrize(
    "kind", [k for k in ELEMENTARY if k in ("spherical", "translation", "free")]
)
def test_kinds_without_an_axis_do_not_ask_for_one(kind):
    model = build_model(one_joint(kind, axis=np.zeros(3)))
    assert_close(model.axis, np.zeros((1, 3)), atol=0)


# --- topology ------------------------------------------------------------------------------------


def test_a_chain_of_1500_links_is_built_without_recursion():
    start = time.perf_counter()
    model = samples.chain(1500)
    assert time.perf_counter() - start < 20.0
    topo = model.topology
    assert topo.nb == 1500 and topo.tree.depths[-1] == 1499
    assert np.array_equal(topo.tree.ancestor_mask, np.tri(1500, dtype=bool))


def test_equal_descriptions_have_equal_topologies_and_share_compiled_code():
    other = dataclasses.replace(merged(), name="another")  # a name alone makes no other robot
    a, b = build_model(merged()), build_model(other, gravity=(0.0, 0.0, 0.0))
    assert a.topology == b.topology and hash(a.topology) == hash(b.topology)
    assert a.topology is not b.topology
    traces = []

    @jax.jit
    def weight(model):
        traces.append(model.topology)
        return jnp.sum(model.inertia[:, 0]) * model.gravity[2]

    assert weight(a) < 0 and weight(b) == 0
    assert len(traces) == 1
    fleet = jax.tree.map(lambda *x: jnp.stack(x), a, b)
    assert jax.vmap(rbd.total_mass)(fleet).shape == (2,)


@pytest.mark.parametrize(
    "other",
    [
        dataclasses.replace(merged(), joints=merged().joints[:-1], links=merged().links[:-1]),
        RobotSpec("robot", merged().links, (*merged().joints[:3],
                  dataclasses.replace(merged().joints[3], kind="prismatic"), merged().joints[4])),
    ],
    ids=["frames", "kinds"],
)  # fmt: skip
def test_other_descriptions_have_other_topologies(other):
    assert build_model(other).topology != build_model(merged()).topology


def test_static_arrays_of_a_branching_tree():
    edges = [("base", "a"), ("a", "b"), ("b", "c"), ("a", "d"), ("base", "e"), ("e", "f")]
    names = ("free", "revolute", "spherical", "translation", "helical", "prismatic")
    kinds = dict(zip("abcdef", names, strict=True))
    topo = build_model(robot(*(joint(f"to_{c}", kinds[c], p, c) for p, c in edges))).topology
    assert topo.parents == (-1, 0, 1, 0, -1, 4)
    assert topo.tree.depths.tolist() == [0, 1, 2, 1, 0, 1]
    assert topo.tree.roots.tolist() == [0, 0, 0, 0, 4, 4]
    assert topo.tree.parent_rows.tolist() == [6, 0, 1, 0, 6, 4]
    assert topo.q_starts.tolist() == [0, 7, 8, 12, 15, 16, 17]
    assert topo.v_starts.tolist() == [0, 6, 7, 10, 13, 14, 15]
    assert topo.dof_bodies.tolist() == [0] * 6 + [1] + [2] * 3 + [3] * 3 + [4] + [5]
    ancestors = [{0}, {0, 1}, {0, 1, 2}, {0, 3}, {4}, {4, 5}]
    assert [set(np.flatnonzero(row)) for row in topo.tree.ancestor_mask] == ancestors
    assert topo.bodies_of("helical", "free").tolist() == [0, 4]


@pytest.mark.parametrize("seed", range(5))
def test_static_arrays_of_random_trees_by_walking_up(seed):
    topo = samples.random_tree(seed, n=12).topology
    for i in range(topo.nb):
        path, j = [], i
        while j >= 0:
            path.append(j)
            j = topo.parents[j]
        assert path == sorted(path, reverse=True)
        assert np.flatnonzero(topo.tree.ancestor_mask[i]).tolist() == path[::-1]
        assert topo.tree.depths[i] == len(path) - 1 and topo.tree.roots[i] == path[-1]


def test_tree_of_degrees_of_freedom():
    edges = [("base", "a"), ("a", "b"), ("a", "c")]
    kinds = {"a": "spherical", "b": "revolute", "c": "translation"}
    topo = build_model(robot(*(joint(f"to_{c}", kinds[c], p, c) for p, c in edges))).topology
    assert topo.dof_tree.parents == (-1, 0, 1, 2, 2, 4, 5)


@pytest.mark.parametrize("seed", range(5))
def test_levels_and_jumps_of_random_trees(seed):
    tree = samples.random_tree(seed, n=12).topology.tree
    levels, n = tree.levels, tree.n
    depths = tree.depths
    slots = {}
    for i in range(n):
        level, slot = divmod(int(levels.position[i]), levels.shape[1])
        assert level == depths[i] and levels.nodes[level, slot] == i
        slots[i] = slot
    for i, p in enumerate(tree.parents):
        if p >= 0:
            assert levels.parent_slots[depths[i], slots[i]] == slots[p]
            assert levels.gather[depths[p], slots[p], slots[i]] == 1
    for k, up in enumerate(tree.jumps):
        ancestors = [np.flatnonzero(row)[::-1] for row in tree.ancestor_mask]
        expected = [int(a[2**k]) if len(a) > 2**k else -1 for a in ancestors]
        assert up.tolist() == expected
    assert 2 ** len(tree.jumps) > depths.max()
