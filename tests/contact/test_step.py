"""Scenes against MuJoCo with a converged solver: forces without contact, steps, trajectories."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.extend.core import subjaxprs
from support.helpers import assert_close
from support.scenes import EQUALITIES, everything

import rbd_jax as rbd
from rbd_jax.algorithms.formulations import formulation
from rbd_jax.contact import RESULTS, constants
from rbd_jax.contact.solver.problem import SolverInputs, residual
from rbd_jax.contact.solver.rows import classical_offset
from rbd_jax.contact.step import scene_step_again

mujoco = pytest.importorskip("mujoco")


def started(xml: str, spread: float = 0.5):
    """MuJoCo's model and data in a random motion, and our scene."""
    m = mujoco.MjModel.from_xml_string(xml)
    d = mujoco.MjData(m)
    rng = np.random.default_rng(0)
    d.qvel[:] = spread * rng.normal(size=m.nv)
    mujoco.mj_integratePos(m, d.qpos, 0.3 * rng.normal(size=m.nv), 0.1)
    d.ctrl[:] = 2 * rng.normal(size=m.nu)
    return m, d, rbd.contact.scene_of(m)


def states(scene, d):
    layout = scene.layout
    q = layout.q_from(jnp.array(d.qpos))
    return q, layout.v_from(q, jnp.array(d.qvel))


@pytest.mark.float64
def test_dynamics_without_contact():
    """Mass matrix, bias, passive and actuator forces, accelerations, to 1e-10."""
    m, d, scene = started(everything('cone="elliptic"'))
    model, layout = scene.model, scene.layout
    m.opt.disableflags |= int(mujoco.mjtDisableBit.mjDSBL_CONSTRAINT)
    mujoco.mj_forward(m, d)
    q, v = states(scene, d)
    free = rbd.contact.scene_of(m)

    @jax.jit
    def ours(q, v, u):
        M = rbd.mass_matrix(model, q)
        drive = scene.actuators.torque(model, q, v, u)
        c = classical_offset(model, v)
        bias = rbd.inverse_dynamics(model, q, v, -c) + model.armature * c
        a = rbd.contact.constrained_acceleration(free, q, v, u).a
        return (
            layout.mass_matrix_to(q, M),
            layout.tau_to(q, bias),
            layout.tau_to(q, drive),
            layout.v_to(q, a),
        )

    full = np.zeros((m.nv, m.nv))
    mujoco.mj_fullM(m, d, full)
    theirs = full, d.qfrc_bias - d.qfrc_passive, d.qfrc_actuator, d.qacc
    for x, y in zip(ours(q, v, jnp.array(d.ctrl)), theirs, strict=True):
        np.testing.assert_allclose(x, y, atol=1e-10 * max(1, np.abs(y).max()))


CASES = [
    ("elliptic", "Euler", "box", EQUALITIES),
    pytest.param("pyramidal", "implicitfast", "cylinder", EQUALITIES, marks=pytest.mark.slow),
    pytest.param("elliptic", "implicit", "box", EQUALITIES, marks=pytest.mark.slow),
    pytest.param("elliptic", "RK4", "ellipsoid", "", marks=pytest.mark.slow),
    pytest.param("pyramidal", "Euler", "capsule", "", marks=pytest.mark.slow),
]


@pytest.mark.float64
@pytest.mark.parametrize(("cone", "integrator", "shape", "equality"), CASES)
def test_steps_are_mujocos(cone, integrator, shape, equality):
    """100 steps: each from MuJoCo's state to 1e-8, all of them in a row to 1e-5."""
    option = f'cone="{cone}" integrator="{integrator}"'
    m, d, scene = started(everything(option, shape, equality))
    u, layout = jnp.array(d.ctrl), scene.layout

    @jax.jit
    def advance(q, v, guess):
        drive = scene.actuators.torque(scene.model, q, v, u)
        r = rbd.contact.scene_step(scene, q, v, u, warmstart=guess)
        theta = SolverInputs(
            scene.model, scene.constraints, constants(scene), q, v, drive, scene.dt
        )
        return r, layout.q_to(r.q), layout.v_to(r.q, r.v), residual(theta, r.a), drive

    own, guess, touched, pushed = states(scene, d), jnp.zeros(m.nv), 0, 0
    for _ in range(100):
        alone = advance(*own, guess)[0]
        r, q1, v1, rest, drive = advance(*states(scene, d), guess)
        assert r.result == RESULTS.successful
        np.testing.assert_allclose(rest, 0, atol=1e-8 * float(1 + jnp.abs(drive).max()))
        own, guess = (alone.q, alone.v), r.a
        mujoco.mj_step(m, d)
        np.testing.assert_allclose(q1, d.qpos, atol=1e-8)
        np.testing.assert_allclose(v1, d.qvel, atol=1e-8)
        touched, pushed = max(touched, d.ncon), max(pushed, d.nefc)
    np.testing.assert_allclose(layout.q_to(own[0]), d.qpos, atol=1e-5)
    assert touched >= 3 and pushed >= 12


