"""Inverse kinematics: the public function, its result, and its implicit derivative."""

from collections.abc import Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from ..constraints import Constraints, check as check_constraints
from ..contact import Clearance
from ..derivatives.custom_jvp.implicit_solve import (
    Root,
    implicit_solve_custom_jvp,
    root_custom_jvp,
)
from ..lanes import lanes
from ..model import Model, difference, integrate, neutral
from ..model.arguments import check_number, checked, takes_coordinates
from ..model.outcome import RESULTS, throw_unless_successful
from ..spatial.linear import inverse, matmul, qr_factor, solve_upper
from ._rows import Aim, columns, rows
from ._search import Found, Settings, limits_of_dofs, search
from ._targets import Target


class Reached(eqx.Module):
    """A configuration, how far it is from the targets, and how the search for it ended."""

    q: Float[Array, "*b nq"]
    """The configuration; the nearest one that was found if the targets are not reached."""
    position_error: Float[Array, "*b k"]
    """Distance from each target (m); zero for a target without a position."""
    angle_error: Float[Array, "*b k"]
    """Angle from each target (rad); zero for a target without an orientation or direction."""
    loop_error: Float[Array, "*b"]
    """The largest error of a row of the constraints (m, rad)."""
    distance: Float[Array, "*b c"]
    """The distance of each pair of shapes that is to stay apart (m), negative if they overlap."""
    missing: Float[Array, "*b c"]
    """What is missing of each of these distances to its margin (m); zero where it is kept."""
    at_limit: Bool[Array, "*b nv"]
    """Which degrees of freedom are at a position limit."""
    result: RESULTS
    """``successful`` if all errors are within their tolerances and no distance is too small;
    ``stalled`` if no start leads to the targets, which are then probably out of reach; otherwise
    ``max_steps_reached`` or ``nonfinite``."""
    settled: Bool[Array, "*b"]
    """Whether no configuration nearby that reaches the targets is closer to the preferred posture.
    Without a posture this is whether they are reached."""
    steps: Int[Array, "*b"]
    """Steps of all starts together."""
    starts: Int[Array, "*b"]
    """How many starts were tried."""
    targets: tuple[str, ...] = eqx.field(static=True)
    """Kind and frame of each target."""
    joints: tuple[str, ...] = eqx.field(static=True)
    """The joint of each degree of freedom."""
    pairs: tuple[tuple[str, str], ...] = eqx.field(static=True)
    """The names of both shapes of each pair that is to stay apart."""

    def explain(self) -> str:
        """What was reached and what was not, in words.

        Raises:
            ValueError: for a batch; pick one result with ``jax.tree.map(lambda x: x[3], found)``.
        """
        if self.q.ndim > 1:
            raise ValueError("explain: takes one result, pick one of the batch with jax.tree.map")
        lines = [RESULTS[self.result]]
        for name, p, a in zip(self.targets, self.position_error, self.angle_error, strict=True):
            lines.append(f"{name}: {1e3 * float(p):.4g} mm and {np.rad2deg(float(a)):.4g}° away")
        if float(self.loop_error):
            lines.append(f"constraints: {float(self.loop_error):.2g} m, rad away")
        for (a, b), d, short in zip(self.pairs, self.distance, self.missing, strict=True):
            if float(short):
                apart = f"{1e3 * float(d):.4g} mm apart, {1e3 * float(short):.4g} mm too near"
                lines.append(f"{a} and {b}: {apart}")
        held = [j for j, held in zip(self.joints, np.asarray(self.at_limit), strict=True) if held]
        if held:
            lines.append("at a position limit: " + ", ".join(held))
        if self.result == RESULTS.successful and not bool(self.settled):
            lines.append("a posture nearby may be closer to the preferred one")
        lines.append(f"{int(self.starts)} starts, {int(self.steps)} steps")
        return "\n".join(lines)


