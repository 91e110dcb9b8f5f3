"""``check`` and ``rollout`` of robots in MJCF."""

import numpy as np
import pytest

pytest.importorskip("mujoco")
pytest.importorskip("typer")

from typer.testing import CliRunner  # noqa: E402

HOPPER = """<mujoco><option timestep=".004" cone="elliptic"/><worldbody>
<geom type="plane" size="1 1 1"/><body pos="0 0 .2"><freejoint/><geom size=".1"/>
<body pos=".1 0 0"><joint name="knee" axis="0 1 0"/><geom size=".05" pos=".1 0 0"/></body></body>
</worldbody><actuator><motor joint="knee"/></actuator>
<keyframe><key qpos="0 0 .099 1 0 0 0 .1" ctrl=".1"/></keyframe></mujoco>"""


def run(*args):
    from rbd_jax.cli._app import application

    return CliRunner().invoke(application(args[0]), [str(a) for a in args])


@pytest.fixture
def hopper(tmp_path):
    path = tmp_path / "hopper.xml"
    path.write_text(HOPPER)
    return path


def test_check(hopper, monkeypatch):
    result = run("check", hopper, "--states", 3)
    assert result.exit_code == 0, result.output
    for text in ("qpos after a step as MuJoCo's", "contacts at once: ", "pass", "1 actuators"):
        assert text in result.output
    assert "FAIL" not in result.output
    from rbd_jax import contact

    right = contact.scene_step
    wrong = lambda s, q, v, u, act: right(s, q, 1.001 * v, u, act=act)  # noqa: E731
    monkeypatch.setattr(contact, "scene_step", wrong)
    result = run("check", hopper, "--states", 3)
    assert result.exit_code == 1 and "FAIL" in result.output


def test_rollout(hopper, tmp_path):
    out = tmp_path / "motion.npz"
    result = run("rollout", hopper, "--batch", 2, "--steps", 6, "--stride", 3, "--output", out)
    assert result.exit_code == 0, result.output
    with np.load(out) as saved:
        assert saved["q"].shape == (2, 3, 8) and saved["v"].shape == (2, 3, 7)
        np.testing.assert_allclose(saved["t"], [0, 0.012, 0.024])
        np.testing.assert_allclose(saved["controls"], [0.1])
        assert np.abs(np.diff(saved["q"], axis=1)).max() > 1e-4


def test_what_is_refused(hopper, tmp_path):
    result = run("rollout", hopper, "--controls", "hold")
    assert result.exit_code == 2 and "leave out --floating-base" in result.output
    assert run("check", hopper, "--floating-base").exit_code == 2
    hopper.write_text(HOPPER.replace("<mujoco>", '<mujoco><option><flag sleep="enable"/></option>'))
    result = run("check", hopper)
    assert result.exit_code == 2 and "option flag" in result.output
    assert "no file" in run("check", tmp_path / "nothing.xml").output
