"""Fits that are linear in what is learnt, solved as the convex problems that they are.

In the parameters themselves the squares are a quadratic and the entropic prior is convex, so the
best physical robot is found from any start; in the coordinates of charts, what no torque shows
would be curved valleys, which a solver follows in small steps.

Letters: P the pseudo-inertia of a body, or a positive number as a 1×1 matrix, ``P = L Lᵀ``; in its
own units, Z is the dual, which is ``w 1`` on the path, ``Z = N Nᵀ``, and D a step, ``dP = L D Lᵀ``,
with d its components in a basis E of the symmetric matrices.
"""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from ..model import Model
from ..spatial import inertia, so3
from ._charts import LogCholesky, Positive, Real
from ._parameters import Block, Parameters
from ._small import cholesky, definite, solve_lower

_FALL = 0.1  # of the barrier's weight, from one step to the next
_NEAR = 0.9  # of the way to the border, at most
_LENGTHS = 0.8 ** np.arange(30)  # of steps, to choose from


def is_convex(learn: Parameters) -> bool:
    """Whether all charts are those of cones that are known here."""
    return all(isinstance(b.chart, (LogCholesky, Positive, Real)) for b in learn.blocks)


def _values(learn: Parameters, model: Model) -> list[Array]:
    return [getattr(model, b.leaf)[np.array(b.rows, np.int32)] for b in learn.blocks]


def learnt(learn: Parameters, model: Model) -> Float[Array, " p"]:
    """The numbers behind the charts, block by block: ten a body, one a degree of freedom."""
    parts = [x.reshape(-1) for x in _values(learn, model)]
    return jnp.concatenate([jnp.zeros((0,), model.dtype), *parts])


def linear_residuals(
    learn: Parameters, R: Float[Array, "m c"], x: Float[Array, " p"]
) -> Float[Array, " m"]:
    """``R (x − x₀, −1)``, x₀ the nominal values."""
    change = jnp.append(x - learnt(learn, learn.nominal), -jnp.ones((), R.dtype))
    return jnp.matmul(R, change, precision="highest")


def convex_fit(
    learn: Parameters,
    z0: Float[Array, " k"],
    R: Float[Array, "m c"],
    weight: float,
    max_steps: int,
    tol: float,
) -> tuple[Float[Array, " k"], Int[Array, ""]]:
    """Minimise ``½ |R (x − x₀, −1)|² + weight · entropic distance`` over robots, from any start.

    Source: the problem: Lee, Wensing, Park (2020). The method: primal-dual steps towards a path on
    which the weight of the barrier falls, in the direction of Helmberg, Rendl, Vanderbei,
    Wolkowicz, "An interior-point method for semidefinite programming", 1996 (also HKM). Each is a
    linear least-squares problem, solved by QR without squaring its condition.

    Args:
        learn: what to learn, for which :func:`is_convex` holds; x₀ are its nominal values.
        z0: coordinates to start from.
        R: residuals by what is learnt, see :func:`learnt`, and those of the nominal robot.
        weight: of the prior, positive.
        max_steps: limit of steps.
        tol: length of the last step, in standard deviations.

    Returns:
        The coordinates of the minimum and the number of steps.
    """
    start = learn.model(z0)
    nominal = _values(learn, learn.nominal)

    def robot(x: list[Array]) -> Model:
        model = start
        for b, new in zip(learn.blocks, x, strict=True):
            put = getattr(model, b.leaf).at[np.array(b.rows, np.int32)].set(new)
            model = eqx.tree_at(lambda m, b=b: getattr(m, b.leaf), model, put)
        return model

    def step(state):
        x, Z, w, k, _ = state
        cones = [_cone(*y, w, weight) for y in zip(learn.blocks, x, nominal, Z, strict=True)]
        r = linear_residuals(learn, R, jnp.concatenate([y.reshape(-1) for y in x]))
        d, length = _newton_step(_local(R, cones), r, cones)
        steps = [_steps(c, y, z, w) for c, y, z in zip(cones, d, Z, strict=True)]
        a = _step_length(steps, Z)
        x = [y + a * jnp.einsum("npk,nk->np", c.T, e, precision="highest").reshape(y.shape)
             for y, c, e in zip(x, cones, d, strict=True)]  # fmt: skip
        Z = [_carried(z + a * dZ, a * D) for z, (D, dZ) in zip(Z, steps, strict=True)]
        done = (w <= weight) & (length < tol)
        traces = sum(jnp.trace(z, axis1=-2, axis2=-1).sum() for z in Z)
        mean = traces / max(sum(z.shape[0] * z.shape[1] for z in Z), 1)
        return x, Z, jnp.maximum(_FALL * mean, weight), k + 1, done

    def going(state):
        return (state[3] < max_steps) & ~state[4]

    r = linear_residuals(learn, R, learnt(learn, start))
    w = jnp.maximum(jnp.sum(r * r), weight)
    x = _values(learn, start)
    Z = [w * _ones(_matrices(b, y)) for b, y in zip(learn.blocks, x, strict=True)]
    state = x, Z, w, jnp.zeros((), jnp.int32), jnp.zeros((), bool)
    x, _, _, steps, _ = jax.lax.while_loop(going, step, state)
    return learn.coordinates(robot(x)), steps


