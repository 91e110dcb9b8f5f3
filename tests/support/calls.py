"""Every public function of a model, called by the names of its arguments.

A function that joins the API is found here by itself, and so comes under every test that asks
something of all of them (shape checks, precision of products, one-body and immobile robots).
"""

import inspect
from collections.abc import Callable
from functools import cache, partial

import jax
import jax.numpy as jnp
import pytest
from jaxtyping import Array

import rbd_jax as rbd
from support.helpers import jit

# ``jax.jit`` without the passes that only make a program run faster: for large functions that run
# a few times, compilation is most of the time of a test.
quick_jit = partial(
    jax.jit,
    compiler_options={
        "xla_backend_optimization_level": 0,
        "xla_llvm_disable_expensive_passes": True,
    },
)


_LEFT_OUT = (
    "export_urdf",  # writes a file
    "with_coordinates",  # returns a model, as the next one
    "screw.with_geometry",
    "screw.to_modern_robotics",  # of chains alone
    "screw.series_elastic_feedforward",  # of robots without quaternions
    "screw.series_elastic_feedback",  # the same
    "constrained_dynamics",  # of constraints, as the next two
    "constrained_dynamics_derivatives",
    "impact",
    "view",  # opens a page
)
_STEPS = ("munthe_kaas", "rk4", "semi_implicit_euler", "step_derivatives")


@cache
def public_functions() -> dict[str, Callable]:
    """The functions of arrays of the public API whose first argument is a model."""
    found = {}
    rooms = {name: getattr(rbd, name) for name in dir(rbd)}
    for room in ("algorithms", "derivatives", "screw"):
        rooms |= {f"{room}.{name}": f for name, f in vars(getattr(rbd, room)).items()}
    rooms |= {f"simulate.{name}": getattr(rbd.simulate, name) for name in _STEPS}
    for name, f in rooms.items():
        last = name.split(".")[-1]
        if last.startswith("_") or isinstance(f, type) or not inspect.isfunction(f):
            continue
        alias = name != f.__name__ and getattr(rbd, f.__name__, None) is f
        if alias or name in _LEFT_OUT:
            continue
        if next(iter(inspect.signature(f).parameters), None) == "model":
            found[name] = f
    return found


def deepest_frame(m: rbd.Model) -> int:
    """The last frame of the body with the most joints above it."""
    bodies = m.topology.frame_bodies
    deepest = max(bodies, key=lambda b: -1 if b < 0 else m.topology.tree.depths[b])
    return max(i for i, b in enumerate(bodies) if b == deepest)


def _spin_down(t, q, v):
    return -0.1 * v


_known: dict[tuple[int, int], tuple[rbd.Model, dict[str, object]]] = {}


def arguments(model: rbd.Model, seed: int = 0) -> dict[str, object]:
    """A value for each argument name that the API uses; made once for a model."""
    key = id(model), seed
    if key not in _known:
        _known[key] = model, _arguments(model, seed)  # with the model, whose id stays taken
    return dict(_known[key][1])


def _arguments(model: rbd.Model, seed: int) -> dict[str, object]:
    keys = jax.random.split(jax.random.key(seed), 8)
    normal = lambda k, *shape: jax.random.normal(keys[k], shape, model.dtype)  # noqa: E731
    q, v = jit(rbd.random_configuration)(model, keys[0]), normal(1, model.nv)
    geometry = rbd.screw.Geometry.of_joints(model, model.joint_names[:1])
    return {
        "q": q,
        "q0": q,
        "q1": jit(rbd.random_configuration)(model, keys[7]),
        "v": v,
        "v0": v,
        "dv": 0.1 * v,
        "dq": jit(rbd.rate_from_velocity)(model, q, v),
        "a": normal(2, model.nv),
        "j": normal(6, model.nv),
        "tau": normal(3, model.nv),
        "lam": jnp.cos(jnp.arange(model.nv, dtype=model.dtype)),
        "f_ext": normal(4, model.nb, 6),
        "prescribed": jax.random.bernoulli(keys[5], 0.5, (model.nb,)),
        "rates": normal(5, 2, model.nv),
        "V": normal(4, model.nb, 6),
        "dV": normal(5, model.nb, 6),
        "Pi": normal(4, model.nb, 6),
        "p": normal(3, model.nv),
        "torques": normal(5, 2, model.nv),
        "dPi": normal(5, model.nb, 6),
        "geometry": geometry,
        "pi": 0.1 * normal(7, len(geometry.bodies)),
        "body": model.nb - 1,
        "frame": model.frame_names[-1],
        "base": model.frame_names[0],
        "key": keys[6],
        "controls": normal(6, 3, model.nv),
        "dt": jnp.asarray(0.01, model.dtype),
        "t": jnp.asarray(0.0, model.dtype),
        "acceleration": _spin_down,
        "constraints": rbd.constraints.point(model, model.frame_names[-1], velocity_gain=1.0)
        if model.topology.frame_bodies[-1] >= 0
        else rbd.constraints.none(model),
        "perturbation": rbd.derivatives.Perturbation(dv=0.1 * v, dgravity=model.gravity),
    }


def bind(name: str, model: rbd.Model, seed: int = 0) -> dict[str, object]:
    """The arguments besides the model for the public function ``name``; optional ones as known."""
    known, chosen = arguments(model, seed), {}
    for parameter in list(inspect.signature(public_functions()[name]).parameters.values())[1:]:
        if parameter.name in known:
            chosen[parameter.name] = known[parameter.name]
        elif parameter.default is inspect.Parameter.empty:
            raise AssertionError(f"no value in support/calls.py for {name}({parameter.name})")
    return chosen


def split(chosen: dict[str, object]) -> tuple[dict[str, Array], dict[str, object]]:
    """Arrays and pytrees of arrays (to trace), and the rest (static)."""
    moving = (
        jax.Array,
        rbd.derivatives.Perturbation,
        rbd.screw.Geometry,
        rbd.constraints.Constraints,
    )
    arrays = {k: x for k, x in chosen.items() if isinstance(x, moving)}
    return arrays, {k: x for k, x in chosen.items() if k not in arrays}


def traced(name: str, model: rbd.Model) -> tuple[Callable, tuple[rbd.Model, dict[str, Array]]]:
    """``(f, args)``: the public function as ``f(model, arrays)``, and arguments for it."""
    arrays, rest = split(bind(name, model))
    function = public_functions()[name]
    return (lambda m, x: function(m, **x, **rest)), (model, arrays)


# Functions of the top level that compile for long: sweeps over the whole API take them last.
_HEAVY = ("step_derivatives", "christoffel", "coriolis_matrix", "rollout")
_LIGHT = (
    "algorithms.frame_acceleration",
    "algorithms.jacobian_time_derivative",
    "algorithms.joint_torque_regressor",
    "algorithms.spatial_momentum",
    "derivatives.mass_matrix_product",
    "derivatives.mass_matrix_solve",
)


def heavy(name: str) -> bool:
    """Whether sweeps take a public function in the long tail: most of those in rooms."""
    return "." in name and name not in _LIGHT or name in _HEAVY


def each_public_function() -> list:
    """The names of :func:`public_functions` as test cases, the heavy ones marked slow."""
    return [
        pytest.param(name, marks=pytest.mark.slow if heavy(name) else ())
        for name in sorted(public_functions())
    ]
