"""Fits that are linear in what is learned, solved as convex programs.

As a function of the parameters themselves, the sum of squares is quadratic and the entropic prior
is convex. So the best physical robot is found from any start. In the coordinates of charts, the
parameters that no torque shows would form curved valleys, along which a solver takes small steps.
This is why the solver is written here: with optimistix's Levenberg-Marquardt in those coordinates,
a robust fit of an arm of seven joints to 100 samples did not converge in 500 steps, which took a
minute. Here it takes 210 steps and 7 s of processor time.

Letters: P is the pseudo-inertia of a body, or a positive number as a 1×1 matrix, and ``P = L Lᵀ``.
Everything else is scaled by L. Z is the dual variable, ``Z = N Nᵀ``; on the central path it is
``w 1``. D is a step, ``dP = L D Lᵀ``, and d are its components in a basis E of the symmetric
matrices.
"""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from ...model import Model
from ...spatial import inertia, linear, so3
from ...spatial.linear import cholesky, definite, qr_factor, solve_lower, solve_upper
from .._progress import Progress, report
from ..parameters._charts import LogCholesky, Positive, Real
from ..parameters._parameters import Block, Parameters, prior_weight

_FALL = 0.1  # The weight of the barrier falls by no more than this factor in one step.
_NEAR = 0.9  # A step goes at most this part of the way to the border.
_LENGTHS = 0.8 ** np.arange(30)  # The lengths of steps to choose from.
_NO_CONE = np.zeros((1, 0, 0))


class _Cone(NamedTuple):
    """The least-squares problem of a step of one block of values."""

    T: Float[Array, "n p k"]
    """The change of the values is ``T d``."""
    rows: Float[Array, "n l k"]
    """Prior and barrier are ``½ |rows d + right|²`` to second order."""
    right: Float[Array, "n l"]
    E: np.ndarray
    """Basis of the steps D, (k, s, s)."""


def is_convex(parameters: Parameters) -> bool:
    """Whether the values of all charts form cones for which this module has steps."""
    return all(isinstance(b.chart, (LogCholesky, Positive, Real)) for b in parameters.blocks)


def _values(parameters: Parameters, model: Model) -> list[Array]:
    return [getattr(model, b.leaf)[np.array(b.rows, np.int32)] for b in parameters.blocks]


def learned_values(parameters: Parameters, model: Model) -> Float[Array, " p"]:
    """The numbers behind the charts, block by block: ten a body, one a degree of freedom."""
    parts = [x.reshape(-1) for x in _values(parameters, model)]
    return jnp.concatenate([jnp.zeros((0,), model.dtype), *parts])


def linear_residuals(
    parameters: Parameters, R: Float[Array, "m c"], x: Float[Array, " p"]
) -> Float[Array, " m"]:
    """``R (x − x₀, −1)``, where x₀ are the nominal values."""
    change = jnp.append(x - learned_values(parameters, parameters.nominal), -jnp.ones((), R.dtype))
    return linear.matmul(R, change)


def resolution(
    parameters: Parameters, R: Float[Array, "m c"], x: Float[Array, " p"]
) -> Float[Array, ""]:
    """By how much rounding ``x − x₀`` changes :func:`linear_residuals`: no step can be shorter."""
    size = jnp.abs(x) + jnp.abs(learned_values(parameters, parameters.nominal))
    change = linear.matmul(jnp.abs(R[:, :-1]), size)
    return 2 * jnp.finfo(R.dtype).eps * jnp.sqrt(jnp.sum(change * change))


