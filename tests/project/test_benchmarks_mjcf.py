"""The sweep of MJCF files: what it says where a motion cannot be MuJoCo's to the last digit."""

import numpy as np
import pytest

import rbd_jax as rbd
from benchmarks import mjcf

mujoco = pytest.importorskip("mujoco")

SERVO = """<mujoco><option integrator="{}"/><worldbody><body>
<joint name="j" axis="0 1 0" frictionloss=".01"/><geom size=".05" pos=".1 0 0" mass=".1"/></body>
</worldbody><actuator><position joint="j" kp="2" kv="2"/></actuator></mujoco>"""


@pytest.mark.float64
@pytest.mark.parametrize("integrator", ["Euler", "implicitfast"])
def test_a_motion_that_blows_up_is_compared_until_mujoco_begins_again(
    integrator, tmp_path, monkeypatch
):
    """Strong damping of a small inertia, which only the implicit integrator can bear."""
    monkeypatch.chdir(tmp_path)  # MuJoCo writes its warning to a file
    m = mujoco.MjModel.from_xml_string(SERVO.format(integrator))
    found = mjcf.pushed(m, mujoco, rbd.contact.scene_of(m))
    steps = found["steps"]
    assert found["rows"] == 1 and found["one_step"] < mjcf.ONE and mjcf.agrees(found)
    if integrator == "Euler":
        assert 3 < steps < mjcf.STEPS and found["notes"] == f"unstable after {steps} steps"
    else:
        assert steps == mjcf.STEPS and found["notes"] is None


def test_errors_agree_up_to_what_is_claimed_or_what_rounding_does_to_mujoco():
    good = {"one_step": 1e-9, "itself,_one_step": 0.0, "all_steps": 1e-6, "itself,_all_steps": 0.0}
    assert mjcf.agrees(good)
    for kind in ("one_step", "all_steps"):
        assert not mjcf.agrees(good | {kind: 0.1})
        assert not mjcf.agrees(good | {kind: np.inf})
        assert not mjcf.agrees(good | {kind: 0.1, f"itself,_{kind}": 0.01})
        assert mjcf.agrees(good | {kind: 0.1, f"itself,_{kind}": 0.1})
