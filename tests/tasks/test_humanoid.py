"""Talos steps forward and reaches, from a guess that stands still."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import rbd_jax as rbd
from rbd_jax import optimize as opt, tasks

ROBOT = "talos_reduced"


def test_pressure_costs_nothing_inside_of_the_sole_and_its_distance_outside():
    """Of two soles: moments of 20 and 40 N m beyond the edges, and one that is just inside."""
    cost = opt.CenterOfPressure(jnp.array([0.1, 0.05]), jnp.asarray(0.5), (6, 0))
    none = jnp.zeros(3)
    inside = jnp.array([24.9, -49.9, 7.0, 0.0, 0.0, 500.0])
    outside = jnp.array([-45.0, 90.0, 7.0, 0.0, 0.0, 500.0])
    residuals = cost(rbd.samples.quadruped(), none, none, none, none, jnp.r_[inside, outside])
    np.testing.assert_allclose(np.sort(residuals), [0, 0, 0, 0, 0, 0, 10, 20], atol=1e-6)
    assert np.flatnonzero(residuals).tolist() == [1, 2]  # the first of the rows is the second sole


def test_the_stance_of_another_robot_is_not_known():
    for name, task in tasks.HUMANOID.items():
        with pytest.raises(ValueError, match=f"tasks.{name}: the stance of 'quadruped' is unknown"):
            task(rbd.samples.quadruped())


def solved(name):
    """The task, its solution, and in each step forces (2, 6), poses of soles and hand, center."""
    if ROBOT not in rbd.example_robots():
        pytest.skip("example-robot-data is missing")
    model = rbd.load_urdf(rbd.example_robot(ROBOT), floating_base=True)
    task = tasks.HUMANOID[name](model)

    @jax.jit
    def run(task):
        s = opt.multiple_shooting(*task, max_steps=600, **tasks.standing_guess(task))
        forces = jax.vmap(task.problem.outputs)(s.t[:-1], s.q[:-1], s.v[:-1], s.u)[0]
        frames = (*tasks.SOLES, tasks.HAND)
        poses = [jax.vmap(lambda q, f=f: rbd.frame_placement(model, q, f))(s.q) for f in frames]
        return s, forces, poses, jax.vmap(lambda q: rbd.center_of_mass(model, q))(s.q)

    s, forces, poses, center = run(task)
    limit = np.asarray(task.problem.bounds()[1])
    assert s.result == opt.RESULTS.successful and (np.abs(s.u) <= limit + 1e-9).all()
    return task, s, np.asarray(forces).reshape(-1, 2, 6), poses, np.asarray(center)


def check_soles(task, forces):
    """Friction and pressure of standing soles: penalties, which give way by little."""
    on = forces[np.asarray(task.problem.plant.active)]
    fz = on[:, 5]
    assert fz.min() > 0
    assert (np.abs(on[:, 3:5]) / fz[:, None]).max() < 0.7 * 1.01
    edges = np.abs(on[:, 1::-1]) / fz[:, None]
    assert (edges.max(axis=0) < np.array([0.10, 0.06]) * 1.02).all()
    assert not forces[~np.asarray(task.problem.plant.active)].any()


@pytest.mark.slow
def test_talos_steps_forward():
    """One foot after the other comes down flat 15 cm ahead, and the robot stands above them."""
    task, s, forces, ((R, p), (S, r), _), center = solved("step")
    print(int(s.steps), "steps, cost", float(s.cost))
    check_soles(task, forces)
    for place, turn in ((p, R), (r, S)):
        moved = np.asarray(place[-1] - place[0])
        print("moved", moved)
        np.testing.assert_allclose(moved, [0.15, 0, 0], atol=0.01)  # steps of 20 ms sink by 7 mm
        assert 0.04 < np.asarray(place[:, 2]).max() < 0.06
        assert np.degrees(np.arccos(np.minimum(turn[:, 2, 2], 1))).max() < 1
    np.testing.assert_allclose(center[-1] - center[0], [0.15, 0, 0], atol=0.01)
    assert np.abs(s.v[-1]).max() < 0.1


@pytest.mark.slow
def test_talos_reaches_without_falling():
    """The hand arrives and stays, while the soles and the center of mass stay where they are."""
    task, s, forces, (one, other, (_, hand)), center = solved("balance")
    print(int(s.steps), "steps, cost", float(s.cost))
    check_soles(task, forces)
    off = np.asarray(hand)[-18:] - np.asarray(hand)[0] - np.array([0.35, 0.05, 0.25])
    assert np.abs(off).max() < 0.01
    for _, p in (one, other):
        assert np.ptp(np.asarray(p), axis=0).max() < 2e-3
    assert np.abs(center - center[0]).max() < 0.01 and np.abs(s.v[-1]).max() < 0.1
