"""Numbers that MuJoCo derives from the robot when it compiles follow the robot's leaves here.

A scene whose robot is changed in any leaf is MuJoCo's of the file with that change, in values and
in derivatives.
"""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.helpers import within

import rbd_jax as rbd
from rbd_jax.contact import constants

mujoco = pytest.importorskip("mujoco")

SOLVER = 'tolerance="1e-14" iterations="300" ls_tolerance="1e-10" ls_iterations="200"'
# Contacts, limits, dry friction, a connect, welds, a coupling, a carried weight and a fluid.
XML = f"""<mujoco><compiler autolimits="true"/>
<option cone="elliptic" density="1.2" viscosity=".3" wind=".2 .1 0" {SOLVER}/>
<worldbody><geom type="plane" size="5 5 1"/>
<body name="trunk" pos="0 0 .098" quat="1 .1 0 0"><freejoint/>
  <inertial pos=".01 .02 0" mass="2" diaginertia=".02 .03 .04" quat="1 .2 .1 0"/>
  <geom type="sphere" size=".1" condim="4"/>
  <body name="arm" pos=".2 0 .05"><joint name="ball" type="ball" range="0 20" armature=".002"/>
    <inertial pos=".1 0 0" mass=".7" diaginertia=".004 .006 .007"/>
    <geom type="sphere" size=".12" pos=".05 0 -.05"/>
    <body name="hand" pos=".2 .01 0"><joint name="wrist" axis="0 1 0" range="-10 5" armature=".01"
      frictionloss=".4"/>
      <inertial pos=".03 0 .01" mass=".3" diaginertia=".001 .002 .002"/></body></body>
  <body name="rail" pos="-.2 0 .1" gravcomp=".6"><joint name="slide" type="slide" axis="1 .2 0"
    frictionloss=".3" range="-.02 .1"/>
    <inertial pos="0 .02 0" mass=".5" diaginertia=".002 .003 .002"/>
    <body name="cup" pos="0 0 .1"><joint name="turn" axis="0 0 1" armature=".005"/>
      <inertial pos=".02 0 0" mass=".2" diaginertia=".001 .001 .0008"/></body></body></body>
<body name="post" pos=".6 0 .3"><joint name="post" axis="0 1 0" ref="5"/>
  <inertial pos="0 0 .1" mass=".8" diaginertia=".01 .01 .002"/></body>
<body name="puck" pos="1 1 .09"><joint name="x" type="slide" axis="1 0 0" armature=".2"/>
  <joint name="z" type="slide" axis="0 0 1" range="0.1 1"/>
  <inertial pos="0 0 0" mass=".6" diaginertia=".002 .003 .004"/>
  <geom type="sphere" size=".1"/></body>
<body name="box" pos="0 .5 .2"><freejoint/>
  <inertial pos="0 .01 0" mass=".4" diaginertia=".003 .004 .005"/></body>
</worldbody>
<equality><connect body1="hand" body2="post" anchor=".1 0 0"/><weld body1="cup" body2="box"/>
<joint joint1="turn" joint2="post" polycoef=".1 .5 .2 0 0"/></equality>
<actuator><position joint="wrist" kp="3" kv=".2"/><motor joint="slide"/>
<position joint="turn" kp="2" dampratio=".7" gear="1.5"/></actuator></mujoco>"""


def changes(of: str, field: str, by, relative: bool = False):
    """A change of a file: a number of a body or joint grows by ``by · amount`` (of itself)."""

    def change(spec, amount):
        kind, name = of.split()
        element = getattr(spec, kind)(name)
        old = np.asarray(getattr(element, field), float)
        new = old + np.asarray(by) * amount * (old if relative else 1)
        setattr(element, field, float(new) if new.ndim == 0 else new)

    return change


def every_mass(spec, amount):
    for body in spec.bodies[1:]:
        body.mass, body.inertia = body.mass * (1 + amount), body.inertia * (1 + amount)


