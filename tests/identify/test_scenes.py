"""Friction, ground compliance and masses from motions with contact that MuJoCo recorded."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

mujoco = pytest.importorskip("mujoco")

from support.calls import quick_jit  # noqa: E402

import rbd_jax as rbd  # noqa: E402
from rbd_jax import identify, tasks  # noqa: E402
from rbd_jax.optimize import RESULTS  # noqa: E402
from rbd_jax.spatial import inertia  # noqa: E402

PUCK = """<mujoco><option timestep="0.005"/><worldbody><geom type="plane" size="0 0 1"/>
<body pos="0 0 .1"><joint name="x" type="slide" axis="1 0 0"/>
<joint name="z" type="slide" axis="0 0 1"/>
<geom type="sphere" size=".1" mass="{mass}" condim="3" priority="1" friction="{friction}"
solref="{time} 1" solimp="0 .95 .01"/></body></worldbody>
<actuator><motor joint="x"/><motor joint="z"/></actuator></mujoco>"""


def recorded(scene, m, controls):
    """A motion of MuJoCo from the first keyframe, if there is one, under a row of controls."""
    d, rows = mujoco.MjData(m), []
    if m.nkey:
        mujoco.mj_resetDataKeyframe(m, d, 0)
    for u in controls:
        d.ctrl[:] = u
        rows.append((d.time, d.qpos.copy(), d.qvel.copy()))
        mujoco.mj_step(m, d)
    t, qpos, qvel = (jnp.asarray(np.array(x)) for x in zip(*rows, strict=True))
    q = jax.vmap(scene.layout.q_from)(qpos)
    v = jax.vmap(scene.layout.v_from)(q, qvel)
    return identify.Dataset(t=t, q=q, v=v, controls=jnp.asarray(controls))


def noisy(model, data, key, q_sigma, v_sigma):
    """The motion with normal noise."""
    a, b = (jax.random.normal(k, data.v.shape) for k in jax.random.split(key))
    q = jax.vmap(rbd.integrate, (None, 0, 0))(model, data.q, q_sigma * a)
    return eqx.tree_at(lambda d: (d.q, d.v), data, (q, data.v + v_sigma * b))


def leaves(scene):
    pairs = scene.contacts.pairs
    return pairs.friction, pairs.solref, scene.model.inertia


def distance(fit, truth):
    """``(x − x₀)ᵀ C⁻¹ (x − x₀)``, whose expectation is the number of values."""
    off = np.array([float(fit.values[k]) - x for k, x in truth.items()])
    return off @ np.linalg.solve(fit.covariance, off)


@pytest.mark.slow
def test_a_puck_tells_its_friction_its_mass_and_the_ground():
    """It is pressed down and pushed to and fro. The first guess is far away."""
    truth = {"friction": 0.4, "time": 0.03, "mass": 1.5}
    real = mujoco.MjModel.from_xml_string(PUCK.format(**truth))
    scene = rbd.load_mjcf(PUCK.format(friction=1.0, time=0.02, mass=1.0))
    k = np.arange(60)
    controls = np.stack([12 * np.sign(np.sin(0.3 * k)), -6 + 5 * np.sin(0.5 * k)], axis=1)

    def scene_with(values):
        friction, solref, I = leaves(scene)
        new = (
            friction.at[:, :2].set(values["friction"]),
            solref.at[:, 0].set(values["time"]),
            I.at[1].multiply(values["mass"]),
        )
        return eqx.tree_at(leaves, scene, new)

    sigma: dict[str, Any] = {"q_sigma": 1e-4, "v_sigma": 1e-3}
    data = noisy(scene.model, recorded(scene, real, controls), jax.random.key(0), **sigma)
    start = {"friction": 0.8, "time": 0.02, "mass": 1.0}
    fit = quick_jit(lambda w: identify.fit_plant(scene_with, w, start, **sigma, throw=False))(
        data.windows(10)
    )
    assert bool(fit.result == RESULTS.successful)
    assert distance(fit, truth) < 16  # with a probability of 0.999
    assert abs(2 * float(fit.cost) - fit.freedom) < 4 * (2 * fit.freedom) ** 0.5
    for name, x in truth.items():
        assert float(fit.deviation[name]) < 0.02 * x
    np.testing.assert_array_equal(leaves(fit.plant)[0][:, 0], fit.values["friction"])


def test_bad_arguments_are_named():
    scene = rbd.load_mjcf(PUCK.format(friction=1.0, time=0.02, mass=1.0))
    zero = jnp.zeros((2, 4, 2))
    windows = identify.Dataset(t=None, q=zero, v=zero, controls=zero)
    start = {"friction": 0.8}

    def fit(start, windows, **options):
        return identify.fit_plant(lambda values: scene, windows, start, **options)

    with pytest.raises(ValueError, match="controls"):
        fit(start, identify.Dataset(t=None, q=zero, v=zero))
    with pytest.raises(ValueError, match=r"windows must have .* got \(2,\)"):
        fit(start, jax.tree.map(lambda x: x[:, 0], windows))
    with pytest.raises(ValueError, match="charts for .'time'."):
        fit(start, windows, charts={"time": identify.Real()})
    with pytest.raises(ValueError, match="'friction'. lies outside its chart"):
        fit({"friction": -1.0}, windows)
    with pytest.raises(ValueError, match="no values"):
        fit({}, windows)


@pytest.mark.slow
def test_a_quadruped_tells_its_payload_its_friction_and_the_ground():
    """A trot of 1.2 s in which feet slip; eight records that differ in their noise."""
    pytest.importorskip("optax")

    # An impedance that begins at zero: the force of a contact is a continuous function.
    xml = tasks.quadruped_mjcf().replace('solimp=".5 .95 .01"', 'solimp="0 .95 .01"')
    truth = {"friction": 0.45, "time": 0.03, "payload": 2.5, "forward": 0.08}
    spec = mujoco.MjSpec.from_string(xml)
    for geom in spec.geoms:
        if "foot" in geom.name or geom.name == "ground":
            geom.friction, geom.solref = [truth["friction"], 0.02, 0.01], [truth["time"], 1]
    spec.body("trunk").add_geom(
        type=mujoco.mjtGeom.mjGEOM_BOX, size=[0.05] * 3, pos=[truth["forward"], 0, 0.08],
        mass=truth["payload"], contype=0, conaffinity=0,
    )  # fmt: skip
    real = spec.compile()
    scene = rbd.load_mjcf(xml)
    stand = np.asarray(next(iter(scene.keyframes.values())).controls)
    t = 0.005 * np.arange(240)[:, None]
    beat = 6 * np.pi * t + np.pi * np.array([0, 1, 1, 0])  # of each leg
    lift = np.maximum(np.sin(beat), 0)
    side = 0.05 * np.sin(2.6 * np.pi * t) + 0 * beat
    moves = np.stack([side, 0.3 * lift - 0.2 * np.cos(beat), -0.6 * lift], axis=2)
    clean = recorded(scene, real, stand + moves.reshape(240, 12))
    assert clean.q[:, 2].min() > 0.2  # it does not fall

    def scene_with(values):
        friction, solref, I = leaves(scene)
        m, x = values["payload"], values["forward"]
        box = inertia.from_com(m, jnp.stack([x, 0 * x, 0 * x + 0.08]), m * 0.01 / 6 * jnp.eye(3))
        new = (
            friction.at[:, :2].set(values["friction"]),
            solref.at[:, 0].set(values["time"]),
            I.at[0].add(box),
        )
        return eqx.tree_at(leaves, scene, new)

    sigma: dict[str, Any] = {"q_sigma": 1e-3, "v_sigma": 2e-2}
    start = {"friction": 0.8, "time": 0.02, "payload": 0.5, "forward": 0.0}
    options: dict[str, Any] = {"charts": {"forward": identify.Real(0.1)}, "throw": False, **sigma}
    fit = jax.jit(lambda w: identify.fit_plant(scene_with, w, start, **options))
    far = []
    for key in range(8):
        f = fit(noisy(scene.model, clean, jax.random.key(key), **sigma).windows(8))
        assert bool(f.result == RESULTS.successful)
        assert abs(2 * float(f.cost) - f.freedom) < 4 * (2 * f.freedom) ** 0.5
        off = {k: (float(f.values[k]) - x) / float(f.deviation[k]) for k, x in truth.items()}
        print(key, int(f.steps), {k: f"{x:+.2f}" for k, x in off.items()})
        assert max(map(abs, off.values())) < 4
        far.append(distance(f, truth))
    relative = {k: float(f.deviation[k]) / abs(x) for k, x in truth.items()}
    print("distances", far, "relative deviations", relative)
    assert max(relative.values()) < 0.02
    assert 12 < sum(far) < 63  # χ² with 32 degrees of freedom: with a probability of 0.999
