"""What of a scene does not act, and arguments that do not fit: said, and never a wrong number."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import rbd_jax as rbd

mujoco = pytest.importorskip("mujoco")

BALL = '<body pos="0 0 1"><joint name="ball" type="ball"/><geom size=".1" pos=".2 0 0"/>{}</body>'
HINGE = '<body pos="0 0 1"><joint name="hinge" axis="0 1 0"/><geom size=".1" pos=".2 0 0"/></body>'


def scene(bodies: str, rest: str = "", **options):
    xml = f"<mujoco><worldbody>{bodies}</worldbody>{rest}</mujoco>"
    return rbd.load_mjcf(xml, **options)


def test_disabled_groups_of_actuators_have_no_force():
    motors = '<motor joint="hinge" group="1"/><motor joint="hinge" group="2" gear="3"/>'
    option = '<option actuatorgroupdisable="1"/>'
    s = scene(HINGE, f"<actuator>{motors}</actuator>{option}")
    forces = s.actuators.forces(s.model, jnp.zeros(1), jnp.zeros(1), jnp.ones(2))
    np.testing.assert_array_equal(forces, [0, 1])


@pytest.mark.parametrize(("actuator", "kind"), [
    ('<adhesion body="x" ctrlrange="0 1"/>', "body"),
    ('<orientation joint="ball" kp="3"/>', "so3"),
])  # fmt: skip
def test_actuators_that_are_left_out_do_not_act(actuator, kind):
    body = '<body name="x"><joint/><geom size=".1" contype="0" conaffinity="0"/></body>'
    with pytest.warns(rbd.RobotDescriptionWarning, match=rf"actuator#0 \({kind}\)"):
        s = scene(BALL.format(body), f"<actuator>{actuator}</actuator>", drop="all")
    assert s.nu == 0


def test_controls_beside_an_actuator_of_several():
    motors = '<orientation joint="ball" kp="3"/><motor joint="hinge" ctrlrange="-7 7" gear="5"/>'
    rest = f'<actuator>{motors}</actuator><keyframe><key name="k" ctrl="1 2 3 4"/></keyframe>'
    if not hasattr(mujoco.MjModel, "actuator_ctrladr"):
        pytest.skip("this MuJoCo has no actuators of several controls")
    with pytest.warns(rbd.RobotDescriptionWarning, match="left out"):
        s = scene(BALL.format(HINGE), rest, drop="all")
    assert (s.keyframes["k"].controls, s.actuators.ctrlrange[0, 1], s.actuators.gear[0, 0]) == (
        4,
        7,
        5,
    )


def test_numbers_that_differ_within_a_joint():
    m = mujoco.MjModel.from_xml_string(f"<mujoco><worldbody>{BALL.format('')}</worldbody></mujoco>")
    m.dof_armature[:] = [0.1, 0.2, 0.3]
    with pytest.raises(rbd.RobotDescriptionError, match="armature that differs within a joint"):
        rbd.contact.scene_of(m)


def test_adhesion_of_a_pair():
    ball = '<geom name="f" type="plane" size="5 5 1"/>'
    ball += '<body><freejoint/><geom name="s" size=".1"/></body>'
    pair = '<contact><pair geom1="f" geom2="s" adhesion="200"/></contact>'
    if not hasattr(mujoco.MjModel, "pair_adhesion"):
        pytest.skip("this MuJoCo has no adhesion of pairs")
    with pytest.raises(rbd.RobotDescriptionError, match="adhesion: pair"):
        scene(ball, pair)


def test_options_of_a_robot_beside_a_scene():
    s, z = scene(HINGE), jnp.zeros(1)
    for option in ({"integrator": "rk4"}, {"f_ext": jnp.zeros((1, 6))}):
        with pytest.raises(ValueError, match="is an option of a robot, got it beside a Scene"):
            rbd.rollout(s, z, z, jnp.zeros((9, 0)), 0.01, **option)


def test_arguments_of_a_step():
    """Floats of another precision are cast, as everywhere; everything else is an error."""
    s = scene(HINGE, '<actuator><motor joint="hinge"/></actuator>')
    z, step = jnp.zeros(1), rbd.contact.scene_step
    single = step(s, *(x.astype(jnp.float32) for x in (z, z, z + 0.5)))
    assert (
        single.v.dtype == jnp.result_type(float) and single.v[0] == step(s, z, z, z + 0.5).v[0] != 0
    )
    for function in (step, rbd.contact.constrained_acceleration):
        for wrong, error in {
            "v must be floating": (z, jnp.zeros(1, int), z),
            "controls must be an array": (z, z, [0.0]),
            r"tau has shape \(3,\)": (z, z, z, jnp.zeros(3)),
            "tau must be an array": (z, z, z, 1.0),
            r"warmstart has shape \(3,\)": (z, z, z, None, jnp.zeros(3)),
        }.items():
            with pytest.raises((TypeError, ValueError), match=wrong):
                jax.jit(lambda: function(s, *error))()  # noqa: B023


def test_numbers_of_a_scene_and_of_a_learner():
    model = rbd.samples.quadruped()
    solids = rbd.contact.points([model.body_names[-1]], 0.02)
    with pytest.raises(ValueError, match="one to three numbers"):
        rbd.contact.scene_on_ground(model, solids, surface=rbd.contact.Surface(0.8))
    with pytest.raises(ValueError, match="dt must be positive, got -1"):
        rbd.contact.scene_on_ground(model, solids, dt=-1)
    env, key = rbd.tasks.cart_pole_environment(), jax.random.key(0)
    for name in ("robots", "horizon", "updates"):
        with pytest.raises(ValueError, match=f"shac: {name} must be at least 1, got 0"):
            rbd.learn.shac(env, key, rbd.learn.Settings(**{name: 0}))


def test_features_that_may_be_left_out_are_named_in_full():
    """A part of a name is none, and neither is a name that no feature has."""
    option = '<option><flag sleep="enable"/></option>'
    for wrong in ("typo-option flag", "option", ("option flag", "flag"), ["t"]):
        with pytest.raises(ValueError, match="is no feature; expected 'all' or some of 'flex'"):
            scene(HINGE, option, drop=wrong)
    for right in ("option flag", ("option flag", "flex"), {"option flag"}, "all"):
        with pytest.warns(rbd.RobotDescriptionWarning, match="left out: option flag: sleep"):
            scene(HINGE, option, drop=right)
    with pytest.raises(rbd.RobotDescriptionError, match=r"drop=\('option flag',\)"):
        scene(HINGE, option, drop="flex")
