"""Comparison with Pinocchio, if it is installed: both libraries read the same URDF."""

import warnings
from importlib import import_module
from importlib.util import find_spec

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from ..algorithms.crba import crba
from ..io import convert, load_urdf
from ..model import Model, RobotDescriptionWarning
from ._identities import error, forward_dynamics, inverse_dynamics, random_states
from ._robots import Robot
from ._show import Check

NAME = "agreement with Pinocchio"


def agreement(robot: Robot, floating_base: bool, n: int, seed: int) -> list[Check]:
    """Compare RNEA, CRBA and ABA of both libraries at random states.

    If the comparison is not possible, the only check says why.
    """
    if robot.path is None:
        return [Check(NAME, None, None, "skipped: a sample robot has no URDF")]
    if find_spec("pinocchio") is None:
        return [Check(NAME, None, None, "skipped: not installed (pip install pin)")]
    pin = import_module("pinocchio")
    free = (pin.JointModelFreeFlyer(),) if floating_base else ()
    driven = robot.model.space is not robot.model.topology
    problem = None
    for mimic in (True, False) if driven else (False,):
        model, options = robot.model, {"mimic": True} if mimic else {}
        if driven and not mimic:  # Pinocchio cannot follow every joint that it can read
            model = _independent(robot, floating_base)
        try:
            other = pin.buildModelFromUrdf(str(robot.path), *free, **options)
            layout = convert.pinocchio(model, other)
        except (RuntimeError, TypeError, ValueError) as found:
            problem = problem or str(found).splitlines()[0]
            continue
        return _compare(pin, model, other, layout, n, seed)
    return [Check(NAME, None, None, f"skipped: {problem}")]


def _independent(robot: Robot, floating_base: bool) -> Model:
    """The robot with mimic joints that move on their own."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RobotDescriptionWarning)
        return load_urdf(
            str(robot.path),
            floating_base=floating_base,
            dtype=robot.model.dtype,
            mimic="independent",
        )


def _compare(pin, model: Model, other, layout, n: int, seed: int) -> list[Check]:
    # Pinocchio's dynamics have no damping
    model = eqx.tree_at(lambda m: m.damping, model, jnp.zeros_like(model.damping))
    states = random_states(model, n, seed)

    @jax.jit
    def ours(model, states):
        def one(s):
            a = forward_dynamics(model, s.q, s.v, s.tau)
            inputs = layout.q_to(s.q), layout.v_to(s.q, s.v), layout.a_to(s.q, s.v, s.a)
            torques = inverse_dynamics(model, s.q, s.v, s.a)
            results = (
                layout.tau_to(s.q, torques),
                layout.mass_matrix_to(s.q, crba(model, s.q)),
                layout.a_to(s.q, s.v, a),
            )
            return (*inputs, layout.tau_to(s.q, s.tau)), results

        return jax.vmap(one)(states)

    data = other.createData()

    def theirs(q, v, a, tau):
        M = np.triu(pin.crba(other, data, q))
        M = M + np.triu(M, 1).T
        if model.space is model.topology:
            acceleration = pin.aba(other, data, q, v, tau).copy()
        else:  # its articulated-body algorithm takes no mimic joints
            acceleration = np.linalg.solve(M, tau - pin.nle(other, data, q, v))
        return pin.rnea(other, data, q, v, a).copy(), M, acceleration

    inputs, mine = jax.tree.map(np.asarray, ours(model, states))
    expected = [np.stack(x) for x in zip(*map(theirs, *inputs), strict=True)]
    names, limits = ("RNEA", "CRBA", "ABA"), (1e-10, 1e-10, 1e-6)
    return [
        Check(f"{name} = Pinocchio's", error(x, y), limit, f"pin {pin.__version__}")
        for name, x, y, limit in zip(names, mine, expected, limits, strict=True)
    ]
