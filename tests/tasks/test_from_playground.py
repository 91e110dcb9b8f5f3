"""Go1 and G1 under the joystick of MuJoCo Playground: every term of the reward against the package.

The steps of the package run in MuJoCo itself here, because compiling MJX takes minutes. The package
is not a part of the extra ``test``; without it, only the errors are tested.
"""

import contextlib
import importlib
import struct
from types import SimpleNamespace

import chex
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

pytest.importorskip("optax")
mujoco = pytest.importorskip("mujoco")

import rbd_jax as rbd  # noqa: E402
from rbd_jax import learn, tasks  # noqa: E402
from rbd_jax.tasks.environments._playground import JOYSTICKS  # noqa: E402

NAMES = sorted(JOYSTICKS)


def a_mesh():
    """A binary STL file of a tetrahedron, in place of the meshes that are only to be seen."""
    corners = np.concatenate([np.zeros((1, 3)), np.eye(3)])
    faces = [(0, 2, 1), (0, 1, 3), (0, 3, 2), (1, 2, 3)]
    parts = [
        np.append(np.zeros(3), corners[list(f)]).astype("<f4").tobytes() + b"\0\0" for f in faces
    ]
    return bytes(80) + struct.pack("<I", len(faces)) + b"".join(parts)


class Data:
    """The data of MuJoCo with the methods of MJX that the package calls."""

    def __init__(self, model, **given):
        self.model, self.mj = model, mujoco.MjData(model)
        for name, value in given.items():
            getattr(self.mj, name)[:] = np.asarray(value)
        mujoco.mj_forward(model, self.mj)

    def replace(self, **new):
        kept = {k: getattr(self.mj, k) for k in ("qpos", "qvel", "ctrl", "qacc_warmstart")}
        return Data(self.model, **(kept | new))

    def __getattr__(self, name):
        x = jnp.asarray(getattr(self.mj, name))
        return x.reshape(-1, 3, 3) if name == "site_xmat" else x


def simulate(_, data, ctrl, substeps):
    """A control step; what is read is that of the state at its end."""
    new = data.replace(ctrl=ctrl)
    for _ in range(substeps):
        mujoco.mj_step(new.model, new.mj)
    mujoco.mj_forward(new.model, new.mj)
    return new


def theirs(name, monkeypatch):
    """The environment of the package without noise and pushes, whose contacts converge."""
    pytest.importorskip("mujoco_playground", exc_type=ImportError)
    robot = name.partition("Joystick")[0].lower()
    room = f"mujoco_playground._src.locomotion.{robot}"
    joystick, base = (importlib.import_module(f"{room}.{x}") for x in ("joystick", "base"))
    mjx_env = importlib.import_module("mujoco_playground._src.mjx_env")

    class Meshes(dict):
        def __init__(self):
            folder = mjx_env.ROOT_PATH / "locomotion" / robot / "xmls"
            files = {f.name: f.read_bytes() for f in folder.glob("*.xml")}
            spec = mujoco.MjSpec.from_file(str(folder / "scene_mjx_feetonly_flat_terrain.xml"))
            meshes = {m.file.rsplit("/", 1)[-1]: a_mesh() for m in spec.meshes}
            super().__init__(files | meshes)

    def put(model, **_):
        return SimpleNamespace(nv=model.nv, nu=model.nu, impl=SimpleNamespace(value="c"))

    monkeypatch.setattr(base, "get_assets", Meshes)
    monkeypatch.setattr(base.mjx, "put_model", put)
    monkeypatch.setattr(base.mjx, "forward", lambda _, data: data)
    monkeypatch.setattr(mjx_env, "step", simulate)
    monkeypatch.setattr(
        mjx_env,
        "make_data",
        lambda m, qpos, qvel, ctrl, **_: Data(m, qpos=qpos, qvel=qvel, ctrl=ctrl),
    )
    config = joystick.default_config()
    config.noise_config.level = 0.0
    if "push_config" in config:
        config.push_config.enable = False
    env = joystick.Joystick(config=config)
    option = env.mj_model.opt
    option.iterations, option.ls_iterations = 200, 100
    option.tolerance, option.ls_tolerance = 0, 1e-10
    return env


