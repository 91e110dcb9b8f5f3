"""How long the steps of an explicit integrator may be under the joint damping of a robot.

Joint damping D lets velocities decay as ``v̇ = −M⁻¹ D v``. An explicit method follows this decay
only while ``dt λ`` is less than a number of the method, where λ is the largest eigenvalue of
``M⁻¹ D``. With longer steps every motion grows until it is NaN. The arithmetic is on the host: of a
robot that is traced, nothing can be said.
"""

import functools
import inspect
import math
import warnings
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Float

from ..algorithms.crba import crba
from ..model import Model, neutral
from ..model.arguments import checked, takes_coordinates
from ..spatial.host import greatest_ratio
from ._actuated import implicitly_damped
from ._half_turn import QUARTER, below_half_a_turn, squared_turns
from ._integrators import resolve_integrator
from ._munthe_kaas import Tableau
from ._plant import Plant, Robot, as_plant


@checked
@takes_coordinates
def damping_rate(model: Model, q: Float[Array, " nq"] | None = None) -> float:
    """The fastest decay of velocities under the joint damping: the largest eigenvalue of M⁻¹D.

    It is computed on the host in float64, and has no derivatives.

    Args:
        model: the robot, with numbers: not under ``jax.jit`` or ``jax.vmap``.
        q: configuration; the neutral one if None.

    Returns:
        The rate λ (1/s): zero without damping, infinite for a damped joint that moves no mass, and
        NaN for a robot whose mass matrix is indefinite.
    """
    if not np.any(np.asarray(model.damping)):
        return 0.0
    with jax.ensure_compile_time_eval():
        q = neutral(model) if q is None else q
        M = np.asarray(crba(model, q), float)
        # in the independent coordinates too, where damping is no diagonal matrix
        D = np.asarray(crba(implicitly_damped(model, 1.0), q), float) - M
    return greatest_ratio(D, M)[0]


@functools.lru_cache
def _longest(tableau: Tableau) -> float:
    """The least x > 0 at which ``v̇ = −v`` with the step x begins to grow: ``|R(−x)| = 1``.

    ``R(z) = 1 + z bᵀ (1 − z A)⁻¹ 1`` is a polynomial, because the method is explicit.
    """
    n = len(tableau.b)
    A = np.array([[*row, *[0.0] * (n - len(row))] for row in tableau.a])
    powers = [np.ones(n)]
    for _ in range(n - 1):
        powers.append(A @ powers[-1])
    R = [1.0, *(np.dot(tableau.b, x) for x in powers)]  # of 1, z, z², …
    R = np.array([(-1) ** k * r for k, r in enumerate(R)])[::-1]
    ends = np.concatenate([np.roots(np.polyadd(R, [c])) for c in (1.0, -1.0)])
    real = ends.real[(np.abs(ends.imag) < 1e-9) & (ends.real > 1e-6)]
    return float(real.min(initial=np.inf))


@checked
@takes_coordinates
def stable_step(
    model: Model, integrator: str | Callable = "rk4", q: Float[Array, " nq"] | None = None
) -> float:
    """The longest step for which an explicit integrator is stable under the joint damping (s).

    It is infinite for a robot without damping, for implicit integrators, which are stable at any
    step, and for step functions of your own, of which nothing is known. Other things may demand
    shorter steps: stiff feedback of a policy, springs, or fast rotation.

    Source: the stability function of Runge–Kutta methods (Hairer, Wanner, Solving Ordinary
    Differential Equations II, §IV.2), at the eigenvalue of :func:`damping_rate`.

    Args:
        model: the robot, with numbers: not under ``jax.jit`` or ``jax.vmap``.
        integrator: as in :func:`rbd_jax.rollout`.
        q: configuration at which the mass matrix is taken; the neutral one if None.

    Raises:
        ValueError: for an unknown integrator.
    """
    tableau = resolve_integrator(integrator).tableau
    if tableau is None:
        return math.inf
    rate = damping_rate(model, q)
    return _longest(tableau) / rate if rate else math.inf