HOPPER = """<mujoco><option cone="elliptic"/><worldbody><geom type="plane" size="1 1 1"/>
<body pos="0 0 .099"><freejoint/><geom size=".1"/><body pos=".1 0 0"><joint name="j" axis="0 1 0"/>
<geom size=".05" pos=".1 0 0"/></body></body></worldbody><actuator><motor joint="j"/></actuator>
<keyframe><key name="start" ctrl=".1" qvel=".2 .1 0 0 .3 0 0"/></keyframe></mujoco>"""


@pytest.mark.slow
@pytest.mark.float64
def test_rollout_in_a_scene():
    """A rollout is the scene's steps, in all three gradient modes with one gradient."""
    scene = rbd.load_mjcf(HOPPER)
    q, v, u = scene.keyframes["start"]

    def end(u, mode):
        controls = jnp.broadcast_to(u, (6, scene.nu))
        path = rbd.rollout(scene, q, v, controls, scene.dt, gradient=mode)
        return jnp.sum(path.v[-1] * jnp.arange(1.0, scene.model.nv + 1)), path

    @jax.jit
    def all_modes(u):
        modes = ("full", "checkpoint", "adjoint")
        return [jax.value_and_grad(end, has_aux=True)(u, m) for m in modes]

    found = all_modes(u)
    step = jax.jit(lambda q, v, u: rbd.contact.scene_step(scene, q, v, u)[:2])

    def after(u):
        now = q, v
        for _ in range(6):
            now = step(*now, u)
        return now

    now, h = after(u), 1e-5
    weights = np.arange(1.0, scene.model.nv + 1)
    slope = (weights @ after(u + h)[1] - weights @ after(u - h)[1]) / (2 * h)
    for (value, path), gradient in found:
        np.testing.assert_allclose(path.q[-1], now[0], atol=1e-11)
        assert_close(value, found[0][0][0], atol=1e-9)
        assert_close(gradient, found[0][1], atol=1e-8)
        assert_close(gradient, slope[None], rtol=1e-6)
    assert float(jnp.abs(found[0][1]).min()) > 0
    with pytest.raises(ValueError, match=r"\(T, nu\) = \(T, 1\)"):
        rbd.rollout(scene, q, v, jnp.zeros((3, 2)), scene.dt)


def programs(closed) -> list[str]:
    """The names of all programs of lanes in a jaxpr and in these programs, and of its loops."""
    found = []
    for eqn in closed.eqns:
        program = eqn.params.get("program")
        found.append(program.name if program is not None else eqn.primitive.name)
        inner = [program.closed.jaxpr] if program is not None else subjaxprs_of(eqn)
        found += [name for x in inner for name in programs(x)]
    return found


def subjaxprs_of(eqn) -> list:
    return [getattr(y, "jaxpr", y) for x in eqn.params.values()
            for y in (x if isinstance(x, tuple | list) else [x])
            if hasattr(getattr(y, "jaxpr", y), "eqns")]  # fmt: skip


def test_a_gradient_of_a_rollout_searches_no_contact_again():
    """The mode adjoint takes the solved accelerations from the states, so that its way back has no
    loop of an unknown length, and the states come from the results."""
    scene = rbd.load_mjcf(HOPPER)
    q, v, u = scene.keyframes["start"]

    def end(u, mode):
        policy = lambda t, q, v: u * q[:1]  # noqa: E731
        path = rbd.rollout(scene, q, v, policy, scene.dt, steps=6, gradient=mode)
        return jnp.sum(path.v[-1] * jnp.arange(1.0, scene.model.nv + 1))

    found = programs(jax.make_jaxpr(jax.grad(lambda u: end(u, "adjoint")))(u).jaxpr)
    assert "rollout.complete" in found
    back = found[found.index("rollout.jvp.transpose") :]
    assert "while" in found and "while" not in back
    slopes = [jax.jit(jax.grad(lambda u, m=m: end(u, m)))(u) for m in ("full", "adjoint")]
    tight = 1e-9 if scene.model.dtype == jnp.float64 else 1e-4
    assert float(jnp.abs(slopes[0]).min()) > 0
    assert_close(slopes[1], slopes[0], rtol=tight)


