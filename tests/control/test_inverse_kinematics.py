"""Inverse kinematics: targets are reached within the limits, with exact derivatives."""

from functools import cache, partial

import chex
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.driven import hand
from support.four_bar import LENGTHS, closed_form, four_bar
from support.helpers import assert_close, central_difference

import rbd_jax as rbd
from rbd_jax import control
from rbd_jax.control._rows import Aim, columns, rows
from rbd_jax.model import CoordinateModel
from rbd_jax.model.outcome import RESULTS
from rbd_jax.spatial import so3

TOOL = jnp.eye(3), jnp.array([0.05, 0.0, 0.1])


@cache
def arm() -> rbd.Model:
    return rbd.samples.arm()


@partial(jax.jit, static_argnums=1)
def _poses(model, count: int):
    q = jax.vmap(rbd.random_configuration, (None, 0))(
        model, jax.random.split(jax.random.key(3), count)
    )
    return jax.vmap(rbd.frame_placement, (None, 0, None))(model, q, "tool")


@cache
def solve(posture: bool = False):
    """The compiled search for poses of the arm's tool, one of a batch."""

    def one(model, R, p, q0, far, tolerance):
        wanted = control.pose("tool", R, p)
        return control.inverse_kinematics(
            model, wanted, q0, posture=far if posture else None, position_tolerance=tolerance,
            angle_tolerance=tolerance,
        )  # fmt: skip

    return jax.jit(jax.vmap(one, (None, 0, 0, None, None, None)))


def test_poses_are_reached_within_the_limits():
    model, count = arm(), 200
    R, p = _poses(model, count)
    middle = control.middle(model)
    found = solve()(model, R, p, middle, middle, 1e-5)
    share = np.mean(np.asarray(found.result == RESULTS.successful))
    assert share > 0.99
    done = np.asarray(found.result == RESULTS.successful)
    Rs, ps = jax.jit(jax.vmap(rbd.frame_placement, (None, 0, None)), static_argnums=2)(
        model, found.q, "tool"
    )
    assert np.linalg.norm(ps - p, axis=-1)[done].max() < 2e-5
    turn = so3.log(so3.matmul(so3.transpose(R), Rs))
    assert np.linalg.norm(turn, axis=-1)[done].max() < 2e-5
    low, high = (np.asarray(x) for x in (model.position_lower, model.position_upper))
    assert np.all((np.asarray(found.q) >= low) & (np.asarray(found.q) <= high))
    assert int(found.starts.max()) > 1  # one start is not enough for all
    chex.assert_shape(found.position_error, (count, 1))
    empty = jax.eval_shape(solve(), model, R[:0], p[:0], middle, middle, 1e-5)
    assert empty.q.shape == (0, model.nv)


TARGETS = {
    "pose": lambda R, p: control.pose("tool", R, p, offset=TOOL),
    "position": lambda R, p: control.position("tool", p, offset=TOOL[1]),
    "orientation": lambda R, p: control.orientation("tool", R),
    "direction": lambda R, p: control.direction("tool", [0, 0.6, 2.0], p),
    "look_at": lambda R, p: control.look_at("tool", [0, 0.6, 0.8], p, offset=TOOL[1]),
    "relative": lambda R, p: control.pose("tool", R, p, base="link3", offset=TOOL),
}


@pytest.mark.float64
def test_jacobians_of_all_targets_are_exact():
    """They are the derivatives of the rows along each degree of freedom, by forward mode."""
    for model, frame, base in ((arm(), "tool", "link3"), (hand(), "thumb", "b2")):
        q = rbd.random_configuration(model, jax.random.key(1))
        R, p = so3.exp(jnp.array([0.3, -0.4, 0.5])), jnp.array([0.3, 0.5, 0.2])
        targets = tuple(_renamed(make(R, p), frame, base) for make in TARGETS.values())
        aim = Aim(model, targets, None, columns(model, targets, None))
        assert isinstance(model, CoordinateModel) == (frame == "thumb")

        @rbd.lanes
        def both(aim, q, d, model=model):
            def error(d):
                full = jnp.zeros(model.nv).at[aim.moving].set(d)
                return rows(aim, rbd.integrate(model, q, full)).error

            return d @ rows(aim, q).rates, jax.jvp(error, (0 * d,), (d,))[1]

        d = jax.random.normal(jax.random.key(2), (len(aim.columns),))
        assert_close(*both(aim, q, d), atol=1e-12)


