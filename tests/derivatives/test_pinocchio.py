"""Explicit derivatives against Pinocchio's on the robots of example-robot-data."""

from functools import partial

import jax
import numpy as np
import pytest
from support.calls import quick_jit
from support.helpers import random_states
from support.pinocchio_robots import TOL, error, ill_conditioned, load, pin, singular

import rbd_jax as rbd
from rbd_jax.io import example_robots

pytestmark = pytest.mark.filterwarnings("ignore::rbd_jax.RobotDescriptionWarning")

BATCH = 2
DEFAULT = ("panda-fixed", "talos_full_v2-floating")
DMM_ALONE = {"talos_full_v2-floating", "pr2-fixed", "double_pendulum_continuous-floating"}
LONG = (
    "double_pendulum_continuous", "pr2", "solo12",
    "romeo", "anymal", "anymal-kinova", "a1", "b1", "b1-z1", "bolt", "centauro", "g1_29dof_rev_1_0",
    "go2", "icub_reduced", "laikago", "simple_humanoid", "talos_reduced", "tiago", "quadrotor_base",
    "allegro_right_hand", "kinova", "tiago_dual", "ur5_robot", "ur10_robot", "xarm7", "z1",
    "hyq_no_sensors", "icub", "baxter", "so101", "finger_edu", "human",
    "hextilt_flying_arm_5", "talos_left_arm",
)  # fmt: skip
_ROOTED = {"allegro_right_hand", "kinova", "tiago_dual", "ur5_robot", "ur10_robot", "xarm7", "z1",
           "baxter", "so101", "finger_edu", "talos_left_arm", "pr2"}  # fmt: skip


def _cases():
    long = [f"{n}-{'fixed' if n in _ROOTED else 'floating'}" for n in LONG]
    there = lambda case: case.rpartition("-")[0] in example_robots()  # noqa: E731
    slow = [pytest.param(c, marks=pytest.mark.slow) for c in long if there(c)]
    return [*filter(there, DEFAULT), *slow]


def _one(methods, layout, m, s):
    """Our derivatives and the state, in Pinocchio's layout."""
    q = s.q
    groups = [rbd.inverse_dynamics_derivatives(m, q, s.v, s.a, s.f_ext)]
    for method in methods:
        x = rbd.forward_dynamics_derivatives(m, q, s.v, s.tau, s.f_ext, method=method)
        groups.append(x)
    # G is constant where no joint is turned, so all these are forms on velocities
    out = [[layout.mass_matrix_to(q, A) for A in group] for group in groups]
    reached = rbd.forward_dynamics(m, q, s.v, s.tau, s.f_ext)
    state = layout.q_to(q), *(layout.v_to(q, x) for x in (s.v, s.a, s.tau, reached))
    return state, layout.spatial_to(s.f_ext), out


@partial(quick_jit, static_argnums=(0, 1))
def _ours(methods, layout, m, states):
    return jax.vmap(partial(_one, methods, layout, m))(states)


def _symmetric(A):
    upper = np.triu(A)
    return upper + np.triu(upper, 1).T


def _theirs(ours, theirs, state, wrenches):
    """Derivatives of ID, of FD, and of ID at the acceleration that we find for the torques."""
    q, v, a, tau, reached = (np.array(x) for x in state)
    f_ext = pin.StdVec_Force()
    for _ in range(theirs.njoints):
        f_ext.append(pin.Force.Zero())
    for i, name in enumerate(ours.joint_names):
        f_ext[theirs.getJointId(name)] = pin.Force(np.array(wrenches[i]))

    def call(function, last):
        data = theirs.createData()  # which owns the results
        *first, matrix = function(theirs, data, q, v, last, f_ext)
        return (*(np.array(x) for x in first), _symmetric(np.array(matrix)))

    inverse = pin.computeRNEADerivatives
    return call(inverse, a), call(pin.computeABADerivatives, tau), call(inverse, reached)


@pytest.mark.float64
@pytest.mark.parametrize("case", _cases())
def test_derivatives(case):
    """To 1e-10; of FD so where M allows it, and ``M ∂a + ∂τ = 0`` (Singh (5)) everywhere.

    The latter has their M and ∂τ at our acceleration, which no condition number blows up.
    """
    ours, theirs, layout = load(case)
    assert not layout.turns
    states = random_states(ours, BATCH, seed=5)
    methods = ("dmm",) if case in DMM_ALONE else ("dmm", "aza")
    everything = jax.tree.map(np.asarray, _ours(methods, layout, ours, states))
    for n in range(BATCH):
        state, wrenches, (id_, *fds) = jax.tree.map(lambda x, n=n: x[n], everything)
        their_id, their_fd, (*at_ours, _) = _theirs(ours, theirs, state, wrenches)
        M = their_id[2]
        for x, y in zip(id_, their_id, strict=True):
            assert error(x, y) <= TOL
        if singular(M):
            continue
        for found in fds:
            for x, rest in zip(found, (*at_ours, -np.eye(len(M))), strict=True):
                scale = (np.abs(M) @ np.abs(x) + np.abs(rest)).max()
                assert np.abs(M @ x + rest).max() <= TOL * scale
            if not ill_conditioned(M):
                assert all(error(x, y) <= TOL for x, y in zip(found, their_fd, strict=True))