def warn_if_unstable(
    function: str, model: Model, q: Any, dt: Any, integrator: str | Callable, stacklevel: int
) -> bool:
    """Warn of an explicit integrator whose steps are too long for the damping, if that is known.

    Returns whether it warned. Where q is traced or None, the neutral configuration stands for it.
    Where the robot or the step is traced, nothing is known and nothing is said.
    """
    if resolve_integrator(integrator).tableau is None:
        return False
    if any(isinstance(x, Tracer) for x in jax.tree.leaves((model, dt))):
        return False
    h = float(np.asarray(dt))
    known = q is not None and not isinstance(q, Tracer) and bool(np.isfinite(np.asarray(q)).all())
    at = q if known else None
    longest = stable_step(model, integrator, at)
    if not h > longest:
        return False
    name = repr(integrator) if isinstance(integrator, str) else type(integrator).__name__
    warnings.warn(
        f"{function}: steps of {h:.3g} s with the integrator {name} are unstable under the joint "
        f"damping of robot {model.topology.name!r}: the largest eigenvalue of M⁻¹D is "
        f"{damping_rate(model, at):.3g} 1/s at {'this' if known else 'the neutral'} configuration, "
        f"so steps have to be shorter than {longest:.3g} s, or motions grow until they are NaN. "
        "Take integrator='implicit_damping' (the default, stable at any step), or "
        "'generalized_alpha' for order 2",
        stacklevel=stacklevel + 1,
    )
    return True


def warns_if_unstable(function: Callable) -> Callable:
    """Let a function of ``(model, q, v, …, dt, *, integrator)`` warn when it is called."""
    signature = inspect.signature(function)
    q = list(signature.parameters)[1]

    @functools.wraps(function)
    def wrapper(*args, **kwargs):
        out, integrator = function(*args, **kwargs), kwargs.get("integrator")
        if integrator is not None:
            given = signature.bind(*args, **kwargs).arguments
            model, dt = given["model"], given["dt"]
            if isinstance(model, Model) and not isinstance(dt, Tracer):
                h = np.asarray(dt) / kwargs.get("substeps", 1)
                warn_if_unstable(function.__name__, model, given[q], h, integrator, 2)
        return out

    return wrapper


OTHER = ", or the integrator 'implicit_coriolis'"


def _moving_no_mass(model: Model, q: np.ndarray) -> list[str]:
    """The joints in the null space of the mass matrix, scaled to a unit diagonal, at q."""
    with jax.ensure_compile_time_eval():
        M = np.asarray(crba(model, jnp.asarray(q, model.dtype)), float)
    eps = float(jnp.finfo(model.dtype).eps)
    size = np.diag(M)
    dead = ~(size > eps * eps * size.max(initial=0))
    scale = np.where(dead, np.inf, np.sqrt(np.abs(size)))
    values, vectors = np.linalg.eigh(M / scale[:, None] / scale)
    dead |= (np.abs(vectors[:, values < 10 * eps]) > 0.1).any(axis=1)
    bodies = model.space.dof_bodies
    return [model.space.joint_names[i] for i in sorted({*np.asarray(bodies)[dead].tolist()})]


def advice(
    model: Model, q: np.ndarray, v: np.ndarray, dt: float, integrator: str | Callable
) -> str:
    """What to try after a motion that is not finite.

    Args:
        model: the robot, with numbers.
        q: configurations of the motion (T, nq).
        v: velocities of the motion (T, nv).
        dt: length of the integrator's steps (s).
        integrator: as in :func:`rbd_jax.rollout`.
    """
    light = _moving_no_mass(model, q[0]) if np.isfinite(q[0]).all() else []
    if light:
        names = ", ".join(map(repr, light[:8])) + f" and {len(light) - 8} more" * (len(light) > 8)
        return (
            "the mass matrix is singular at its start, because some motion of these joints moves "
            f"no mass: {names}; give what they move an inertia, or give them an armature"
        )
    if stable_step(model, integrator) < dt:
        return "take the integrator 'implicit_coriolis'"
    finite = np.isfinite(v).all(axis=1)
    before = np.abs(v[: int(finite.argmin())]).max(axis=0, initial=0)
    joint = model.space.joint_names[model.space.dof_bodies[int(before.argmax())]]
    held = resolve_integrator("implicit_coriolis")
    other = "" if resolve_integrator(integrator) is held else OTHER
    speed = f"joint {joint} was the fastest before, at {before.max():.3g}"
    return f"{speed}; try a shorter time step{other}"


