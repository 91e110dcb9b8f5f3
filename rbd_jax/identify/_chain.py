"""Least squares along a chain of states, each tied to the next one and all to a common vector."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float


class Chain(NamedTuple):
    """Rows of ``½ |M (unknowns, 1)|²``; the unknowns are states x_b (s numbers) and z (k)."""

    own: Float[Array, "B m s+k+1"]
    """By x_b and z."""
    links: Float[Array, "B s 2*s+k+1"]
    """By x_b, x_{b+1} and z; zero where a state is tied to no next one, as the last."""
    common: Float[Array, "p k+1"]
    """By z."""

    def tied(self, weight: float | Array) -> "Chain":
        """With links of another weight."""
        return self._replace(links=weight * self.links)


class ChainStep(NamedTuple):
    """The minimum, and the problem that is left for z where states follow it."""

    x: Float[Array, "B s"]
    z: Float[Array, " k"]
    R: Float[Array, "k k"]
    """The information on z is ``Rᵀ R``."""
    length: Float[Array, ""]
    """How far the minimum is from zero in the metric of the problem, in standard deviations."""


def chain_cost(chain: Chain) -> Float[Array, ""]:
    """Where all unknowns are zero."""
    return 0.5 * jnp.sum(jnp.stack([jnp.sum(rows[..., -1] ** 2) for rows in chain]))


def compressed(chain: Chain) -> Chain:
    """The same problem with as few own rows as there are columns."""
    return chain._replace(own=jnp.linalg.qr(chain.own, mode="r"))


def damped(chain: Chain, damping: Float[Array, ""]) -> Chain:
    """With rows that hold each unknown back, in proportion to the length of its column."""
    s, k = chain.links.shape[1], chain.common.shape[1] - 1
    squares = [jnp.sum(rows**2, axis=1) for rows in chain[:2]]
    into = jnp.roll(squares[1][:, s : 2 * s], 1, axis=0)  # of the link before
    x = squares[0][:, :s] + squares[1][:, :s] + into
    of_z = jnp.concatenate([rows[..., -k - 1 : -1].reshape(-1, k) for rows in chain])
    # what hardly anything is known of moves by the order of one at most
    z = 1 + jnp.sum(of_z**2, axis=0)
    root = jnp.sqrt(damping)

    def rows(square: Array, columns: int) -> Array:
        return jnp.pad(root * jnp.diag(jnp.sqrt(square)), ((0, 0), (0, columns - square.size)))

    own = jax.vmap(lambda square: rows(square, s + k + 1))(x)
    return Chain(
        jnp.concatenate([chain.own, own], axis=1),
        chain.links,
        jnp.concatenate([chain.common, rows(z, k + 1)]),
    )


def solve_chain(chain: Chain) -> ChainStep:
    """Minimise, one state after the other: linear in their number, conditions are not squared.

    Source: the square-root information smoother, Bierman, "Factorization methods for discrete
    sequential estimation", 1977, chapter 10, with z as what all states share; each state is
    eliminated by a QR factorisation of the rows that know it.
    """
    s, k = chain.links.shape[1], chain.common.shape[1] - 1

    def eliminate(known: Array, rows: tuple[Array, Array]):
        own, link = rows
        above = jnp.concatenate([known, own])
        unseen = jnp.zeros((len(above), s), above.dtype)  # the next state
        above = jnp.concatenate([above[:, :s], unseen, above[:, s:]], axis=1)
        R = jnp.linalg.qr(jnp.concatenate([above, link]), mode="r")
        return R[s:, s:], R[:s]

    nothing = jnp.zeros((s + k + 1, s + k + 1), chain.own.dtype)
    known, rows = jax.lax.scan(eliminate, nothing, (chain.own, chain.links))
    R = jnp.linalg.qr(jnp.concatenate([known[:, s:], chain.common]), mode="r")
    solve = jax.scipy.linalg.solve_triangular
    z = -solve(R[:k, :k], R[:k, k])

    def follow(after: Array, R: Array):
        known = jnp.concatenate([after, z, jnp.ones(1, z.dtype)])
        right = jnp.matmul(R[:, s:], known, precision="highest")
        x = -solve(R[:, :s], right)
        return x, x

    _, x = jax.lax.scan(follow, jnp.zeros((s,), z.dtype), rows, reverse=True)
    left = jnp.sum(rows[..., -1] ** 2) + jnp.sum(R[:k, k] ** 2)
    return ChainStep(x, z, R[:k, :k], jnp.sqrt(left))