CHANGES = {
    "all masses": (every_mass, 1.5),
    "mass of the trunk": (changes("body trunk", "mass", 2.0), 2.0),
    "inertia of an arm": (changes("body arm", "inertia", [1, 0.5, 0.8], True), 0.5),
    "place of a mass": (changes("body hand", "ipos", [0.02, 0.01, -0.01]), 1.0),
    "length of an arm": (changes("body hand", "pos", [0.1, 0, 0.02]), 1.0),
    "armature": (changes("joint wrist", "armature", 0.02), 1.0),
    "damping of an undamped joint": (changes("joint wrist", "damping", [0.3, 0, 0]), 1.0),
    "friction of a smooth joint": (changes("joint turn", "frictionloss", 0.1), 1.0),
    "range": (changes("joint slide", "range", [0.001, -0.002]), 1.0),
    "mass of a puck": (changes("body puck", "mass", 1.0), 1.0),
    "mass of a cup": (changes("body cup", "mass", 0.3), 1.0),
    "mass in a fluid": (changes("body box", "mass", 0.4), 2.0),
}


def compiled(change, amount: float):
    spec = mujoco.MjSpec.from_string(XML)
    change(spec, amount)
    return spec.compile()


def state(m):
    """A state in which most constraints act."""
    d = mujoco.MjData(m)
    rng = np.random.default_rng(1)
    mujoco.mj_integratePos(m, d.qpos, rng.normal(size=m.nv), 0.1)
    d.qpos[:3] = 0, 0, 0.09
    d.qpos[7:11] = np.cos(0.3), np.sin(0.3), 0, 0  # beyond the limit of the ball joint
    d.qpos[11:13] = -0.3, 0.14  # and those of the wrist and the slide
    d.qvel[:] = 0.5 * rng.normal(size=m.nv)
    d.ctrl[:] = 0.3, 1.0, 0.2
    return d


def stepped(m, d):
    """MuJoCo's next qpos and qvel."""
    e = mujoco.MjData(m)
    e.qpos[:], e.qvel[:], e.ctrl[:] = d.qpos, d.qvel, d.ctrl
    mujoco.mj_step(m, e)
    return np.concatenate([e.qpos, e.qvel]), e


@jax.jit
def ours(scene, q, v, u):
    r = rbd.contact.scene_step(scene, q, v, u)
    layout = scene.layout
    return jnp.concatenate([layout.q_to(r.q), layout.v_to(r.q, r.v)])


@pytest.fixture(scope="module")
def loaded():
    return rbd.load_mjcf(XML)


def with_robot(scene, m):
    """The scene with the robot of another file, whose leaves alone are taken."""
    return dataclasses.replace(scene, model=rbd.contact.scene_of(m).model)


@pytest.mark.parametrize("name", CHANGES)
def test_weights_are_mujocos(loaded, name):
    """Those of bodies and joints, of a changed robot; before and after."""
    change, amount = CHANGES[name]
    for x in (0.0, amount):
        m = compiled(change, x)
        scene = with_robot(loaded, m)
        found = jax.jit(constants)(scene).weights
        names = [scene.model.body_names[b] for b in scene.constraints.parts.bodies]
        body = [m.body(n).id for n in names]
        assert {"trunk", "arm", "hand", "post", "cup", "box", "puck"} == set(names)
        np.testing.assert_allclose(
            found.parts, m.body_invweight0[body], rtol=within(1e-10, 1e-4), atol=within(1e-13, 1e-6)
        )
        theirs = np.array([m.dof_invweight0[d] for d in range(m.nv)])
        order = np.asarray(scene.layout.v_places)
        np.testing.assert_allclose(found.dofs[order], theirs, rtol=within(1e-10, 1e-4))


@pytest.mark.parametrize("name", CHANGES)
def test_a_changed_scene_is_the_changed_file(loaded, name):
    """Values and derivatives of a step by a number of the file, against central differences."""
    change, amount = CHANGES[name]
    m = compiled(change, 0.0)
    d = state(m)
    q = loaded.layout.q_from(jnp.array(d.qpos))
    v = loaded.layout.v_from(q, jnp.array(d.qvel))
    args = q, v, jnp.array(d.ctrl)
    after, data = stepped(m, d)
    kinds = data.efc_type[: data.nefc].tolist()
    assert len(set(kinds)) == 4 and kinds.count(3) == 4  # the limits of four joints
    np.testing.assert_allclose(ours(loaded, *args), after, atol=within(1e-8, 5e-5))

    other = compiled(change, amount)
    changed, _ = stepped(other, d)
    assert np.abs(changed - after).max() > 1e-5
    np.testing.assert_allclose(
        ours(with_robot(loaded, other), *args), changed, atol=within(1e-8, 5e-5)
    )

    def robot(x):
        return eqx.filter(with_robot(loaded, compiled(change, x)).model, eqx.is_inexact_array)

    at, h = 0.2 * amount, within(1e-4, 3e-2) * amount
    pairs = robot(at + h), robot(at - h)
    finite = jax.tree.map(lambda x: jnp.where(jnp.isfinite(x), x, 0), pairs)
    tangent = jax.tree.map(lambda x, y: (x - y) / (2 * h), *finite)
    scene = with_robot(loaded, compiled(change, at))
    leaves, static = eqx.partition(scene.model, eqx.is_inexact_array)

    def of(leaves):
        return ours(dataclasses.replace(scene, model=eqx.combine(leaves, static)), *args)

    _, slope = jax.jit(lambda t: jax.jvp(of, (leaves,), (t,)))(tangent)
    hi, lo = (stepped(compiled(change, at + s * h), d)[0] for s in (1, -1))
    expected = (hi - lo) / (2 * h)
    assert np.abs(expected).max() > 1e-5
    np.testing.assert_allclose(
        slope, expected, atol=within(2e-6, 1e-3) * (1 + np.abs(expected).max())
    )


