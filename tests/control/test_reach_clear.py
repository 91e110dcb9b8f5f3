"""Inverse kinematics among obstacles: margins are kept, free targets reached, with derivatives."""

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.driven import hand
from support.helpers import assert_close

import rbd_jax as rbd
from rbd_jax import contact, control
from rbd_jax.contact import Solid
from rbd_jax.model.outcome import RESULTS

SPHERES = {f"link{k}": 0.08 for k in range(3, 8)} | {"tool": 0.05}
BALLS = np.array([[0.4, 0.1, 0.4, 0.18], [-0.3, 0.3, 0.5, 0.18]])
TABLE = np.array([0.5, 0.0, 0.15]), np.array([0.3, 0.3, 0.02])  # middle, half lengths
MARGIN = 0.02


@cache
def arm() -> rbd.Model:
    return rbd.samples.arm()


@cache
def solve():
    """The compiled search for poses of the tool, one of a batch."""

    def one(R, p, q0, clear, tolerance):
        return control.inverse_kinematics(
            arm(), control.pose("tool", R, p), q0, clear=clear, position_tolerance=tolerance,
            angle_tolerance=tolerance,
        )  # fmt: skip

    return jax.jit(jax.vmap(one, (0, 0, None, None, None)))


def _things() -> contact.Clearance:
    """Two balls and a table, and the hand clear of the upper arm."""
    table = Solid("world", "box", tuple(TABLE[1]), p=TABLE[0], name="table")
    balls = [Solid("world", "sphere", (x[3],), p=x[:3]) for x in BALLS]
    return contact.clear_of(
        arm(), SPHERES, [*balls, table], MARGIN, apart=[("tool", "link3"), ("link7", "link3")]
    )


def _by_hand(q) -> np.ndarray:
    """The least distance at each of some configurations, from the origins of the frames."""
    place = jax.jit(jax.vmap(lambda q: [rbd.frame_placement(arm(), q, f)[1] for f in SPHERES]))
    x = np.stack(place(q), axis=1)  # (batch, frames, 3)
    radius = np.array(list(SPHERES.values()))
    found = [np.linalg.norm(x - b[:3], axis=-1) - b[3] - radius for b in BALLS]
    out = np.abs(x - TABLE[0]) - TABLE[1]
    inside = np.minimum(out.max(axis=-1), 0)
    found.append(np.linalg.norm(np.maximum(out, 0), axis=-1) + inside - radius)
    names = list(SPHERES)
    for a in ("tool", "link7"):
        i, j = names.index(a), names.index("link3")
        apart = np.linalg.norm(x[:, i] - x[:, j], axis=-1) - radius[i] - radius[j]
        found.append(apart[:, None])
    return np.concatenate(found, axis=1).min(axis=1)


def test_free_targets_are_reached_and_margins_are_kept():
    """Targets are poses of random configurations that are free, by distances computed by hand."""
    key = jax.random.split(jax.random.key(5), 400)
    q = jax.jit(jax.vmap(rbd.random_configuration, (None, 0)))(arm(), key)
    free = _by_hand(q) > MARGIN
    assert 0.2 < free.mean() < 0.9
    q = q[np.flatnonzero(free)[:100]]
    R, p = jax.jit(jax.vmap(lambda q: rbd.frame_placement(arm(), q, "tool")))(q)
    found = solve()(R, p, control.middle(arm()), _things(), 1e-5)
    done = np.asarray(found.result == RESULTS.successful)
    assert done.mean() > 0.97
    nearest = _by_hand(found.q)
    rounding = 10 * float(jnp.finfo(q.dtype).eps)
    assert nearest[done].min() >= MARGIN - rounding
    assert_close(found.distance.min(axis=1), nearest, atol=1e-6)
    assert np.asarray(found.missing)[done].max() == 0
    # the obstacles are in the way: without them many configurations would touch one
    heedless = solve()(R, p, control.middle(arm()), (), 1e-5)
    assert (_by_hand(heedless.q) < MARGIN).mean() > 0.1
    assert heedless.distance.shape == (100, 0)


def test_a_target_inside_an_obstacle_is_explained():
    wanted = control.position("tool", BALLS[0, :3])
    clear = contact.clear_of(arm(), SPHERES, BALLS, MARGIN)
    found = jax.jit(lambda c: control.inverse_kinematics(arm(), wanted, clear=c, starts=4))(clear)
    assert found.result == RESULTS.stalled
    k = found.pairs.index(("tool", "obstacle 0"))
    assert float(found.missing[k]) > 0.01  # both errors remain, in balance
    short, d = 1e3 * float(found.missing[k]), 1e3 * float(found.distance[k])
    words = found.explain()
    assert f"tool and obstacle 0: {d:.4g} mm apart, {short:.4g} mm too near" in words
    assert "obstacle 1" not in words


