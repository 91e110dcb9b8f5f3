"""Least squares along a chain of states, with a vector of parameters that all states share."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ...spatial import linear
from ...spatial.linear import qr_factor, solve_upper


class Chain(NamedTuple):
    """Rows of ``½ |M (unknowns, 1)|²``. The unknowns are states x_b (s numbers) and z (k)."""

    measurements: Float[Array, "B m s+k+1"]
    """Coefficients of x_b, z and 1."""
    continuity: Float[Array, "B s 2*s+k+1"]
    """Coefficients of x_b, x_{b+1}, z and 1; zero where no next state follows, as for the last."""
    prior: Float[Array, "p k+1"]
    """Coefficients of z and 1."""

    def weighted(self, weight: float | Array) -> "Chain":
        """The same problem with the continuity rows multiplied by a weight."""
        return self._replace(continuity=weight * self.continuity)


class ChainStep(NamedTuple):
    """The minimum, and the problem that is left for z once the states are eliminated."""

    x: Float[Array, "B s"]
    z: Float[Array, " k"]
    R: Float[Array, "k k"]
    """The information on z is ``Rᵀ R``."""
    length: Float[Array, ""]
    """Distance of the minimum from zero in the metric of the problem, in standard deviations."""


def chain_cost(chain: Chain) -> Float[Array, ""]:
    """The cost where all unknowns are zero."""
    return 0.5 * jnp.sum(jnp.stack([jnp.sum(rows[..., -1] ** 2) for rows in chain]))


def compressed(chain: Chain) -> Chain:
    """The same problem with no more measurement rows in a window than there are columns."""
    return chain._replace(measurements=jax.vmap(qr_factor)(chain.measurements))


def damped(chain: Chain, damping: Float[Array, ""]) -> Chain:
    """The problem with damping rows for each unknown, in proportion to its column's length."""
    s, k = chain.continuity.shape[1], chain.prior.shape[1] - 1
    squares = [jnp.sum(rows**2, axis=1) for rows in chain[:2]]
    incoming = jnp.roll(squares[1][:, s : 2 * s], 1, axis=0)  # from the previous state's rows
    x = squares[0][:, :s] + squares[1][:, :s] + incoming
    of_z = jnp.concatenate([rows[..., -k - 1 : -1].reshape(-1, k) for rows in chain])
    # Adding 1 limits the step of unknowns about which the data say almost nothing.
    z = 1 + jnp.sum(of_z**2, axis=0)
    root = jnp.sqrt(damping)

    def rows(square: Array, columns: int) -> Array:
        return jnp.pad(root * jnp.diag(jnp.sqrt(square)), ((0, 0), (0, columns - square.size)))

    of_x = jax.vmap(lambda square: rows(square, s + k + 1))(x)
    return Chain(
        jnp.concatenate([chain.measurements, of_x], axis=1),
        chain.continuity,
        jnp.concatenate([chain.prior, rows(z, k + 1)]),
    )


def solve_chain(chain: Chain) -> ChainStep:
    """Minimize by eliminating one state after the other. Cost: linear in the number of states.

    Source: the square-root information smoother, Bierman, "Factorization methods for discrete
    sequential estimation", 1977, chapter 10, with z as the vector that all states share. Each state
    is eliminated by a QR factorization of its rows, so that condition numbers are not squared.
    """
    s, k = chain.continuity.shape[1], chain.prior.shape[1] - 1

    def eliminate(information: Array, rows: tuple[Array, Array]):
        measurements, continuity = rows
        above = jnp.concatenate([information, measurements])
        next_state = jnp.zeros((len(above), s), above.dtype)  # these rows do not contain it
        above = jnp.concatenate([above[:, :s], next_state, above[:, s:]], axis=1)
        R = qr_factor(jnp.concatenate([above, continuity]))
        return R[s:, s:], R[:s]

    nothing = jnp.zeros((s + k + 1, s + k + 1), chain.measurements.dtype)
    information, rows = jax.lax.scan(eliminate, nothing, (chain.measurements, chain.continuity))
    R = qr_factor(jnp.concatenate([information[:, s:], chain.prior]))
    z = -solve_upper(R[:k, :k], R[:k, k:])[:, 0]

    def substitute(after: Array, R: Array):
        known = jnp.concatenate([after, z, jnp.ones(1, z.dtype)])
        right = linear.matmul(R[:, s:], known[:, None])
        x = -solve_upper(R[:, :s], right)[:, 0]
        return x, x

    _, x = jax.lax.scan(substitute, jnp.zeros((s,), z.dtype), rows, reverse=True)
    left = jnp.sum(rows[..., -1] ** 2) + jnp.sum(R[:k, k] ** 2)
    return ChainStep(x, z, R[:k, :k], jnp.sqrt(left))