def test_a_derivative_of_a_step_takes_the_factor_that_its_search_has_kept():
    """A search whose result is differentiated factorizes once more, and its derivative never. The
    derivative is that of a step whose accelerations are known, which has no such factor."""
    scene = rbd.load_mjcf(HOPPER)
    q, v, u = scene.keyframes["start"]
    a = rbd.contact.scene_step(scene, q, v, u).a

    def speed(q, again=False):
        if again:
            return jnp.sum(scene_step_again(scene, q, v, u, a).v ** 2)
        return jnp.sum(rbd.contact.scene_step(scene, q, v, u).v ** 2)

    def factors(function) -> dict[str, int]:
        """How often each program factorizes."""
        found, name, there = {}, "", programs(jax.make_jaxpr(function)(q).jaxpr)
        for x in there:
            name = x if x.startswith(("_advance", "_differentiate")) else name
            found[name] = found.get(name, 0) + (x == "factorized")
        return found

    assert factors(speed)["_advance"] == 1
    back = factors(jax.grad(speed))
    assert back["_advance"] == 2 and back["_differentiate.jvp.transpose"] == 0
    again = factors(jax.grad(lambda q: speed(q, True)))
    assert again["_differentiate.jvp.transpose"] == 1
    slopes = [jax.grad(lambda q, k=k: speed(q, k))(q) for k in (False, True)]
    tight = 1e-9 if scene.model.dtype == jnp.float64 else 1e-4
    assert float(jnp.abs(slopes[0]).max()) > 0
    assert_close(slopes[0], slopes[1], rtol=tight, atol=tight)


@pytest.mark.slow
@pytest.mark.float64
def test_second_derivatives_of_a_rollout_whose_searches_are_known():
    scene = rbd.load_mjcf(HOPPER)
    q, v, u = scene.keyframes["start"]

    def end(u, mode):
        controls = jnp.broadcast_to(u, (4, scene.nu))
        path = rbd.rollout(scene, q, v, controls, scene.dt, gradient=mode)
        return jnp.sum(path.v[-1] ** 2) + jnp.sum(jnp.sin(path.q[-1]))

    found = [jax.jit(jax.grad(lambda u, m=m: jnp.sum(jax.grad(lambda u: end(u, m))(u))))(u)
             for m in ("full", "adjoint")]  # fmt: skip
    assert float(jnp.abs(found[0]).min()) > 0
    assert_close(found[1], found[0], rtol=1e-9)


def test_constants_of_a_scene_that_is_not_traced_are_numbers_on_a_gpu():
    scene = rbd.load_mjcf(HOPPER)
    state = scene.keyframes["start"]

    def both():  # JAX keeps what it has traced for each function
        return (
            lambda *x: rbd.contact.scene_step(scene, *x)[:2],
            lambda s, *x: rbd.contact.scene_step(s, *x)[:2],
        )

    for name, known in (("teams", True), ("lanes", False)):
        alone, given = both()
        with formulation(name):
            assert ("constants" in programs(jax.make_jaxpr(alone)(*state).jaxpr)) != known
            assert "constants" in programs(jax.make_jaxpr(given)(scene, *state).jaxpr)
    alone, given = both()
    with formulation("lanes", known=True):
        one, two = jax.jit(alone)(*state), jax.jit(given)(scene, *state)
    tight = 1e-12 if scene.model.dtype == jnp.float64 else 1e-5
    for x, y in zip(one, two, strict=True):
        assert_close(x, y, rtol=tight, atol=tight)
    mass = jax.grad(lambda s: jnp.sum(rbd.contact.scene_step(s, *state).v ** 2), allow_int=True)
    assert float(jnp.abs(mass(scene).model.inertia).max()) > 0


def test_stages_of_rk4_are_compiled_once(monkeypatch):
    """A step by RK4 has at most 1.3 times the operations of one by Euler; loops count once."""
    monkeypatch.setenv("RBD_JAX_LANES", "0")  # so that the operations are JAX's own

    def size(jaxpr) -> int:
        return len(jaxpr.eqns) + sum(map(size, subjaxprs(jaxpr)))

    sizes = {}
    for integrator in ("Euler", "RK4"):
        _, d, scene = started(everything(f'integrator="{integrator}"'))
        closed = jax.make_jaxpr(lambda *x, s=scene: rbd.contact.scene_step(s, *x))(
            *states(scene, d), jnp.array(d.ctrl)
        )
        sizes[integrator] = size(closed.jaxpr)
    assert 1000 < sizes["RK4"] < 1.3 * sizes["Euler"], sizes