@checked
@takes_coordinates
def inverse_kinematics(
    model: Model,
    targets: Target | Sequence[Target],
    q0: Float[Array, " nq"] | None = None,
    *,
    posture: Float[Array, " nq"] | None = None,
    constraints: Constraints | None = None,
    clear: Clearance | Sequence[Clearance] = (),
    joints: Sequence[str] | None = None,
    position_tolerance: float | Float[Array, ""] = 1e-5,
    angle_tolerance: float | Float[Array, ""] = 1e-5,
    starts: int = 32,
    max_steps: int = 1000,
    throw: bool = False,
) -> Reached:
    """Find a configuration within the joint limits at which all targets are reached.

    Source: Levenberg, Marquardt, with the exact Jacobian of the errors, for example Nocedal,
    Wright, Numerical Optimization, §10.3; joints at a limit as in the projected method of Kanzow,
    Yamashita, Fukushima (2004). If a start leads to no solution, another one follows. A preferred
    posture is approached by steps of sequential quadratic programming, once the targets are
    reached. Under ``jax.vmap`` on a CPU each SIMD lane has one sample, and each sample stops by
    itself.

    Args:
        model: the robot, with mimic joints and other driven joints too.
        targets: one or several, as ``control.pose("hand", R, p)``. Their arrays may be mapped over.
        q0: the first start, and the positions of joints that move no target. If None, the posture;
            without one the middle of the limits, and zero for joints without limits.
        posture: if there are several solutions, the one nearest to this configuration is looked
            for, near the first solution that is found. If None, the first solution is the result.
        constraints: closed loops and other constraints that hold too, from
            :mod:`rbd_jax.constraints`.
        clear: shapes that stay apart: links from obstacles and from each other, from
            :func:`rbd_jax.contact.clear_of` or :func:`rbd_jax.contact.keep_apart`. A result that is
            successful keeps every margin. Does not go together with a posture.
        joints: names of the joints that may move; all if None.
        position_tolerance: distance that counts as reached (m).
        angle_tolerance: angle that counts as reached (rad).
        starts: how many more starts are tried. They are spread evenly between the limits, and are
            the same in each call.
        max_steps: limit of all steps together.
        throw: raise an error if the targets are not reached; otherwise ``result`` says it. In a
            batch one sample raises it.

    Returns:
        The configuration with its errors. ``q`` is differentiable with respect to the robot, the
        targets, the posture and the constraints, by the implicit function theorem. With a posture
        this is the exact derivative of the configuration that is nearest to it. Without one, the
        derivative is the least change of q that keeps the targets reached, ``−J⁺ ∂r``. A joint at
        a limit stays there, and so does a distance at its margin. If a target is not reached, its
        error stays as it is. ``q0`` has no derivative.

    Raises:
        KeyError: for an unknown frame or joint. TypeError: for a target of another kind.
        ValueError: if there is no target, if no joint can move it, for a wrong shape, for shapes of
            another robot, or for a posture together with shapes that stay apart.
        RuntimeError: if the targets are not reached and ``throw`` is set.
    """
    targets = (targets,) if isinstance(targets, Target) else tuple(targets)
    clear = (clear,) if isinstance(clear, Clearance) else tuple(clear)
    _check(model, targets, constraints, starts, max_steps)
    _check_clear(model, clear, posture)
    targets = tuple(_of_dtype(model, t) for t in targets)
    moving = _moving(model, targets, constraints, clear, joints)
    fixed = jax.lax.stop_gradient
    if q0 is None:
        q0 = middle(model) if posture is None else posture
    near, turned = (jnp.asarray(x, model.dtype) for x in (position_tolerance, angle_tolerance))
    settings = Settings(near, turned, starts, max_steps)
    # a start ends when the rows are within the tolerance, and then the margin itself is kept
    wider = tuple(eqx.tree_at(lambda c: c.margin, c, c.margin + near) for c in clear)
    aim = Aim(model, targets, constraints, moving, wider)
    args, rest = (aim, posture), (fixed(q0), settings)
    q, _, notes, _ = implicit_solve_custom_jvp(_search, _known, args, rest, False)
    names = tuple(f"{t.kind} of {t.frame}" for t in targets)
    space = model.space
    of_dofs = tuple(space.joint_names[int(b)] for b in space.dof_bodies)
    pairs = tuple(pair for c in clear for pair in c.names)
    found = Reached(q, *notes, targets=names, joints=of_dofs, pairs=pairs)
    return throw_unless_successful(found, found.result) if throw else found