class _Cone(NamedTuple):
    """A block's values in their own units."""

    T: Float[Array, "n p k"]
    """Change of the values by d."""
    rows: Float[Array, "n l k"]
    """Least squares ``½ |rows d + right|²`` of prior and barrier."""
    right: Float[Array, "n l"]
    E: np.ndarray
    """Basis of D, (k, s, s)."""


def _symmetric_basis(s: int) -> np.ndarray:
    """Symmetric s×s matrices, orthonormal, (s (s + 1) / 2, s, s)."""
    i, j = np.tril_indices(s)
    E = np.zeros((len(i), s, s))
    E[np.arange(len(i)), i, j] = E[np.arange(len(i)), j, i] = np.where(i == j, 1, 0.5**0.5)
    return E


def _matrices(block: Block, x: Array) -> Float[Array, "n s s"]:
    """P of a block's values; empty for real numbers, which have no border."""
    if isinstance(block.chart, LogCholesky):
        return inertia.pseudo(x)
    size = int(isinstance(block.chart, Positive))
    return x[:, None, None] * jnp.ones((1, size, size), x.dtype)


def _cone(block: Block, x: Array, nominal: Array, Z: Array, w: Array, weight: float) -> _Cone:
    """Around the values x, in the HKM direction.

    With ``C = weight Lᵀ P₀⁻¹ L − w 1``, the slope of prior and barrier, the step of D minimises
    ``½ |D N|² + ⟨C, D⟩ = ½ |D N + C N⁻ᵀ|²`` but for a constant.
    """
    P, n = _matrices(block, x), len(x)
    s = P.shape[-1]
    if isinstance(block.chart, Real):  # a little damping, for numbers that no data show
        T = block.chart.scale * jnp.ones((n, 1, 1), x.dtype)
        rows = weight**0.5 * jnp.ones((n, 1, 1), x.dtype)
        return _Cone(T, rows, jnp.zeros((n, 1), x.dtype), np.zeros((1, 0, 0)))
    L, L0, N = cholesky(P), cholesky(_matrices(block, nominal)), cholesky(Z)
    X = solve_lower(L0, L)
    C = weight * _product(so3.transpose(X), X) - w * _ones(P)
    E = _symmetric_basis(s)
    basis = jnp.asarray(E, x.dtype)
    rows = jnp.einsum("kij,njl->nilk", basis, N, precision="highest").reshape(n, s * s, -1)
    right = so3.transpose(solve_lower(N, C)).reshape(n, s * s)
    moves = jnp.einsum("nij,kjl,nml->nkim", L, basis, L, precision="highest")
    T = inertia.from_pseudo(moves) if s == 4 else moves[..., 0]
    return _Cone(so3.transpose(T), rows, right, E)


def _product(A: Float[Array, "n s s"], B: Float[Array, "n s s"]) -> Float[Array, "n s s"]:
    return jnp.matmul(A, B, precision="highest")


def _ones(like: Float[Array, "n s s"]) -> Float[Array, "n s s"]:
    return jnp.broadcast_to(jnp.eye(like.shape[-1], dtype=like.dtype), like.shape)


def _local(R: Float[Array, "m c"], cones: list[_Cone]) -> Float[Array, "m k"]:
    """The equations by d."""
    parts, at = [], 0
    for c in cones:
        n, p, _ = c.T.shape
        columns = R[:, at : at + n * p].reshape(-1, n, p)
        part = jnp.einsum("mnp,npk->mnk", columns, c.T, precision="highest")
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
    Q = jnp.linalg.qr(jnp.concatenate(both, axis=1), mode="r")
    d = -jax.scipy.linalg.solve_triangular(Q[:k, :k], Q[:k, k])
    parts, at = [], 0
    for c in cones:
        n, _, size = c.rows.shape
        parts.append(d[at : at + n * size].reshape(n, size))
        at += n * size
    return parts, jnp.sqrt(jnp.sum(Q[:k, k] ** 2))


def _steps(cone: _Cone, d: Array, Z: Array, w: Array) -> tuple[Array, Array]:
    """The steps of P and of its dual, in the units of P: D, and ``w 1 − Z − (D Z + Z D) / 2``."""
    D = jnp.einsum("nk,kij->nij", d, jnp.asarray(cone.E, d.dtype), precision="highest")
    DZ = _product(D, Z)
    return D, w * _ones(Z) - Z - 0.5 * (DZ + so3.transpose(DZ))


def _step_length(steps: list[tuple[Array, Array]], Z: list[Array]) -> Float[Array, ""]:
    """The longest of a few, at most 1, that keeps P and its dual well within the cone."""
    lengths = jnp.asarray(_LENGTHS, Z[0].dtype)

    def inside(a: Array) -> Bool[Array, ""]:
        good = [jnp.all(definite(y + a * dy)) for z, (D, dZ) in zip(Z, steps, strict=True)
                if z.size for y, dy in ((_ones(z), D), (z, dZ))]  # fmt: skip
        return jnp.all(jnp.stack([jnp.ones((), bool), *good]))

    good = jax.vmap(inside)(lengths / _NEAR)
    return jnp.where(jnp.any(good), lengths[jnp.argmax(good)], 0)


def _carried(Z: Float[Array, "n s s"], D: Float[Array, "n s s"]) -> Float[Array, "n s s"]:
    """The dual in the units of the next P: with ``1 + D = K Kᵀ`` that has the factor ``L K``."""
    if not Z.size:
        return Z
    K = cholesky(_ones(Z) + D)
    return _product(_product(so3.transpose(K), Z), K)