# Bodies without joints, with and without mass of their own, at whose places shapes touch.
PARTS = f"""<mujoco><option cone="elliptic" density="30" viscosity=".5" {SOLVER}/>
<worldbody><geom type="plane" size="5 5 1"/>
<body name="leg" pos="0 0 .3"><freejoint/>
  <inertial pos=".01 .02 0" mass="2" diaginertia=".02 .03 .04"/>
  <body name="foot" pos=".1 0 -.25" euler="0 10 0" gravcomp=".5">
    <inertial pos="0 .01 .02" mass=".5" diaginertia=".001 .002 .0015"/>
    <geom type="sphere" size=".06" mass="0"/></body>
  <body name="sole" pos="-.1 0 -.25"><geom type="sphere" size=".06" mass="0"/></body>
  <body name="shin" pos=".1 .1 0" gravcomp=".3"><joint name="knee" axis="0 1 0"/>
    <inertial pos="0 .01 .1" mass="1" diaginertia=".01 .02 .02"/>
    <body name="heel" pos="0 .1 -.25">
      <inertial pos=".01 0 0" mass=".2" diaginertia="1e-3 1e-3 1e-3"/>
      <geom type="sphere" size=".06"/></body></body></body>
</worldbody></mujoco>"""


def test_parts_of_bodies():
    """Bodies without joints have weights of their own, also when all masses grow."""

    def changed(amount):
        spec = mujoco.MjSpec.from_string(PARTS)
        every_mass(spec, amount)
        return spec.compile()

    m, other = changed(0.0), changed(0.7)
    scene = rbd.contact.scene_of(m)
    own = scene.constraints.parts
    names = ["foot", "sole", "heel"]
    assert own.moves == (False, False, False) and own.bodies == (0, 0, 1)
    d = mujoco.MjData(m)
    d.qpos[2], d.qvel[:] = 0.305, np.linspace(-0.5, 0.5, m.nv)
    q = scene.layout.q_from(jnp.array(d.qpos))
    v = scene.layout.v_from(q, jnp.array(d.qvel))
    for theirs in (m, other):
        now = with_robot(scene, theirs)
        body = [theirs.body(n).id for n in names]
        found = constants(now).weights.parts
        np.testing.assert_allclose(found, theirs.body_invweight0[body], rtol=within(1e-10, 1e-4))
        after, data = stepped(theirs, d)
        assert data.ncon == 3
        np.testing.assert_allclose(ours(now, q, v, jnp.zeros(0)), after, atol=within(1e-8, 5e-5))


BALL = """<mujoco><option timestep=".002" integrator="{}"/><worldbody>
<geom type="plane" size="1 1 1"/><body pos="0 0 .1"><joint type="slide" axis="0 0 1"/>
<geom type="sphere" size=".1" mass="{}" solref=".02 1" solimp=".9 .95 .001"/></body></worldbody>
</mujoco>"""