def _renamed(target, frame: str, base: str):
    """The same target for a frame of another robot."""
    fields = {k: getattr(target, k) for k in target.__dataclass_fields__}
    return control.Target(**fields | {"frame": frame, "base": target.base and base})


def test_several_targets_hold_at_once():
    """The tool looks at a point from a place, and another frame points up."""
    model, point = arm(), jnp.array([0.6, 0.3, 0.2])

    @jax.jit
    def find(p):
        wanted = [
            control.position("link6", p),
            control.look_at("tool", [0.0, 0.0, 1.0], point),
        ]
        return control.inverse_kinematics(model, wanted)

    place = jnp.array([0.3, -0.1, 0.6])
    found = find(place)
    assert found.result == RESULTS.successful, found.explain()
    R, p = rbd.frame_placement(model, found.q, "tool")
    line = (point - p) / jnp.linalg.norm(point - p)
    assert_close(R[:, 2], line, atol=3e-5)
    assert_close(rbd.frame_placement(model, found.q, "link6")[1], place, atol=2e-5)
    assert "look_at of tool" in found.explain()


def test_a_point_out_of_reach_is_approached_and_explained():
    """The nearest point of a two-link arm is on the line to the target, with the arm stretched."""
    model = rbd.samples.double_pendulum()
    names = model.frame_names
    far = jnp.array([2.0, 0.0, -3.0])

    @jax.jit
    def find(p):
        return control.inverse_kinematics(
            model, control.position(names[-1], p, offset=[0.0, 0.0, -1.0]), starts=3
        )

    found = find(far)
    assert found.result == RESULTS.stalled
    (_, p), (_, elbow) = (rbd.frame_placement(model, found.q, n) for n in names[-1:] * 2)
    tip = elbow + rbd.frame_placement(model, found.q, names[-1])[0] @ jnp.array([0.0, 0.0, -1.0])
    shoulder = rbd.frame_placement(model, found.q, names[1])[1]
    reach = float(jnp.linalg.norm(elbow - shoulder)) + 1
    wanted = float(jnp.linalg.norm(far - shoulder)) - reach
    assert float(found.position_error[0]) == pytest.approx(wanted, abs=2e-3)
    assert_close(jnp.linalg.norm(tip - far), found.position_error[0], atol=1e-5)
    words = found.explain()
    assert f"position of {names[-1]}: {1e3 * float(found.position_error[0]):.4g} mm" in words
    assert "4 starts" in words
    with pytest.raises(RuntimeError, match="no step that makes progress"):
        control.inverse_kinematics(model, control.position(names[-1], far), starts=1, throw=True)


@pytest.mark.float64
def test_a_closed_loop_stays_closed():
    """A four-bar's coupler is brought to a point, where its angles are those of its closed form."""
    model, loop = four_bar()
    wanted = closed_form(1.1)
    point = rbd.frame_placement(model, wanted, "coupler")
    middle = point[1] + point[0] @ jnp.array([LENGTHS[1] / 2, 0, 0])
    target = control.position("coupler", middle, offset=[LENGTHS[1] / 2, 0, 0])
    find = jax.jit(lambda t, c: control.inverse_kinematics(model, t, constraints=c))
    found = find(target, loop)
    assert found.result == RESULTS.successful, found.explain()
    assert float(found.loop_error) < 1e-5
    turned = jnp.mod(found.q - wanted + jnp.pi, 2 * jnp.pi) - jnp.pi
    assert_close(turned, jnp.zeros(3), atol=1e-4)
    free = jax.jit(lambda t: control.inverse_kinematics(model, t))(target)
    assert free.q[2] != found.q[2]  # without the loop the rocker stays where it was