@pytest.mark.slow
@pytest.mark.float64
def test_derivatives_keep_a_distance_that_is_at_its_margin():
    """q moves as little as the target and the distances at their margins allow."""
    model, name = arm(), "link4"
    R, p = (x[None] for x in rbd.frame_placement(model, 0.3 * jnp.arange(1.0, 8.0), "tool"))
    q0 = 0.3 * jnp.arange(1.0, 8.0)
    elbow, reach = rbd.frame_placement(model, q0, name)[1], 0.1 + 0.12 + MARGIN
    center = elbow + (reach - 1e-3) * jnp.array([0.6, 0.0, 0.8])  # 1 mm too near at first
    balls = jnp.stack([jnp.append(center, 0.12), jnp.array([0.0, 0.0, -3.0, 0.1])])

    def found(p, balls):
        clear = contact.clear_of(model, {name: 0.1}, balls, MARGIN)
        return solve()(R, p, q0, clear, 1e-10)

    at = found(p, balls)
    assert bool(jnp.all(at.result == RESULTS.successful))
    assert float(at.distance[0, 0]) == pytest.approx(MARGIN, abs=2e-10)
    assert float(at.distance[0, 1]) > 1
    q = at.q[0]
    dq_dp, dq_dballs = jax.jit(jax.jacfwd(lambda *x: found(*x).q[0], (0, 1)))(p, balls)
    distance = lambda q, b: contact.clear_of(model, {name: 0.1}, b).distances(model, q).distance[0]  # noqa: E731
    slope, slope_b = jax.grad(distance, (0, 1))(q, balls)
    J = jnp.concatenate([rbd.jacobian(model, q, "tool", "local_world_aligned"), slope[None]])
    inverse = jnp.linalg.pinv(J)
    assert_close(dq_dp[:, 0], inverse[:, 3:6], atol=1e-7)
    assert_close(dq_dballs, -jnp.einsum("i,jk->ijk", inverse[:, 6], slope_b), atol=1e-7)
    back = jax.jit(jax.jacrev(lambda *x: found(*x).q[0], (0, 1)))(p, balls)
    assert_close(back, (dq_dp, dq_dballs), atol=1e-9)


@pytest.mark.float64
def test_rates_of_distances_of_a_robot_with_driven_joints():
    """They are the derivatives of the distances, in the coordinates that are independent."""
    from rbd_jax.control._rows import Aim, columns, rows

    model = hand()
    spheres = {"thumb": 0.02, "b2": 0.03}
    ball = [[0.1, 0.2, 0.1, 0.05]]
    clear = contact.clear_of(model, spheres, ball, 10.0, apart=[("thumb", "b2")])
    target = (control.position("thumb", jnp.zeros(3)),)
    aim = Aim(model, target, None, columns(model, target, None, (clear,)), (clear,))
    q = rbd.random_configuration(model, jax.random.key(4))

    @jax.jit
    def both(q, d):
        def distance(d):
            full = jnp.zeros(model.nv).at[aim.moving].set(d)
            return clear.distances(model, rbd.integrate(model, q, full)).distance

        return rows(aim, q).rates[:, 3:], -jax.jacfwd(distance)(d).T

    rates, expected = both(q, jnp.zeros(len(aim.columns)))
    assert rates.shape[1] == 3 and np.abs(rates).max() > 0.01
    assert_close(rates, expected, atol=1e-12)


def test_wrong_obstacles_are_told():
    model = arm()
    wanted = control.position("tool", [0.3, 0.0, 0.5])
    clear = contact.clear_of(model, {"tool": 0.05}, BALLS)
    with pytest.raises(ValueError, match="posture and clear do not go together"):
        control.inverse_kinematics(model, wanted, posture=control.middle(model), clear=clear)
    with pytest.raises(ValueError, match="robot 'double_pendulum' has"):
        clear.distances(rbd.samples.double_pendulum(), jnp.zeros(2))
    with pytest.raises(
        TypeError, match=r"made by contact.clear_of or contact.keep_apart, got dict"
    ):
        control.inverse_kinematics(model, wanted, clear=[{"tool": 0.05}])
    with pytest.raises(ValueError, match="nothing has to stay apart"):
        contact.clear_of(model, {"tool": 0.05})
    with pytest.raises(ValueError, match="'box' is at the frame 'tool', expected 'world'"):
        contact.clear_of(model, {"tool": 0.05}, [Solid("tool", "box", (1.0, 1.0, 1.0), name="box")])
    with pytest.raises(ValueError, match="clear_of: solid 'obstacle 0' has the kind 'cone'"):
        contact.clear_of(model, {"tool": 0.05}, [Solid("world", "cone", (1.0,))])
    with pytest.raises(KeyError, match="no shape is named 'nose'"):
        contact.clear_of(model, {"tool": 0.05}, BALLS, apart=[("tool", "nose")])