def middle(model: Model) -> Float[Array, " nq"]:
    """The middle of the position limits; as :func:`rbd_jax.neutral` where there are none."""
    lower, upper = model.position_lower, model.position_upper
    bounded = jnp.isfinite(lower) & jnp.isfinite(upper)
    zero = jnp.clip(neutral(model), lower, upper)
    half = 0.5 * (jnp.where(bounded, lower, 0) + jnp.where(bounded, upper, 0))
    return jnp.where(bounded, half, zero)


def _check(model, targets, constraints, starts, max_steps) -> None:
    name = "inverse_kinematics"
    for target in targets:
        if not isinstance(target, Target):
            raise TypeError(
                f"{name}: a target must be made by control.pose, control.position or their like, "
                f"got {type(target).__name__}"
            )
    if not targets:
        raise ValueError(f"{name}: give at least one target, for example control.pose(frame, R, p)")
    shapes = {"R": (3, 3), "p": (3,), "axis": (3,), "offset_R": (3, 3), "offset_p": (3,)}
    for target in targets:
        for leaf, shape in (shapes | {"weight": (2,)}).items():
            value = getattr(target, leaf)
            found = shape if value is None else jnp.shape(value)
            if found not in (shape, ()):
                raise ValueError(
                    f"{name}: {leaf} of the target of {target.frame!r} has shape {found}, expected "
                    f"{shape}; use jax.vmap for many targets"
                )
    if constraints is not None:
        check_constraints(name, model, constraints)
    for option, value, least in (("starts", starts, 0), ("max_steps", max_steps, 1)):
        check_number(name, option, value, least=least, whole=True)


def _check_clear(model: Model, clear: tuple[Clearance, ...], posture) -> None:
    for x in clear:
        if not isinstance(x, Clearance):
            raise TypeError(
                f"inverse_kinematics: clear must be made by contact.clear_of or "
                f"contact.keep_apart, got {type(x).__name__}"
            )
        x.check(model)
    if clear and posture is not None:
        raise ValueError(
            "inverse_kinematics: posture and clear do not go together; give the posture as q0, at "
            "which the search begins"
        )


def _of_dtype(model: Model, target: Target) -> Target:
    return jax.tree.map(lambda x: jnp.asarray(x, model.dtype), target)


def _moving(model, targets, constraints, clear, joints) -> tuple[int, ...]:
    """The degrees of freedom that may move and that move a target or a shape."""
    moving = columns(model, targets, constraints, clear)
    if joints is not None:
        slices = [model.v_slice(j) for j in joints]
        named = {k for s in slices for k in range(s.start, s.stop)}
        moving = tuple(k for k in moving if k in named)
    if not moving:
        frames = ", ".join(repr(t.frame) for t in targets)
        which = "no joint" if joints is None else "none of the named joints"
        raise ValueError(
            f"inverse_kinematics: {which} of robot {model.topology.name!r} moves {frames}; name "
            f"frames of moving links, and joints between them and the base"
        )
    return moving


def _search(args: tuple[Aim, Array | None], rest: tuple[Array, Settings], keep: bool):
    """The configuration, what its derivative needs, and the notes on the search; no more is kept
    for its derivative."""
    (aim, posture), (q0, settings) = args, rest
    return *_ended(aim, search(aim, q0, posture, settings), posture, settings), None


