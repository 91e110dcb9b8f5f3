"""Problems of optimal control that several test files solve."""

from functools import cache, partial

import jax
import jax.numpy as jnp
import numpy as np

import rbd_jax as rbd
from rbd_jax import optimize as opt, tasks
from rbd_jax.optimize.problems import _local_models as expansion
from rbd_jax.tasks.problems._legged import Phase, gait, stand

T, DT = 12, 0.1  # of the sledge


@cache
def sledge():
    """A mass of 2 kg on a level rail: a double integrator."""
    box = rbd.LinkSpec("sledge", 2.0, np.zeros(3), np.diag([0.1] * 3))
    joint = rbd.JointSpec("rail", "prismatic", "world", "sledge", axis=np.eye(3)[0])
    spec = rbd.RobotSpec("sledge", (rbd.LinkSpec("world"), box), (joint,))
    return rbd.build_model(spec)


def sledge_problem(bound=2.0):
    """Bring a sledge to 0.3 m, a linear problem."""

    def stage(m, t, q, v, u):
        return 0.3 * u

    def final(m, q, v):
        return 10 * jnp.concatenate([q - 0.3, v])

    return opt.Problem(sledge(), stage, final, DT, T, None, -bound, bound)


@cache
def short():
    """Two steps on four feet, two on a diagonal, three on four feet again; some velocity."""
    model = rbd.samples.quadruped()
    q0 = stand(model, tasks.FEET, tasks.STANCES["quadruped"])
    task = gait(model, q0, [Phase(2), Phase(2, ("lf_foot", "rh_foot")), Phase(3)])
    v0 = 0.3 * jnp.cos(jnp.arange(18.0))
    return task._replace(v0=v0)


def random_problem(integrator="semi_implicit_euler"):
    """A tree of a ball and a hinge, driven by three controls through a function of the state."""
    model = rbd.samples.random_tree(4, kinds=("spherical", "revolute"))

    def drive(m, t, q, v, u):
        return jnp.stack([u[0], u[1] * jnp.cos(v[3]), u[2] * u[0], t - u[2] * v[0] + jnp.sin(q[0])])

    def stage(m, t, q, v, u):
        return jnp.sum(jnp.cos(rbd.forward_kinematics(m, q)[1])) + jnp.sum(v**2 * (1 + u[0] ** 2))

    def final(m, q, v):
        return jnp.concatenate([rbd.center_of_mass(m, q), v * v])

    return opt.Problem(model, stage, final, 0.02, 3, drive, nu=3, integrator=integrator)


@partial(jax.jit, static_argnums=(0, 1, 2, 3))
def linear_quadratic(T, n, m, seed=0):
    keys = iter(jax.random.split(jax.random.key(seed), 12))
    normal = lambda *shape: jax.random.normal(next(keys), shape)  # noqa: E731
    A, B = 0.6 * normal(T, n, n), normal(T, n, m)
    f = expansion.Dynamics(A, B, normal(T, n))
    W = normal(T, n + m, n + m)
    L = W @ W.mT + 0.2 * jnp.eye(n + m)[None]
    l = expansion.Quadratic(normal(T, n), normal(T, m), L[:, :n, :n], L[:, n:, :n], L[:, n:, n:])
    E = normal(n, n)
    none = jnp.zeros((0,))
    end = expansion.Quadratic(normal(n), none, E @ E.T, jnp.zeros((0, n)), jnp.zeros((0, 0)))
    return f, l, end
