"""Robots of example-robot-data, read by us and by Pinocchio."""

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import pytest

import rbd_jax as rbd
from rbd_jax.io import convert, example_robots, load_urdf

pin = pytest.importorskip("pinocchio")

TOL = 1e-10


def load(case: str):
    name, _, base = case.rpartition("-")
    path, floating = example_robots()[name], base == "floating"
    root = (pin.JointModelFreeFlyer(),) if floating else ()
    theirs = pin.buildModelFromUrdf(str(path), *root)
    ours = load_urdf(path, floating_base=floating, mimic="independent")
    rng = np.random.default_rng(len(case))
    turned = jnp.array([0.7, -1.9, -9.3])
    theirs.gravity.linear = np.asarray(turned)
    # Pinocchio has no damping in its dynamics; rotor inertia it has, under the same name
    ours = eqx.tree_at(lambda m: (m.damping, m.gravity), ours, (0 * ours.damping, turned))
    if case == "hyq_no_sensors-floating":
        armature = rng.uniform(0.0, 0.2, ours.nv)
        layout = convert.pinocchio(ours, theirs)
        ours = eqx.tree_at(lambda m: m.armature, ours, jnp.asarray(armature))
        theirs.armature = np.asarray(layout.v_to(rbd.neutral(ours), armature))
    return ours, theirs, convert.pinocchio(ours, theirs)


def error(a, b) -> float:
    """Largest difference relative to the largest number of the quantity."""
    a, b = np.asarray(a), np.asarray(b)
    assert a.shape == b.shape
    if a.size == 0:
        return 0.0
    scale = np.abs(b).max()
    return float(np.abs(a - b).max() / (scale if scale > 0 else 1.0))


def singular(M) -> bool:
    return np.diag(M).min() <= 1e-14 * np.diag(M).max()


def ill_conditioned(M) -> bool:
    """Whether rounding M alone may move ``M⁻¹ τ`` by more than a thousandth of the tolerance."""
    d = 1 / np.sqrt(np.diag(M))
    return np.linalg.cond(d[:, None] * M * d) * 2.0**-53 > 1e-3 * TOL