@lanes
def _ended(aim: Aim, found: Found, posture: Array | None, o: Settings):
    model, q, r = aim.model, found.q, rows(aim, found.q)
    x, lower, upper = limits_of_dofs(model, q)
    at_limit = (x <= lower) | (x >= upper)
    fixed = at_limit[aim.moving] if posture is None else found.fixed
    out_of_steps = found.steps >= o.max_steps
    result = RESULTS.where(out_of_steps, RESULTS.max_steps_reached, RESULTS.stalled)
    result = RESULTS.where(found.reached, RESULTS.successful, result)
    finite = jnp.isfinite(jnp.sum(q) + jnp.sum(r.error))
    result = RESULTS.where(finite, result, RESULTS.nonfinite)
    solved = q, found.multipliers, fixed
    missing = jnp.maximum(r.missing - o.position_tolerance, 0)  # to the margin itself
    sizes = r.position, r.angle, r.loop, r.distance, missing
    return q, solved, (*sizes, at_limit, result, found.settled, found.steps, found.start)


# --- the derivative ---------------------------------------------------------------------------


class _Theta(eqx.Module):
    """What a solution depends on, and the solution that it is near."""

    aim: Aim
    posture: Array | None
    q: Array
    fixed: Array

    def at(self, d: Array) -> Array:
        """The configuration ``q ⊕ d``."""
        full = jnp.zeros((self.aim.model.nv,), d.dtype).at[self.aim.moving].set(d)
        return integrate(self.aim.model, self.q, full)


def _residual(theta: _Theta, z: Array) -> Array:
    """``g(q) + J λ`` and ``r(q) − ε λ`` at ``q = q* ⊕ d``, for ``z = (d, λ)``.

    g is the way from the posture to q, or d without a posture. A joint at a limit stays there.
    """
    aim, n = theta.aim, len(theta.aim.columns)
    d, multipliers = z[:n], z[n:]
    q = theta.at(d)
    r, away = rows(aim, q), d
    if theta.posture is not None:
        away = -difference(aim.model, q, theta.posture)[aim.moving]
    pulled = away + matmul(r.rates, multipliers)
    return jnp.concatenate(
        [jnp.where(theta.fixed, d, pulled), r.error - _little(z.dtype) * multipliers]
    )


def _little(dtype) -> float:
    """Keeps the equations regular where rows of the Jacobian depend on each other."""
    return 100 * float(jnp.finfo(dtype).eps)


def _inverse(theta: _Theta, z: Array) -> Array:
    """By QR, of the Jacobian of the equations."""
    A = jax.jacfwd(lambda z: _residual(theta, z))(z)
    n = len(z)
    R = qr_factor(jnp.concatenate([A, jnp.eye(n, dtype=A.dtype)], axis=1))
    return solve_upper(R[:, :n], R[:, n:])


def _inverse_at_rest(theta: _Theta, z: Array) -> Array:
    """The same for multipliers that are zero, by blocks: ``[1 J; Jᵀ −ε]⁻¹``."""
    n = len(theta.aim.columns)
    J = jnp.where(theta.fixed[:, None], 0, rows(theta.aim, theta.at(z[:n])).rates)
    one = jnp.eye(n, dtype=J.dtype)
    S = inverse(matmul(J.T, J) + _little(J.dtype) * jnp.eye(len(J.T), dtype=J.dtype))
    JS = matmul(J, S)
    return jnp.block([[one - matmul(JS, J.T), JS], [JS.T, -S]])


_SETTLED, _AT_REST = Root(_residual, _inverse), Root(_residual, _inverse_at_rest)


@lanes
def _known(args: tuple[Aim, Array | None], solved: tuple[Array, Array, Array], kept: None):
    """The same configuration with its implicit derivative."""
    (aim, posture), (q, multipliers, fixed) = args, solved
    n = len(aim.columns)
    theta = _Theta(aim, posture, q, fixed)
    z = jnp.concatenate([jnp.zeros((n,), q.dtype), multipliers])
    z = root_custom_jvp(_AT_REST if posture is None else _SETTLED, theta, z)
    q = theta.at(z[:n])
    return q, (q, z[n:], fixed)
