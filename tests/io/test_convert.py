"""Our q, v, a, tau, M and J against Pinocchio's, MuJoCo's and Drake's, by joint name."""

import inspect
from functools import partial
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.helpers import jit

import rbd_jax as rbd
from rbd_jax.io import convert, example_robots, load_urdf

pin = pytest.importorskip("pinocchio")

_INERTIA = (
    '<inertial><origin xyz="{c}" rpy="0.3 -0.2 0.5"/><mass value="{m}"/>'
    '<inertia ixx="0.3" ixy="0.01" ixz="-0.02" iyy="0.4" iyz="0.03" izz="0.35"/></inertial>'
)


def _link(name: str, k: int) -> str:
    c = f"{0.1 * k} -0.05 {0.02 * k}"
    return f'<link name="{name}">{_INERTIA.format(c=c, m=1 + 0.3 * k)}</link>'


def _joint(name: str, kind: str, parent: str, child: str, axis: str) -> str:
    limit = '<limit lower="-2" upper="2" effort="9" velocity="9"/>'
    return (
        f'<joint name="{name}" type="{kind}"><parent link="{parent}"/><child link="{child}"/>'
        f'<origin xyz="0.1 0.2 -0.3" rpy="0.4 0.5 -0.6"/><axis xyz="{axis}"/>{limit}</joint>'
    )


