"""Robots by short name, and random states of them."""

import re
import warnings
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jax.sharding import AxisType, NamedSharding, PartitionSpec

import rbd_jax as rbd

FILES = {  # name -> (file of example-robot-data, floating base)
    "talos": ("talos_full_v2", True),
    "hyq": ("hyq_no_sensors", True),
    "ur3": ("ur3_robot", False),
    "ur5": ("ur5_robot", False),
    "panda": ("panda", False),
    "baxter": ("baxter", False),
    "icub": ("icub", True),
    "go2": ("go2", True),
    "g1": ("g1_29dof_rev_1_0", True),
}


class States(NamedTuple):
    """A batch of states; ``tau`` and ``a`` are independent of each other."""

    q: Array
    v: Array
    a: Array
    tau: Array


def available(names: list[str]) -> list[str]:
    """The names that can be loaded; says which cannot."""
    found = []
    for name in names:
        if name in FILES and FILES[name][0] not in rbd.example_robots():
            print(f"  {name} skipped: example-robot-data is missing (pip install rbd-jax[robots])")
        else:
            found.append(name)
    return found


def load(name: str, dtype="float64") -> rbd.Model:
    """A robot of ``FILES``, ``arm``, ``quadruped``, ``chainN``, ``chainNf`` or ``treeNxB``.

    A chain with an ``f`` floats: its nv is N, with N − 6 hinges.
    """
    dtype = jnp.dtype(dtype)
    if name in FILES:
        file, floating = FILES[name]
        path = rbd.example_robot(file)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", rbd.RobotDescriptionWarning)
            return rbd.load_urdf(path, floating_base=floating, dtype=dtype, mimic="independent")
    if found := re.fullmatch(r"chain(\d+)(f?)", name):
        n, floating = int(found[1]), bool(found[2])
        return rbd.samples.chain(n - 6 * floating, floating_base=floating, dtype=dtype)
    if found := re.fullmatch(r"tree(\d+)x(\d+)", name):
        return rbd.samples.tree(int(found[1]), int(found[2]), dtype=dtype)
    if name not in ("arm", "quadruped"):
        known = f"{', '.join(FILES)}, arm, quadruped, chainN, chainNf, treeNxB"
        raise SystemExit(f"no robot {name!r}; there are {known}")
    return getattr(rbd.samples, name)(dtype=dtype)


def states(model: rbd.Model, batch: int, seed: int = 0) -> States:
    """Random configurations within the limits; v, a and tau normal with deviation 1.

    All are rounded to single precision, so that both dtypes are given the same numbers.
    """
    keys = jax.random.split(jax.random.key(seed), 4)
    double = jax.tree.map(lambda x: x.astype(jnp.float64), model)
    q = jax.vmap(lambda k: rbd.random_configuration(double, k))(jax.random.split(keys[0], batch))
    rest = (jax.random.normal(k, (batch, model.nv), jnp.float64) for k in keys[1:])
    rounded = (x.astype(jnp.float32) for x in (q, *rest))
    return States(*(x.astype(model.dtype) for x in rounded))


def directions(model: rbd.Model, batch: int, seed: int = 1) -> States:
    """Random ambient tangents of a state, and cotangents (``tau``) of a torque."""
    keys = jax.random.split(jax.random.key(seed), 4)
    sizes = (model.nq, model.nv, model.nv, model.nv)
    made = (jax.random.normal(k, (batch, n)) for k, n in zip(keys, sizes, strict=True))
    return States(*(x.astype(model.dtype) for x in made))


def spread(model: rbd.Model, inputs: tuple[Array, ...]) -> tuple[rbd.Model, tuple[Array, ...]]:
    """The model on all devices, the inputs' batch divided among them."""
    mesh = jax.make_mesh((jax.device_count(),), ("batch",), axis_types=(AxisType.Auto,))
    everywhere, divided = (NamedSharding(mesh, PartitionSpec(*x)) for x in ((), ("batch",)))
    return jax.device_put(model, everywhere), jax.device_put(inputs, divided)


def over_batch(function, n: int):
    """``vmap`` over n arguments after the model, which all samples share."""
    return jax.vmap(function, in_axes=(None, *[0] * n))