def ours_at(env, state):
    """The state of the package as one of ours, with a command that stays."""
    layout, info = env.scene.layout, state.info
    q = layout.q_from(jnp.asarray(state.data.qpos))
    v = layout.v_from(q, jnp.asarray(state.data.qvel))
    mine = env.state_at(q, v, jax.random.key(0))
    new = {
        "command": info["command"],
        "wait": jnp.asarray(100.0),
        "air": info["feet_air_time"],
        "peak": info["swing_peak"],
        "phase": info.get("phase", mine.task.phase),
    }
    task = eqx.tree_at(lambda t: tuple(getattr(t, k) for k in new), mine.task, tuple(new.values()))
    return eqx.tree_at(lambda s: (s.task, s.action), mine, (task, info["last_act"]))


@contextlib.contextmanager
def their_rules():
    """The package mixes dtypes and ranks, which our strict tests forbid."""
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        yield


def starts(env, state, rng):
    """The first state of the package; a robot that turns over; one that is to stand, with bent
    joints; of G1 one that closes its legs and presses its hands at them."""
    nu = env.actions
    q, still = np.array(state.data.qpos), jnp.zeros(nu)
    yield state, lambda: jnp.asarray(rng.uniform(-1, 1, nu))
    tipped, speed = q.copy(), np.zeros(nu + 6)
    tipped[2], tipped[3:7] = 1.0, [np.cos(0.75), np.sin(0.75), 0, 0]
    speed[3] = 3.0
    yield state.replace(data=state.data.replace(qpos=tipped, qvel=speed)), lambda: still
    bent = q.copy()
    bent[7:] = np.asarray(env.scene.model.position_upper)[7:] - 0.01
    waits = {**state.info, "command": jnp.zeros(3)}
    left = {**state.info, "command": jnp.array([0.0, 0.3, 0.0])}
    yield state.replace(info=left), lambda: jnp.asarray(rng.uniform(-1, 1, nu))
    yield state.replace(data=state.data.replace(qpos=bent), info=waits), lambda: still
    if nu == 29:
        yield state, lambda: still.at[np.array([1, 16, 7, 23])].set(jnp.array([-1.0, -1, 1, 1]))


@pytest.mark.float64
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::DeprecationWarning")
def test_steps_are_those_of_playground(name, monkeypatch):
    """Each step from the state of the package: states, observations, terms and failures."""
    with their_rules():
        other = theirs(name, monkeypatch)
    env = tasks.from_playground(name)
    env = eqx.tree_at(lambda e: e.noise, env, jnp.asarray(0.0))
    move = eqx.filter_jit(learn.Environment.transition)
    terms = eqx.filter_jit(lambda e, s, a: e.terms(s, a, learn.advance(e, s, a)))
    rng, failures, seen = np.random.default_rng(0), 0, {}
    with their_rules():
        first = other.reset(jax.random.key(1))
    np.testing.assert_allclose(env.observe(ours_at(env, first)), first.obs["state"], atol=1e-9)
    for state, choose in starts(env, first, rng):
        for k in range(25):
            a = choose()
            mine = ours_at(env, state)
            t, mine_terms = move(env, mine, a, jax.random.key(k)), terms(env, mine, a)
            with their_rules():
                state = other.step(state.replace(info=dict(state.info)), a)
            np.testing.assert_allclose(t.observation, state.obs["state"], atol=1e-8)
            for x, value in mine_terms.items():
                want = float(state.metrics[f"reward/{x}"])
                got = float(env.scales[x] * value)
                np.testing.assert_allclose(got, want, atol=1e-9, rtol=1e-7, err_msg=x)
                seen[x] = max(seen.get(x, 0.0), abs(want))
            np.testing.assert_allclose(t.reward, state.reward, atol=1e-9, rtol=1e-7)
            assert bool(t.terminated) == bool(state.done), k
            failures += bool(state.done)
    assert failures
    silent = {x for x, most in seen.items() if most == 0}
    assert not silent, f"these terms were never seen: {silent}"
    unknown = {k for k in state.metrics if k.startswith("reward/")} - {f"reward/{k}" for k in seen}
    assert all(state.metrics[k] == 0 for k in unknown)