def robot(kinds: dict[str, str], plane: str = "0 0 1", root: str = "base") -> str:
    """A tree whose names are in another order than its joints."""
    axes = {"planar": plane, "revolute": "0 0.6 -0.8", "prismatic": "0 -1 0", "continuous": "0 0 1"}
    links, joints, parents = [f'<link name="{root}"/>'], [], [root]
    for k, (name, kind) in enumerate(kinds.items()):
        links.append(_link(f"l_{name}", k))
        axis = axes.get(kind, "1 0 0")
        joints.append(_joint(name, kind, parents[k // 2], f"l_{name}", axis))
        parents.append(f"l_{name}")
    compiler = '<mujoco><compiler fusestatic="false" balanceinertia="false"/></mujoco>'
    return f'<robot name="r">{compiler}{"".join(links + joints)}</robot>'


TREE = {"z": "revolute", "c": "continuous", "a": "prismatic", "p": "planar", "b": "revolute"}
FREE = {"f": "floating", **TREE}


def state(model, seed=0):
    """Configuration, with quaternions that are not normalized, velocity and acceleration."""
    q = jit(rbd.random_configuration)(model, jax.random.key(seed)) * 1.1
    v, a = np.random.default_rng(seed).normal(size=(2, model.nv))
    return q, jnp.asarray(v), jnp.asarray(a)


def close(ours, theirs, scale=1.0):
    np.testing.assert_allclose(ours, theirs, atol=1e-10 * scale, rtol=1e-9)


@partial(jax.jit, static_argnums=(1, 2, 3))
def quantities(model, layout, frame, reference, q, v, a):
    """All that one robot in one state has, in our layout and in theirs."""
    tau, M = rbd.rnea(model, q, v, a), rbd.crba(model, q)
    J = rbd.jacobian(model, q, frame, reference)
    R, p = rbd.forward_kinematics(model, q)
    undamped = layout.tau_to(q, tau - model.damping * v)
    theirs = {
        "q": layout.q_to(q),
        "v": layout.v_to(q, v),
        "a": layout.a_to(q, v, a),
        "tau": layout.tau_to(q, tau),
        "undamped": undamped,
        "M": layout.mass_matrix_to(q, M),
        "J": layout.jacobian_to(q, J),
        "q1": layout.q_to(rbd.integrate(model, q, 0.1 * v)),
    }
    return {"R": R, "p": p} | theirs


def ours(*args):
    return SimpleNamespace(**{k: np.array(v) for k, v in quantities(*args).items()})


@partial(jax.jit, static_argnums=1)
def pairs_that_agree(model, layout, q, v, a):
    """Every way there and back is the identity; G is what it says."""
    back = layout.q_from(layout.q_to(q))
    G = layout.velocity_map(q)
    M, J = rbd.crba(model, q), rbd.jacobian(model, q, model.frame_names[-1])
    M_to, J_to = layout.mass_matrix_to(q, M), layout.jacobian_to(q, J)
    exact = {"precision": "highest"}
    return [
        (rbd.forward_kinematics(model, back), rbd.forward_kinematics(model, q)),
        (layout.v_from(q, layout.v_to(q, v)), v),
        (layout.tau_from(q, layout.tau_to(q, v)), v),
        (layout.a_from(q, v, layout.a_to(q, v, a)), a),
        (jnp.matmul(G, layout.v_to(q, v), **exact), v),
        (layout.tau_to(q, a), jnp.matmul(G.T, a, **exact)),
        (M_to, G.T @ M @ G),
        (layout.mass_matrix_from(q, M_to), M),
        (layout.jacobian_from(q, J_to), J),
        (layout.spatial_from(layout.spatial_to(J.T)), J.T),
        (jax.vmap(layout.q_to)(jnp.stack([q, q]))[1], layout.q_to(q)),
    ]


@partial(jax.jit, static_argnums=1)
def rate_of_v(model, layout, q, v, a):
    """Central difference of their velocity along the motion."""
    h = 1e-6
    ends = [
        layout.v_to(rbd.integrate(model, q, s * h * v + h * h / 2 * a), v + s * h * a)
        for s in (1, -1)
    ]
    return (ends[0] - ends[1]) / (2 * h), layout.a_to(q, v, a)


def round_trips(model, layout):
    q, v, a = state(model, 1)
    for one, other in pairs_that_agree(model, layout, q, v, a):
        jax.tree.map(close, one, other)
    numeric, exact = rate_of_v(model, layout, q, v, a)
    np.testing.assert_allclose(numeric, exact, atol=1e-6)


def against_pinocchio(model, pm):
    layout = convert.pinocchio(model, pm)
    assert (layout.nq_theirs, layout.nv) == (pm.nq, pm.nv)
    data = pm.createData()
    frame = model.frame_names[-1]
    x = ours(model, layout, frame, "local", *state(model))
    pin.forwardKinematics(pm, data, x.q)
    for name in set(model.joint_names) & set(pm.names):
        i, T = model.joint_names.index(name), data.oMi[pm.getJointId(name)]
        close(x.p[i], T.translation)
        close(x.R[i], T.rotation)
    M = pin.crba(pm, data, x.q)
    close(x.M, np.triu(M) + np.triu(M, 1).T, np.abs(M).max())
    tau = pin.rnea(pm, data, x.q, x.v, x.a)
    close(x.undamped, tau, np.abs(tau).max())  # Pinocchio's rnea knows no damping
    J = pin.computeFrameJacobian(pm, data, x.q, pm.getFrameId(frame, pin.BODY), pin.LOCAL)
    close(x.J, J)
    if not model.topology.composites:  # their planar joint moves along screws of the plane
        q1 = pin.integrate(pm, x.q, 0.1 * x.v)
        same = np.minimum(np.abs(x.q1 - q1), np.abs(x.q1 + q1))  # a quaternion and its negative
        assert same.max() < 1e-9
    return layout


@pytest.mark.float64
@pytest.mark.parametrize("floating", [False, True])
def test_pinocchio_every_kind(floating):
    text = robot(FREE)
    model = load_urdf(text, floating)
    root = [pin.JointModelFreeFlyer()] if floating else []
    layout = against_pinocchio(model, pin.buildModelFromXML(text, *root))
    if floating:
        round_trips(model, layout)


@pytest.mark.float64
@pytest.mark.parametrize("name", ["talos_full_v2", "kinova", "pr2"])
def test_pinocchio_real_robots(name):
    robots = example_robots()
    if not robots:
        pytest.skip("example-robot-data is not installed")
    floating = name == "talos_full_v2"
    root = [pin.JointModelFreeFlyer()] if floating else []
    model = load_urdf(robots[name], floating, mimic="independent")
    against_pinocchio(model, pin.buildModelFromUrdf(str(robots[name]), *root))


@pytest.mark.float64
def test_pinocchio_ball():
    pm = pin.Model()
    place = pin.SE3(pin.Quaternion(0.5, 0.5, -0.5, 0.5), np.array([0.1, 0.2, 0.3]))
    i = pm.addJoint(0, pin.JointModelSpherical(), place, "ball")
    pm.appendBodyToJoint(
        i, pin.Inertia(2.0, np.array([0.1, 0, 0.2]), np.eye(3)), pin.SE3.Identity()
    )
    pm.addBodyFrame("bob", i, pin.SE3.Identity(), 0)
    spec = rbd.RobotSpec(
        "ball",
        (rbd.LinkSpec("base"), rbd.LinkSpec("bob", 2.0, np.array([0.1, 0, 0.2]), np.eye(3))),
        (rbd.JointSpec("ball", "spherical", "base", "bob", R=place.rotation, p=place.translation),),
    )
    round_trips(rbd.build_model(spec), against_pinocchio(rbd.build_model(spec), pm))


def test_pinocchio_refuses_a_planar_joint_it_reads_otherwise():
    text = robot(TREE, plane="1 0 0")
    with pytest.raises(ValueError, match="planar joint 'p'.*ignores it"):
        convert.pinocchio(load_urdf(text), pin.buildModelFromXML(text))


def against_mujoco(model, mj):
    mujoco = pytest.importorskip("mujoco")
    layout = convert.mujoco(model, mj)
    frame = model.body_names[-1]
    x = ours(model, layout, frame, "local_world_aligned", *state(model))
    mj.opt.disableflags |= mujoco.mjtDisableBit.mjDSBL_CONSTRAINT  # no joint limits
    data = mujoco.MjData(mj)
    data.qpos[:], data.qvel[:] = x.q, x.v
    mujoco.mj_forward(mj, data)
    data.qacc[:] = x.a
    mujoco.mj_inverse(mj, data)
    for i, name in enumerate(model.body_names):
        if ":" not in name:
            close(x.p[i], data.body(name).xpos)
            close(x.R[i], data.body(name).xmat.reshape(3, 3))
    M = np.zeros((mj.nv, mj.nv))
    mujoco.mj_fullM(mj, data, M)
    close(x.M, M, 10)
    close(x.tau, data.qfrc_inverse, 1e3)
    J = np.zeros((6, mj.nv))
    mujoco.mj_jacBody(mj, data, J[3:], J[:3], data.body(frame).id)
    close(x.J, J)
    return layout


@pytest.mark.float64
@pytest.mark.parametrize("plane", ["0 0 1", "0.6 0 -0.8", "0 0 -1"])
def test_mujoco_every_kind(plane):
    mujoco = pytest.importorskip("mujoco")
    text = robot(FREE, plane, root="world")
    head = text.index('<joint name="z"')  # hang the rest on the free body
    text = text[:head] + text[head:].replace('<parent link="world"/>', '<parent link="l_f"/>')
    with pytest.raises(ValueError, match="free joint 'f' is not at the world's origin"):
        convert.mujoco(load_urdf(text), mujoco.MjModel.from_xml_string(text))
    text = text[:head].replace('<origin xyz="0.1 0.2 -0.3"', "<origin") + text[head:]
    text = text.replace('rpy="0.4 0.5 -0.6"/><axis xyz="1 0 0"', '/><axis xyz="1 0 0"', 1)
    model = load_urdf(text)
    mj = mujoco.MjModel.from_xml_string(text)
    round_trips(model, against_mujoco(model, mj))


@pytest.mark.float64
def test_mujoco_ref_and_ball():
    mujoco = pytest.importorskip("mujoco")
    mj = mujoco.MjModel.from_xml_string("""<mujoco><compiler angle="radian"/><worldbody>
      <body name="a" pos="0 0 1"><joint name="h" type="hinge" axis="0 1 0" ref="0.4"/>
        <inertial mass="1" pos="0 0 .1" diaginertia=".1 .2 .25"/>
        <body name="b" pos="0 .2 0"><joint name="ball" type="ball"/>
          <inertial mass="2" pos=".1 0 0" diaginertia=".2 .2 .3"/></body></body>
      </worldbody></mujoco>""")
    links = (
        rbd.LinkSpec("world"),
        rbd.LinkSpec("a", 1.0, np.array([0, 0, 0.1]), np.diag([0.1, 0.2, 0.25])),
        rbd.LinkSpec("b", 2.0, np.array([0.1, 0, 0]), np.diag([0.2, 0.2, 0.3])),
    )
    y = np.array([0.0, 1.0, 0.0])
    joints = (
        rbd.JointSpec("h", "revolute", "world", "a", p=np.array([0, 0, 1.0]), axis=y),
        rbd.JointSpec("ball", "spherical", "a", "b", p=0.2 * y),
    )
    model = rbd.build_model(rbd.RobotSpec("r", links, joints))
    layout = against_mujoco(model, mj)
    round_trips(model, layout)
    for change in (type(layout).q_to, type(layout).q_from):  # ref would be cut to an integer
        with pytest.raises(TypeError, match="q must be floating point, got int64"):
            inspect.unwrap(change)(layout, np.arange(5))


@pytest.mark.float64
def test_drake_layout():
    model = load_urdf(robot(TREE), floating_base=True)
    order = ["b", "root_joint", "p", "z", "a", "c"]
    layout = convert.drake(model, joint_order=order)
    round_trips(model, layout)
    q, v, a = state(model)
    x = ours(model, layout, "base", "local", q, v, a)
    q, v = np.array(q), np.array(v)
    root, twist = q[model.q_slice("root_joint")], v[model.v_slice("root_joint")]
    close(x.q[1:5], root[3:] / np.linalg.norm(root[3:]))
    close(x.q[5:8], root[:3])
    close(x.q[8:11], q[model.q_slice("p")])
    close(x.v[1:4], x.R[0] @ twist[:3])
    close(x.v[4:7], x.R[0] @ twist[3:])


@pytest.mark.parametrize(("plane", "floating"), [("0 0 1", False), ("0 1 0", True)])
def test_drake_against_drake(plane, floating):
    tree = pytest.importorskip("pydrake.multibody.tree")
    plants = pytest.importorskip("pydrake.multibody.plant")
    parsing = pytest.importorskip("pydrake.multibody.parsing")
    text = robot(TREE, plane)
    model = load_urdf(text, floating)
    plant = plants.MultibodyPlant(0.0)
    parsing.Parser(plant).AddModelsFromString(text, "urdf")
    if not floating:
        plant.WeldFrames(plant.world_frame(), plant.GetFrameByName("base"))
    plant.Finalize()
    layout = convert.drake(model, plant)
    x = ours(model, layout, "l_b", "local", *state(model))
    context = plant.CreateDefaultContext()
    plant.SetPositions(context, x.q)
    plant.SetVelocities(context, x.v)
    close(x.M, plant.CalcMassMatrix(context), 10)
    forces = tree.MultibodyForces(plant)
    plant.CalcForceElementsContribution(context, forces)
    close(x.tau, plant.CalcInverseDynamics(context, x.a, forces), 1e3)


def test_errors_name_the_joints():
    model = load_urdf(robot(TREE))
    other = pin.buildModelFromXML(robot(TREE | {"extra": "revolute"}))
    with pytest.raises(ValueError, match="lacks \\['extra'\\]"):
        convert.pinocchio(model, other)
    with pytest.raises(ValueError, match="Pinocchio lacks \\['root_joint'\\]"):
        convert.pinocchio(load_urdf(robot(TREE), True), pin.buildModelFromXML(robot(TREE)))
    with pytest.raises(ValueError, match="joint_order"):
        convert.drake(model, joint_order=["z"])
    layout = convert.drake(model)
    with pytest.raises((ValueError, TypeError), match="use jax.vmap|nq"):
        layout.q_to(jnp.zeros((2, model.nq)))
