"""Single precision: how accurate it is, and that nothing leaves it."""

from functools import cache

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.calls import bind, each_public_function, quick_jit, traced
from support.helpers import cast, random_states

import rbd_jax as rbd
from rbd_jax import samples
from rbd_jax.io import example_robots, load_urdf

pytestmark = pytest.mark.filterwarnings("ignore::rbd_jax.RobotDescriptionWarning")

STATES = 64
TALOS = "talos_full_v2"
URDFS = (TALOS, "hyq_no_sensors", "panda")
NAMES = ("quadruped", TALOS, *(pytest.param(n, marks=pytest.mark.slow) for n in URDFS[1:]))


def _load(name: str) -> rbd.Model:
    if name not in URDFS:
        return getattr(samples, name)()
    if name not in example_robots():
        pytest.skip("example-robot-data is not installed")
    return load_urdf(
        example_robots()[name],
        floating_base=name != "panda",
        dtype=jnp.float64,
        mimic="independent",
    )


def _raw(m, q, v, a, tau, f_ext):
    return {
        "rnea": rbd.rnea(m, q, v, a, f_ext),
        "aba": rbd.aba(m, q, v, tau, f_ext),
        "crba": rbd.crba(m, q),
        "positions": rbd.forward_kinematics(m, q)[1],
    }


def _ruled(m, q, v, a, tau, f_ext):
    """What the rules return, the values beside derivatives included: those are computed anew."""
    by_torque = lambda tau: rbd.forward_dynamics(m, q, v, tau, f_ext)  # noqa: E731
    by_motion = lambda a: rbd.inverse_dynamics(m, q, v, a, f_ext)  # noqa: E731

    def by_all(dq, v, tau):
        return rbd.forward_dynamics(m, rbd.integrate(m, q, dq), v, tau, f_ext)

    return {
        "inverse": by_motion(a),
        "inverse, beside": jax.vjp(by_motion, a)[0],
        "inverse, derivatives": rbd.inverse_dynamics_derivatives(m, q, v, a, f_ext),
        "forward": by_torque(tau),
        "forward, beside": jax.vjp(by_torque, tau)[0],
        "forward, jvp": jax.jvp(by_all, (jnp.zeros_like(v), v, tau), (a, v, tau))[1],
        "forward, vjp": jax.vjp(by_all, jnp.zeros_like(v), v, tau)[1](v),
        "forward, derivatives": rbd.forward_dynamics_derivatives(m, q, v, tau, f_ext),
    }


@cache
def relative_errors(name: str, functions=_raw) -> dict[str, np.ndarray]:
    """Norm of float32 less float64, over the norm of float64, of the same float32 inputs."""
    m = cast(_load(name), jnp.float32)
    s = random_states(m, STATES)
    assert all(x.dtype == jnp.float32 for x in jax.tree.leaves(s))
    compute = quick_jit(jax.vmap(lambda m, s: functions(m, *s), in_axes=(None, 0)))
    single, double = (
        {k: jnp.concatenate([y.reshape(STATES, -1) for y in jax.tree.leaves(x)], 1)
         for k, x in compute(*cast((m, s), dtype)).items()}
        for dtype in (jnp.float32, jnp.float64)
    )  # fmt: skip
    single, double = jax.tree.map(np.asarray, (single, double))
    errors = {}
    for k in double:
        assert single[k].dtype == np.float32 and double[k].dtype == np.float64
        a, b = single[k].reshape(STATES, -1), double[k].reshape(STATES, -1)
        errors[k] = np.linalg.norm(a - b, axis=1) / np.linalg.norm(b, axis=1)
    return errors


@pytest.mark.float64
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("what", ["rnea", "crba", "positions"])
def test_inverse_dynamics_and_kinematics(name, what):
    errors = relative_errors(name)[what]
    print(f"{name} {what}: median {np.median(errors):.1e}, worst {errors.max():.1e}")
    assert errors.max() <= 1e-6


@pytest.mark.float64
@pytest.mark.parametrize("name", NAMES)
def test_forward_dynamics(name):
    errors = relative_errors(name)["aba"]
    print(f"{name} aba: median {np.median(errors):.1e}, worst {errors.max():.1e}")
    assert errors.max() <= 1e-6


WORST = {
    "inverse": 1e-6,
    "inverse, beside": 1e-6,
    "inverse, derivatives": 1e-6,
    "forward": 2e-6,
    "forward, beside": 5e-6,
    "forward, jvp": 2e-5,
    "forward, vjp": 2e-5,
    "forward, derivatives": 5e-5,
}


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["quadruped", *(pytest.param(n, marks=pytest.mark.slow) for n in URDFS)]
)
@pytest.mark.parametrize("what", WORST)
def test_ruled_functions(name, what):
    errors = relative_errors(name, _ruled)[what]
    print(f"{name} {what}: median {np.median(errors):.1e}, worst {errors.max():.1e}")
    assert errors.max() <= WORST[what]


@cache
def _robot() -> rbd.Model:
    return samples.random_tree(0, dtype=jnp.float32)


@cache
def _program(name: str):
    """The program of a public function, and the shapes and dtypes of its values."""
    f, args = traced(name, _robot())
    return jax.make_jaxpr(f, return_shape=True)(*args)


@pytest.mark.slow
def test_derivatives_of_a_long_chain():
    """With M⁻¹ from ground coordinates the worst of these is wrong by half."""
    m = cast(samples.chain(32, dtype="float64"), jnp.float32)
    q, v, tau, *d = jax.random.normal(jax.random.key(0), (6, STATES, m.nv)).astype(jnp.float32)

    def derivatives(m, q, v, tau, *d):
        rate = jax.jvp(lambda *x: rbd.forward_dynamics(m, *x), (q, v, tau), d)[1]
        return rate, rbd.forward_dynamics_derivatives(m, q, v, tau)[2]

    compute = quick_jit(jax.vmap(lambda *x: derivatives(*x), in_axes=(None, *[0] * 6)))
    single, double = (compute(*cast((m, q, v, tau, *d), t)) for t in (jnp.float32, jnp.float64))
    for a, b in zip(single, double, strict=True):
        a, b = (np.asarray(x, np.float64).reshape(STATES, -1) for x in (a, b))
        error = np.linalg.norm(a - b, axis=1) / np.linalg.norm(b, axis=1)
        print(f"median {np.median(error):.1e}, worst {error.max():.1e}")
        assert np.median(error) < 2e-3 and error.max() < 3e-2


@pytest.mark.parametrize("name", each_public_function())
def test_no_function_leaves_float32(name):
    """With x64 switched on, a float32 model and float32 arguments give float32 results."""
    for x in jax.tree.leaves(_program(name)[1]):
        if jnp.issubdtype(x.dtype, jnp.floating):
            assert x.dtype == jnp.float32


@pytest.mark.parametrize("name", each_public_function())
def test_no_function_computes_in_float64_on_the_way(name):
    text = str(_program(name)[0])
    assert "f32" in text or not bind(name, _robot())
    assert "f64" not in text


@pytest.mark.float64
def test_the_model_decides_the_dtype():
    for dtype in (jnp.float32, jnp.float64):
        m = samples.quadruped(dtype=dtype)
        leaves = jax.tree.leaves(eqx.filter(m, eqx.is_inexact_array))
        assert m.dtype == dtype and all(x.dtype == dtype for x in leaves)
        assert rbd.neutral(m).dtype == dtype