@pytest.mark.float64
def test_the_derivative_keeps_the_target_reached():
    """The pose at q(R, p) moves as R and p do; without a posture q moves as little as possible."""
    model = arm()
    R, p = (x[:2] for x in _poses(model, 2))
    find, far = solve(), control.middle(model)

    def pose_at(p):
        q = find(model, R, p, far, far, 1e-10).q[0]
        return rbd.frame_placement(model, q, "tool"), q

    (dR, dp), dq = jax.jit(jax.jacfwd(pose_at))(p)
    assert_close(dp[:, 0], jnp.eye(3), atol=1e-8)
    assert_close(dR[..., 0, :], jnp.zeros((3, 3, 3)), atol=1e-8)
    assert_close(dq[:, 1], jnp.zeros((model.nv, 3)))
    q = find(model, R, p, far, far, 1e-10).q[0]
    J = rbd.jacobian(model, q, "tool", "local_world_aligned")
    assert_close(dq[:, 0], jnp.linalg.pinv(J)[:, 3:], atol=1e-8)
    reverse = jax.jit(jax.jacrev(lambda p: find(model, R, p, far, far, 1e-10).q[0]))(p)
    assert_close(reverse, dq, atol=1e-9)


@pytest.mark.slow
@pytest.mark.float64
def test_a_posture_is_approached_as_far_as_targets_allow():
    """What is left of the way to the posture changes the target; derivatives are those of that."""
    model = arm()
    R, p = (x[:24] for x in _poses(model, 24))
    far = 0.3 * jnp.arange(7.0) - 1
    find = solve(True)
    found = find(model, R, p, far, far, 1e-9)
    good = np.asarray((found.result == RESULTS.successful) & found.settled)
    assert good.mean() > 0.8
    J = jax.vmap(rbd.jacobian, (None, 0, None))(model, found.q, "tool")
    k = int(np.nonzero(good & ~np.asarray(found.at_limit).any(1))[0][0])
    left, null = far - found.q[k], jnp.eye(7) - jnp.linalg.pinv(J[k]) @ J[k]
    assert float(jnp.linalg.norm(left)) > 0.1
    assert_close(null @ left, jnp.zeros(7), atol=1e-5)

    def near(far, p):  # from the solution, so that differences stay with it
        return find(model, R[k][None], p[None], found.q[k], far, 1e-9).q[0]

    exact = jax.jit(jax.jacrev(near, (0, 1)))(far, p[k])
    find_near = jax.jit(near)
    assert_close(exact[0], central_difference(lambda x: find_near(x, p[k]), far, 1e-2), atol=1e-4)
    assert_close(exact[1], central_difference(lambda x: find_near(far, x), p[k], 1e-2), atol=2e-3)


@pytest.mark.float64
def test_mimic_joints_follow_and_others_stay():
    """A floating hand whose thumb follows a finger; joints that are not named do not move."""
    model = hand()
    goal = rbd.random_configuration(model, jax.random.key(5))
    target = control.position("thumb", rbd.frame_placement(model, goal, "thumb")[1])
    start = rbd.neutral(model)
    joints = [n for n in model.space.joint_names if n not in ("arm", "a1")]
    find = jax.jit(lambda t: control.inverse_kinematics(model, t, start, joints=joints))
    found = find(target)
    assert found.result == RESULTS.successful, found.explain()
    for joint in ("arm", "a1"):
        assert_close(found.q[model.q_slice(joint)], start[model.q_slice(joint)])
    assert_close(rbd.frame_placement(model, found.q, "thumb")[1], target.p, atol=1e-5)


def test_bad_arguments_are_named():
    model, eye = arm(), jnp.eye(3)
    ik = control.inverse_kinematics
    with pytest.raises(ValueError, match=r"control.pose: R has shape \(2, 3, 3\), expected \(3, 3"):
        control.pose("tool", jnp.stack([eye, eye]), [0, 0, 0])
    with pytest.raises(TypeError, match="frame must be a name, got int"):
        control.position(3, [0, 0, 0])  # type: ignore[arg-type]
    with pytest.raises(KeyError, match="tol"):
        ik(model, control.position("tol", [0, 0, 0]))
    with pytest.raises(ValueError, match="give at least one target"):
        ik(model, [])
    with pytest.raises(TypeError, match="made by control.pose"):
        ik(model, [eye])  # type: ignore[list-item]
    with pytest.raises(ValueError, match="none of the named joints of robot 'arm' moves 'link1'"):
        ik(model, control.orientation("link1", eye), joints=["joint2"])
    with pytest.raises(ValueError, match="max_steps must be at least 1, got 0"):
        ik(model, control.orientation("tool", eye), max_steps=0)
    two = eqx.tree_at(lambda t: t.p, control.position("tool", [0, 0, 0]), jnp.zeros((2, 3)))
    with pytest.raises(ValueError, match="use jax.vmap for many targets"):
        ik(model, two)
