"""``rbd-jax identify`` makes a better URDF and a report from a URDF and a recording."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.command_line import run
from support.helpers import random_states
from support.recorded import THREE, dataset, noisy, pinocchio_torques
from support.simulated_logs import log

import rbd_jax as rbd
from rbd_jax import identify

pytest.importorskip("typer")


@pytest.fixture
def files(tmp_path, monkeypatch):
    """A URDF, and data of a robot with more mass and damping."""
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "robot.urdf"
    path.write_text(THREE.replace('friction="0.4"', 'friction="0"'))
    true = path.read_text().replace('mass value="1.0"', 'mass value="1.6"')
    true = true.replace('damping="0.3"', 'damping="0.7"')
    m = rbd.load_urdf(true)
    s = random_states(m, 200, 2)
    tau = noisy(pinocchio_torques(m, true, s.q, s.v, s.a), [0.02] * 3)
    data = dataset(s.q, s.v, s.a, tau)
    identify.save_npz(m, data, tmp_path / "data.npz")
    return path, tmp_path / "data.npz", m


@pytest.mark.slow
def test_fitted_robot_and_report(files, tmp_path):
    path, data, true = files
    result = run("identify", path, data, "--report", "out.md", "--learn", "inertia,damping")
    assert result.exit_code == 0, result.output
    assert "all physical" in result.output and "converged" in result.output
    fitted = rbd.load_urdf(tmp_path / "identified.urdf")
    np.testing.assert_allclose(fitted.damping, true.damping, atol=0.02)
    s = random_states(true, 30, 7)
    tau = pinocchio_torques(true, path.read_text(), s.q, s.v, s.a)  # torques of the nominal robot
    truth = jax.jit(jax.vmap(rbd.rnea, (None, 0, 0, 0)))(true, s.q, s.v, s.a)
    ours = jax.jit(jax.vmap(rbd.rnea, (None, 0, 0, 0)))(fitted, s.q, s.v, s.a)
    assert float(jnp.abs(ours - truth).max()) < 0.05 < float(jnp.abs(tau - truth).max())
    report = (tmp_path / "out.md").read_text()
    for text in ("## Base parameters", "| j3 |", "± 1.96 σ", "damping:j2", "not identifiable"):
        assert text in report
    assert (tmp_path / "out.png").read_bytes()[:4] == b"\x89PNG"


def test_external_wrenches_pass_the_filter(tmp_path):
    from rbd_jax.cli.identify import _filtered, _read

    m = rbd.samples.double_pendulum(dtype=jnp.float64)
    t = jnp.linspace(0, 1, 31)
    q, ramp = jnp.stack([t, t**2], 1), jnp.linspace(1, 2, 31)[:, None, None]
    f_ext = ramp * jnp.arange(12.0).reshape(
        1, 2, 6
    )  # linear in time, so the filter does not change it
    two = [jnp.stack([x, -x]) for x in (q, jnp.zeros((31, 2)), f_ext)]
    data = identify.Dataset(jnp.stack([t, t]), two[0], tau=two[1], f_ext=two[2])
    identify.save_npz(m, data, tmp_path / "data.npz")
    read = _filtered(m, tmp_path / "data.npz", _read(m, tmp_path / "data.npz"), 11)
    np.testing.assert_allclose(read.f_ext, data.f_ext, atol=1e-10)
    assert read.v is not None and read.v.shape == (2, 31, 2)
    rough = identify.Dataset(t, q, tau=f_ext[:, :, 3] ** 9, f_ext=f_ext**9)
    identify.save_npz(m, rough, tmp_path / "rough.npz")
    read = _filtered(m, tmp_path / "rough.npz", _read(m, tmp_path / "rough.npz"), 11)
    np.testing.assert_allclose(
        read.f_ext[..., 3], read.tau, rtol=1e-9
    )  # the same filter as for torques


@pytest.mark.slow
def test_a_payload_is_weighed_from_a_log_of_ros(tmp_path, monkeypatch):
    """Positions and torques in a table, with another joint, give kilograms and a page of HTML."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "robot.urdf").write_text(THREE)
    m = rbd.load_urdf(THREE)
    extra = jnp.array([1.5, 0.03, 0.0, 0.15, 0.02, 0.0, 0.021, -0.003, 0.0, 0.004])
    heavy = eqx.tree_at(lambda m: m.inertia, m, m.inertia.at[2].add(extra))
    motion = identify.excitation(m, jax.random.key(0))
    d = jax.jit(lambda key: log(heavy, motion, key, T=800))(jax.random.key(1))
    words = "position", "effort"
    header = ["__time", *(f"/joint_states/{n}/{w}" for w in words for n in m.joint_names)]
    rows = np.column_stack([np.asarray(d.t) + 1.7e9, d.q, d.tau])
    np.savetxt("log.csv", rows, "%.9f", ",", header=",".join(header), comments="")
    result = run(
        "identify", "robot.urdf", "log.csv", "--payload", "three", "--report", "weight.html"
    )
    assert result.exit_code == 0, result.output
    line = next(x for x in result.output.splitlines() if "payload:three mass" in x)
    mass, spread = (float(x) for x in line.replace("│", " ").replace("kg", " ").split()[-2:])
    assert abs(mass - 1.5) < 2 * spread + 0.02 and spread < 0.2
    assert "torques are late by" in result.output and "compiling the fit" in result.output
    page = (tmp_path / "weight.html").read_text()
    assert page.startswith("<!doctype html>") and "data:image/png;base64," in page
    assert "<td>payload:three mass</td>" in page and not (tmp_path / "weight.png").exists()


def test_bad_input_is_told_in_one_line(files, tmp_path):
    path, data, _ = files
    (tmp_path / "x.txt").write_text("")
    t = np.arange(100) * 0.01
    q = 100 * np.sin(np.outer(t, [1, 2, 3]))
    np.savez(tmp_path / "degrees.npz", t=t, q=q, tau=q)
    np.savez(tmp_path / "short.npz", t=t, q=0.01 * q, tau=q)
    for args, says in (
        ((path, tmp_path / "x.txt"), "must be .npz or .csv"),
        ((path, data, "--learn", "mass"), "some of inertia"),
        (("sample:pendulum", data), "are not the joints of robot"),
        ((path, data, "--output", "model.xml"), "choose"),
        ((path, tmp_path / "degrees.npz"), "are the positions in degrees?"),
        ((path, data, "--payload", "tool"), "no link 'tool'"),
        ((path, data, "--payload", "two", "--learn", "friction"), "must be among"),
        ((path, tmp_path / "short.npz", "--window", "61"), "window=61"),
    ):
        result = run("identify", *args)
        assert result.exit_code == 2 and says in result.output
        assert "Traceback" not in result.output
