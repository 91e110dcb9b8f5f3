"""Mimic joints of real robots against Pinocchio's own."""

import equinox as eqx
import jax
import numpy as np
import pytest
from support.calls import quick_jit
from support.helpers import random_state

import rbd_jax as rbd
from rbd_jax.io import convert, example_robots, load_urdf

RENAMED = {  # Pinocchio needs targets that come first by name
    "talos_full_v2": ("gripper_left_joint", "gripper_right_joint"),
}
ROBOTS = [
    ("baxter", False),
    pytest.param("pr2", False, marks=pytest.mark.slow),
    pytest.param("tiago_pro", True, marks=pytest.mark.slow),
    pytest.param("talos_full_v2", True, marks=pytest.mark.slow),
]


@pytest.mark.float64
@pytest.mark.parametrize(("name", "floating"), ROBOTS)
def test_mimic_joints_against_pinocchio(name, floating):
    pin = pytest.importorskip("pinocchio")
    if name not in example_robots():
        pytest.skip("example-robot-data is not installed")
    text = example_robots()[name].read_text()
    for joint in RENAMED.get(name, ()):
        text = text.replace(f'"{joint}"', f'"a_{joint}"')
    model = load_urdf(text, floating)
    model = eqx.tree_at(lambda m: m.damping, model, 0 * model.damping)
    root = (pin.JointModelFreeFlyer(),) if floating else ()
    theirs = pin.buildModelFromXML(text, *root, mimic=True)
    layout = convert.pinocchio(model, theirs)
    assert model.nv == theirs.nv < model.robot.nv
    s = random_state(model)

    @quick_jit
    def ours(m, s):
        q, v, a = s.q, s.v, s.a
        h = rbd.bias_torque(m, q, v)
        acceleration = rbd.forward_dynamics(m, q, v, s.tau)
        there = (
            layout.mass_matrix_to(q, rbd.crba(m, q)), layout.tau_to(q, h),
            layout.tau_to(q, rbd.rnea(m, q, v, a)), layout.a_to(q, v, acceleration),
        )  # fmt: skip
        at = layout.q_to(q), layout.v_to(q, v), layout.a_to(q, v, a), layout.tau_to(q, s.tau)
        return at, there

    (q, v, a, tau), found = jax.tree.map(np.asarray, ours(model, s))
    data = theirs.createData()
    M = np.triu(pin.crba(theirs, data, q))
    M += np.triu(M, 1).T
    h = np.array(pin.nle(theirs, data, q, v))
    expected = M, h, np.array(pin.rnea(theirs, data, q, v, a)), np.linalg.solve(M, tau - h)
    for x, y in zip(found, expected, strict=True):
        np.testing.assert_allclose(x, y, rtol=0, atol=1e-9 * np.abs(y).max())
