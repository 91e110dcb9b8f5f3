"""Learned dynamics move where a robot moves, and survive a file and another process."""

import pickle
import subprocess
import sys

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.calls import quick_jit

import rbd_jax as rbd
from rbd_jax import identify, optimize as opt
from rbd_jax.simulate import State, step_derivatives

DT = 0.05


@pytest.fixture(scope="module")
def learned():
    """A cart with a pole, whose learned friction is not small."""
    cart = rbd.samples.cart_pole()
    start = identify.learned_dynamics(cart, ("friction", "torque"), jax.random.key(0))
    grow = lambda x: 3 * x if eqx.is_inexact_array(x) else x  # noqa: E731
    return eqx.tree_at(lambda d: d.friction, start, jax.tree.map(grow, start.friction))


def _problem(plant):
    down = jnp.array([0.3, 0.0])
    stage = opt.StateCost(down, 0.3 * jnp.ones(2), 0.1 * jnp.ones(2), jnp.array([0.1]))
    final = opt.StateCost(down, 20 * jnp.ones(2), 10 * jnp.ones(2))
    push = jnp.array([[1.0], [0.0]])
    return opt.Problem(plant, stage, final, DT, 10, push)


Q0, V0 = jnp.array([0.1, 0.4]), jnp.array([0.5, -0.3])
U = jnp.sin(jnp.arange(10.0))[:, None]
TAU = jnp.pad(U, ((0, 0), (0, 1)))


def test_rollouts_take_learned_dynamics_and_problems_their_derivatives(learned):
    @quick_jit
    def run(d):
        plant, h = _problem(d).plant, jnp.asarray(DT, Q0.dtype)

        def moved(z):
            state = plant.step(0 * h, State(Q0 + z[:2], V0 + z[2:4]), z[4:], h)
            return jnp.concatenate([state.q, state.v])

        exact = jax.jacfwd(moved)(jnp.zeros(5))
        force = jnp.zeros(2)
        A, B = step_derivatives(d.model, Q0, V0, force, h, integrator=plant.integrator)
        motions = d.rollout(Q0, V0, TAU, DT), rbd.rollout(d, Q0, V0, TAU, DT)
        bodies = rbd.rollout(d.model, Q0, V0, TAU, DT)
        slopes = exact, jnp.concatenate([A, B[:, :1]], axis=1)
        return *(path.q for path in (*motions, bodies)), slopes

    own, other, bodies, slopes = run(learned)
    np.testing.assert_allclose(own, other, atol=1e-6)
    np.testing.assert_allclose(*slopes, atol=1e-5)
    assert float(jnp.abs(own - bodies).max()) > 1e-2


@pytest.mark.slow
def test_optimizers_take_learned_dynamics(learned):
    @quick_jit
    def run(d):
        solved = opt.ilqr(_problem(d), Q0, V0, U, max_steps=20, throw=False)
        again = rbd.rollout(d, Q0, V0, jnp.pad(solved.u, ((0, 0), (0, 1))), DT)
        loop = opt.mpc(opt.controller(_problem(d), max_steps=1), Q0, V0, U, steps=2)
        return solved.q, again.q, loop.q, (solved.history.cost[0], solved.cost)

    solved, again, loop, costs = run(learned)
    np.testing.assert_allclose(solved, again, atol=1e-5)
    assert float(costs[1]) < 0.8 * float(costs[0]) and bool(jnp.isfinite(loop).all())
    slope = eqx.filter_jit(eqx.filter_grad(lambda d: jnp.sum(rbd.rollout(d, Q0, V0, TAU, DT).q)))
    sizes = [float(jnp.abs(x).max()) for x in jax.tree.leaves(slope(learned).friction)]
    assert max(sizes) > 0 and np.isfinite(sizes).all()


READ = """
import pickle, sys
import equinox as eqx, jax, jax.numpy as jnp, numpy as np
x = np.load(sys.argv[1] + "/x.npz")
jax.config.update("jax_enable_x64", x["q"].dtype == np.float64)
import rbd_jax as rbd
from rbd_jax import identify
folder = sys.argv[1]
with open(folder + "/all.pickle", "rb") as file:
    pickled = pickle.load(file)
cart = rbd.samples.cart_pole(dtype=x["q"].dtype)
like = identify.learned_dynamics(cart, ("friction", "torque"), jax.random.key(7))
leaves = eqx.tree_deserialise_leaves(folder + "/leaves.eqx", like)
model = eqx.tree_deserialise_leaves(folder + "/model.eqx", cart)
for d in (pickled, leaves):
    np.testing.assert_allclose(d(x["q"], x["v"], x["tau"]), x["a"], rtol=1e-6)
np.testing.assert_array_equal(model.inertia, x["inertia"])
print("same")
"""


@pytest.mark.slow
def test_files_are_read_in_another_process(learned, tmp_path):
    q, v, tau = jnp.array([0.1, 2.9]), jnp.array([0.5, -0.3]), jnp.array([1.0, 0.0])
    heavy = eqx.tree_at(lambda m: m.inertia, learned.model, 1.5 * learned.model.inertia)
    (tmp_path / "all.pickle").write_bytes(pickle.dumps(learned))
    eqx.tree_serialise_leaves(tmp_path / "leaves.eqx", learned)
    eqx.tree_serialise_leaves(tmp_path / "model.eqx", heavy)
    a = eqx.filter_jit(learned)(q, v, tau)
    np.savez(tmp_path / "x.npz", q=q, v=v, tau=tau, a=a, inertia=heavy.inertia)
    done = subprocess.run(
        [sys.executable, "-c", READ, str(tmp_path)], capture_output=True, text=True, check=False
    )
    assert done.stdout.strip().endswith("same"), done.stderr[-2000:]