@pytest.mark.slow
@pytest.mark.parametrize("x64", [True, False])
def test_a_heavy_ball_sinks_as_deep_as_a_light_one(x64):
    """MuJoCo scales the softness by the mass, so that the depth at rest does not depend on it."""
    with jax.enable_x64(x64), jax.numpy_dtype_promotion("standard"):
        scene = rbd.load_mjcf(BALL.format("Euler", 1.0))

        def depth(mass):
            robot = eqx.tree_at(lambda m: m.inertia, scene.model, mass * scene.model.inertia)
            q, v, u = scene.q0, jnp.zeros(1), jnp.zeros((400, 0))
            other = dataclasses.replace(scene, model=robot)
            return rbd.rollout(other, q, v, u, scene.dt).q[-1, 0]

        value = jax.jit(jax.vmap(jax.value_and_grad(depth)))
        found, slope = value(jnp.array([1.0, 20.0]))
        for mass, z in zip((1.0, 20.0), found, strict=True):
            m = mujoco.MjModel.from_xml_string(BALL.format("Euler", mass))
            d = mujoco.MjData(m)
            mujoco.mj_step(m, d, 400)
            assert d.qpos[0] < -1e-6
            np.testing.assert_allclose(z, d.qpos[0], rtol=1e-6 if x64 else 2e-3)
        np.testing.assert_allclose(slope, 0, atol=1e-12 if x64 else 1e-8)


@pytest.mark.slow
def test_a_loop_needs_them_once(loaded):
    """Steps with constants that are given are the steps; one robot for each sample too."""
    q, v, u = loaded.q0, jnp.full(loaded.model.nv, 0.1), jnp.zeros((3, loaded.nu))

    def robot(mass):
        return eqx.tree_at(lambda m: m.inertia, loaded.model, mass * loaded.model.inertia)

    def rolled(mass):
        return rbd.rollout(dataclasses.replace(loaded, model=robot(mass)), q, v, u, loaded.dt).q[-1]

    def stepping(mass):
        scene, now = dataclasses.replace(loaded, model=robot(mass)), (q, v)
        for k in range(3):
            now = rbd.contact.scene_step(scene, *now, u[k])[:2]
        return now[0]

    mass = jnp.array([1.0, 3.0])
    both = [jax.jit(jax.vmap(jax.value_and_grad(lambda m, f=f: jnp.sum(f(m)))))(mass)
            for f in (rolled, stepping)]  # fmt: skip
    for x, y in zip(*both, strict=True):
        np.testing.assert_allclose(x, y, rtol=within(1e-9, 1e-4), atol=1e-12)
    assert float(jnp.abs(both[0][1]).min()) > 0


def test_a_scene_on_the_ground_has_them_too(loaded):
    """The weights are those of a file, with the means over the three axes of a ball joint."""
    m = compiled(CHANGES["armature"][0], 1.0)
    robot = rbd.contact.scene_of(m).model
    scene = rbd.contact.scene_on_ground(
        loaded.model, rbd.contact.points(["hand", "trunk", "cup"]), reference=loaded.q0
    )
    found = jax.jit(constants)(dataclasses.replace(scene, model=robot)).weights
    body = [m.body(n).id for n in robot.body_names[:-3]]  # without the puck
    found_parts = found.parts[: len(body)]
    np.testing.assert_allclose(found_parts, m.body_invweight0[body], rtol=within(1e-10, 1e-4))
    order = np.asarray(loaded.layout.v_places)
    free = [d for d in range(m.nv) if m.joint(m.dof_jntid[d]).name not in ("x", "z")]
    found_dofs = np.asarray(found.dofs)[order]
    np.testing.assert_allclose(found_dofs[free], m.dof_invweight0[free], rtol=within(1e-10, 1e-4))


HELD = """<mujoco><worldbody><body name="a" pos="0 0 1"><freejoint/><geom size=".1"/></body>
<body name="b" pos="0 .3 1"><freejoint/><geom size=".1"/></body></worldbody>
<equality><weld body1="a" body2="b" {}/></equality></mujoco>"""


def test_a_pose_that_a_file_states_stays():
    """It may be the one of the reference configuration; without a file that is not known."""
    stated, free = (rbd.load_mjcf(HELD.format(x)) for x in ('relpose="0 .3 0 1 0 0 0"', ""))
    assert stated.constraints.welds.refers == (False,)
    assert free.constraints.welds.refers == (True,)
    assert constants(stated).anchors is None
    moved = eqx.tree_at(lambda s: s.q0, free, free.q0.at[7].add(0.1))
    held = constants(moved).anchors
    assert held is not None
    np.testing.assert_allclose(held.p1, [[0.1, 0.3, 0]], atol=within(1e-15, 1e-7))


def test_the_reference_configuration_is_qpos0():
    scene = rbd.load_mjcf(HELD.format(""))
    expected = np.array([0, 0, 1, 1, 0, 0, 0, 0, 0.3, 1, 1, 0, 0, 0], scene.q0.dtype)
    np.testing.assert_array_equal(scene.q0, expected)