@pytest.mark.parametrize("name", NAMES)
def test_episodes_run_in_batches_with_gradients(name):
    """Many robots with noise, commands and pushes: distributions as there, finite gradients."""
    pytest.importorskip("mujoco_playground", exc_type=ImportError)
    env = tasks.from_playground(name)
    keys = jax.random.split(jax.random.key(0), 64)
    states, seen = jax.jit(jax.vmap(env.reset))(keys)
    assert seen.shape[0] == 64
    chex.assert_tree_all_finite(seen)
    command, fastest = np.abs(states.task.command), np.asarray(env.fastest)
    assert np.all(command <= fastest)
    assert np.all(command.max(axis=0) > 0.9 * fastest)

    @jax.jit
    def slope(action):
        state = jax.tree.map(lambda x: x[0], states)
        return jax.grad(lambda a: env.step(state, a, keys[0]).reward)(action)

    by_action = slope(jnp.full((env.actions,), 0.1, env.start.dtype))
    chex.assert_tree_all_finite(by_action)
    assert float(jnp.abs(by_action).max()) > 0


@pytest.mark.float64
@pytest.mark.parametrize("name", NAMES)
def test_commands_and_pushes_come_as_often_as_there(name, monkeypatch):
    """New commands have the distribution of the package's; G1 is pushed at its interval alone."""
    with their_rules():
        other = theirs(name, monkeypatch)
    env = tasks.from_playground(name)
    keys = jax.random.split(jax.random.key(0), 4000)
    state = env.begin(keys[0])
    old = 0.5 * env.fastest
    due = eqx.tree_at(
        lambda s: (s.task.command, s.task.wait, s.age), state, (old, old[0] * 0, old[0])
    )
    ours = jax.jit(jax.vmap(lambda k: env.disturb(due, k).task.command))(keys)
    more = (old,) if name.startswith("Go1") else ()
    with their_rules():
        wanted = jax.jit(jax.vmap(lambda k: other.sample_command(k, *more)))(keys)
    for share in (lambda c: c == 0, lambda c: c == np.asarray(old), lambda c: c > 0, np.abs):
        found, want = (np.mean(share(np.asarray(c)), axis=0) for c in (ours, wanted))
        np.testing.assert_allclose(found, want, atol=0.03)
    if name.startswith("G1"):
        every = state.task.push_every
        for age, moves in ((every - 2, False), (every - 1, True), (2 * every - 1, True)):
            then = eqx.tree_at(lambda s: s.age, state, age)
            kicked = np.abs(env.disturb(then, keys[1]).v - state.v)
            assert (kicked[3:6].max() > 0.05) == moves
            assert kicked[:3].max() == 0 and kicked[6:].max() == 0


def test_wrong_names_and_files_are_told(tmp_path):
    with pytest.raises(ValueError, match="the name must be one of.*Go1JoystickFlat.*got 'Go1'"):
        tasks.from_playground("Go1")
    with pytest.raises(rbd.RobotDescriptionError, match="there is no file"):
        tasks.from_playground(NAMES[0], path=tmp_path / "scene.xml")
    other = tmp_path / "other.xml"
    other.write_text(
        "<mujoco><worldbody><body><freejoint/><geom size='1'/></body></worldbody></mujoco>"
    )
    with pytest.raises(rbd.RobotDescriptionError, match="is not the scene of G1JoystickFlat"):
        tasks.from_playground("G1JoystickFlatTerrain", path=other)