def warns_about_rollout(rollout: Callable) -> Callable:
    """Let a rollout warn of steps that are too long for the damping, and of motions without end.

    It looks at a motion that nobody traces, and so waits until the motion is computed. With
    ``throw=True`` a motion that is not finite is an error, under ``jit`` and ``vmap`` too.
    """
    signature = inspect.signature(rollout)

    @functools.wraps(rollout)
    def wrapper(*args, **kwargs):
        throw = kwargs.pop("throw", False)  # not for lanes, where nothing can be raised
        path = rollout(*args, **kwargs)
        given = signature.bind(*args, **kwargs)
        given.apply_defaults()
        x = given.arguments
        plant = as_plant(x["plant"], x["integrator"], x["f_ext"])
        h = None if isinstance(x["dt"], Tracer) else float(x["dt"]) / x["substeps"]
        told = False
        if isinstance(plant, Robot) and h is not None:
            name = plant.integrator if x["integrator"] is None else x["integrator"]
            told = warn_if_unstable("rollout", plant.model, x["q0"], h, name, 2)
        unresolved = _unresolved(plant, h)
        if isinstance(path.v, Tracer):
            if throw:
                path = eqx.error_if(path, ~_ends_well(path), _words(plant, h))
            if throw and unresolved is not None:
                path = eqx.error_if(path, jnp.any(unresolved(path.v)), _too_fast(plant, h))
            return path
        fast = None if unresolved is None else np.asarray(unresolved(path.v))
        if fast is not None and fast.any():
            if throw:
                raise RuntimeError(_too_fast(plant, h, path.t, fast))
            warnings.warn(_too_fast(plant, h, path.t, fast), stacklevel=2)
        if not bool(_ends_well(path)):
            if throw:
                raise RuntimeError(_words(plant, h, path))
            start = np.isfinite(np.concatenate([path.q[0], path.v[0]])).all()
            if start and not told:
                warnings.warn(_words(plant, h, path), stacklevel=2)
        return path

    return wrapper


def _unresolved(plant: Plant, h: float | None) -> Callable[[Array], Array] | None:
    """Which joints turn so far in a step that velocities were scaled down: from (T, nv) to (T, nj).

    None for integrators that scale no velocities, and if the length of a step is not known.
    """
    if h is None or type(plant) is not Robot or plant.integrator.euler is None:
        return None
    if plant.integrator.euler.end is not below_half_a_turn:
        return None
    return jax.vmap(lambda v: squared_turns(plant.model, v, h) > QUARTER**2)


def _too_fast(plant: Plant, h: float | None, t: Any = None, fast: Any = None) -> str:
    """What to say of a motion in which joints turn too far in a step: ``fast`` (T, nj) at t."""
    which, when = "a limb", ""
    if fast is not None:
        first = int(fast.any(axis=1).argmax())
        which = f"joint {plant.model.space.joint_names[int(fast[first].argmax())]!r}"
        when = f" at t = {float(t[first]):.3g} s"
    return (
        f"rollout: {which} of robot {plant.model.topology.name!r} turns by more than a quarter of "
        f"a revolution in a step of {h:.3g} s{when}, which no step follows; the integrator slows "
        "it down, so that the motion is not that of the robot from there on; try a shorter time "
        "step, joint damping, or the integrator 'implicit_coriolis'"
    )


def _ends_well(path: Any) -> Array:
    return jnp.isfinite(jnp.concatenate([path.q[-1], path.v[-1]])).all()


def _words(plant: Plant, h: float | None, path: Any = None) -> str:
    """What to say of a motion that is not finite, and more of it where its numbers are known."""
    steps = "" if h is None else f" at steps of {h:.3g} s"
    begin = f"rollout: the motion of robot {plant.model.topology.name!r} is not finite"
    what = "try a shorter time step"
    if type(plant) is not Robot:
        other = ""
    elif path is None or h is None:
        other = OTHER
    else:
        other, what = (
            "",
            advice(plant.model, np.asarray(path.q), np.asarray(path.v), h, plant.integrator),
        )
    if path is None:
        return f"{begin}{steps}; {what}{other}"
    finite = np.isfinite(np.concatenate([path.q, path.v], axis=1)).all(axis=1)
    return f"{begin} from t = {float(path.t[int(finite.argmin())]):.3g} s on{steps}; {what}{other}"