def convex_fit(
    parameters: Parameters,
    z0: Float[Array, " k"],
    R: Float[Array, "m c"],
    weight: float,
    max_steps: int | Int[Array, ""],
    tol: float,
    barrier: Float[Array, ""],
    progress: Progress | None = None,
) -> tuple[Float[Array, " k"], Int[Array, ""]]:
    """Minimize ``½ |R (x − x₀, −1)|² + weight · entropic distance`` over robots, from any start.

    Source: Lee, Wensing, Park (2020) for the problem. The method takes primal-dual steps
    towards a path on which the weight of the barrier falls, in the direction of Helmberg, Rendl,
    Vanderbei, Wolkowicz, "An interior-point method for semidefinite programming", 1996 (also
    called HKM). Each step is a linear least-squares problem, solved by QR without squaring its
    condition number.

    Args:
        parameters: what to learn, for which :func:`is_convex` holds; x₀ are its nominal values.
        z0: coordinates to start from.
        R: coefficients of the residuals in ``(x − x₀, −1)``, see :func:`learned_values`.
        weight: weight of the prior; positive.
        max_steps: limit of the steps.
        tol: the last step is shorter than this, in standard deviations, or than what rounding the
            values changes.
        barrier: greatest weight of the barrier at the start; the sum of squares at the start is
            used if it is smaller. A small value suits a start close to the minimum.
        progress: called with the step and the cost.

    Returns:
        The coordinates of the minimum and the number of steps.
    """
    start = parameters.model(z0)
    nominal = _values(parameters, parameters.nominal)

    def robot(x: list[Array]) -> Model:
        model = start
        for b, new in zip(parameters.blocks, x, strict=True):
            put = getattr(model, b.leaf).at[np.array(b.rows, np.int32)].set(new)
            model = eqx.tree_at(lambda m, b=b: getattr(m, b.leaf), model, put)
        return model

    def step(state):
        x, Z, w, k, _ = state
        cones = [
            _cone_of(*y, w, weight) for y in zip(parameters.blocks, x, nominal, Z, strict=True)
        ]
        values = jnp.concatenate([y.reshape(-1) for y in x])
        r = linear_residuals(parameters, R, values)
        report(progress, k, 0.5 * jnp.sum(r * r))
        d, length = _newton_step(_local(R, cones), r, cones)
        steps = [_cone_steps(c, y, z, w) for c, y, z in zip(cones, d, Z, strict=True)]
        a = _step_length(steps, Z)
        x = [y + a * linear.einsum("npk,nk->np", c.T, e).reshape(y.shape)
             for y, c, e in zip(x, cones, d, strict=True)]  # fmt: skip
        Z = [_rescaled_dual(z + a * dZ, a * D) for z, (D, dZ) in zip(Z, steps, strict=True)]
        done = (w <= weight) & (length < jnp.maximum(tol, resolution(parameters, R, values)))
        traces = sum(jnp.trace(z, axis1=-2, axis2=-1).sum() for z in Z)
        mean = traces / max(sum(z.shape[0] * z.shape[1] for z in Z), 1)
        fall = jnp.maximum(_FALL, 1 - a)  # Short steps show that the border has come too near.
        return x, Z, jnp.maximum(fall * mean, weight), k + 1, done

    def going(state):
        return (state[3] < max_steps) & ~state[4]

    r = linear_residuals(parameters, R, learned_values(parameters, start))
    w = jnp.maximum(jnp.minimum(jnp.sum(r * r), barrier), weight)
    x = _values(parameters, start)
    Z = [w * _ones(_matrices(b, y)) for b, y in zip(parameters.blocks, x, strict=True)]
    state = x, Z, w, jnp.zeros((), jnp.int32), jnp.zeros((), bool)
    x, _, _, steps, _ = jax.lax.while_loop(going, step, state)
    return parameters.coordinates(robot(x)), steps


def _local(R: Float[Array, "m c"], cones: list[_Cone]) -> Float[Array, "m k"]:
    """The coefficients of the residuals in d."""
    parts, at = [], 0
    for c in cones:
        n, p, _ = c.T.shape
        columns = R[:, at : at + n * p].reshape(-1, n, p)
        part = linear.einsum("mnp,npk->mnk", columns, c.T)
        parts.append(part.reshape(len(R), -1))
        at += n * p
    return jnp.concatenate(parts, axis=1)


def _newton_step(
    A: Float[Array, "m k"], r: Float[Array, " m"], cones: list[_Cone]
) -> tuple[list[Array], Float[Array, ""]]:
    """The minimum of ``½ |A d + r|² + ½ |rows d + right|²``, and its length by that Hessian."""
    blocks = [x for c in cones for x in c.rows]
    bottom = jax.scipy.linalg.block_diag(*blocks)
    right = jnp.concatenate([c.right.reshape(-1) for c in cones])
    k = A.shape[1]
    both = jnp.concatenate([A, bottom]), jnp.concatenate([r, right])[:, None]
    Q = qr_factor(jnp.concatenate(both, axis=1))
    d = -solve_upper(Q[:k, :k], Q[:k, k:])[:, 0]
    parts, at = [], 0
    for c in cones:
        n, _, size = c.rows.shape
        parts.append(d[at : at + n * size].reshape(n, size))
        at += n * size
    return parts, jnp.sqrt(jnp.sum(Q[:k, k] ** 2))


def _symmetric_basis(s: int) -> np.ndarray:
    """An orthonormal basis of the symmetric s×s _matrices, (s (s + 1) / 2, s, s)."""
    i, j = np.tril_indices(s)
    E = np.zeros((len(i), s, s))
    E[np.arange(len(i)), i, j] = E[np.arange(len(i)), j, i] = np.where(i == j, 1, 0.5**0.5)
    return E


def _matrices(block: Block, x: Array) -> Float[Array, "n s s"]:
    """The _matrices P of a block's values; of size 0 for real numbers, which have no border."""
    if isinstance(block.chart, LogCholesky):
        return inertia.pseudo(x)
    size = int(isinstance(block.chart, Positive))
    return x[:, None, None] * jnp.ones((1, size, size), x.dtype)


def _cone_of(block: Block, x: Array, nominal: Array, Z: Array, w: Array, weight: float) -> _Cone:
    """The problem of a step from the values x, in the HKM direction.

    The slope of prior and barrier is ``C = weight Lᵀ P₀⁻¹ L − w 1``. Up to a constant, the step D
    minimizes ``½ |D N|² + ⟨C, D⟩ = ½ |D N + C N⁻ᵀ|²``.
    """
    P, n = _matrices(block, x), len(x)
    s = P.shape[-1]
    if isinstance(block.chart, Real):
        one, hold = jnp.ones((n, 1), x.dtype), prior_weight(0.0, x.dtype) ** 0.5
        right = hold * (x - nominal).reshape(n, 1) / block.chart.scale
        return _Cone(block.chart.scale * one[..., None], hold * one[..., None], right, _NO_CONE)
    L, L0, N = cholesky(P), cholesky(_matrices(block, nominal)), cholesky(Z)
    X = solve_lower(L0, L)
    C = weight * linear.matmul(so3.transpose(X), X) - w * _ones(P)
    E = _symmetric_basis(s)
    basis = jnp.asarray(E, x.dtype)
    rows = linear.einsum("kij,njl->nilk", basis, N).reshape(n, s * s, -1)
    right = so3.transpose(solve_lower(N, C)).reshape(n, s * s)
    moves = linear.einsum("nij,kjl,nml->nkim", L, basis, L)
    T = inertia.from_pseudo(moves) if s == 4 else moves[..., 0]
    return _Cone(so3.transpose(T), rows, right, E)


def _ones(like: Float[Array, "n s s"]) -> Float[Array, "n s s"]:
    """Unit _matrices of the same number and size."""
    return jnp.broadcast_to(jnp.eye(like.shape[-1], dtype=like.dtype), like.shape)


def _cone_steps(cone: _Cone, d: Array, Z: Array, w: Array) -> tuple[Array, Array]:
    """The scaled steps of P and of its dual: D, and ``w 1 − Z − (D Z + Z D) / 2``."""
    D = linear.einsum("nk,kij->nij", d, jnp.asarray(cone.E, d.dtype))
    DZ = linear.matmul(D, Z)
    return D, w * _ones(Z) - Z - 0.5 * (DZ + so3.transpose(DZ))


def _step_length(steps: list[tuple[Array, Array]], Z: list[Array]) -> Float[Array, ""]:
    """The greatest of a few step lengths up to 1 that keeps P and its dual well inside the cone."""
    lengths = jnp.asarray(_LENGTHS, Z[0].dtype)

    def inside(a: Array) -> Bool[Array, ""]:
        good = [jnp.all(definite(y + a * dy)) for z, (D, dZ) in zip(Z, steps, strict=True)
                if z.size for y, dy in ((_ones(z), D), (z, dZ))]  # fmt: skip
        return jnp.all(jnp.stack([jnp.ones((), bool), *good]))

    good = jax.vmap(inside)(lengths / _NEAR)
    return jnp.where(jnp.any(good), lengths[jnp.argmax(good)], 0)


def _rescaled_dual(Z: Float[Array, "n s s"], D: Float[Array, "n s s"]) -> Float[Array, "n s s"]:
    """The dual scaled by the factor of the next P, which is ``L K`` with ``1 + D = K Kᵀ``."""
    if not Z.size:
        return Z
    K = cholesky(_ones(Z) + D)
    return linear.matmul(linear.matmul(so3.transpose(K), Z), K)
