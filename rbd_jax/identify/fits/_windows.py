"""The problem of multiple shooting: windows of a recorded motion, simulated and linearized."""

from collections.abc import Callable
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from ...model import Model, difference, integrate
from ...simulate import rollout
from ..data._dataset import Dataset, required
from ..linear._regressors import WIDTH, friction_torque
from ..parameters._parameters import Parameters, prior_residuals
from ._chain import Chain, compressed
from ._losses import loss_root


def simulated(
    model: Model,
    q0: Float[Array, " nq"],
    v0: Float[Array, " nv"],
    tau: Float[Array, "L nv"],
    dt: float | Float[Array, ""],
    *,
    width: float = WIDTH,
    integrator: str | Callable = "rk4",
    substeps: int = 1,
) -> tuple[Float[Array, "L nq"], Float[Array, "L nv"]]:
    """Simulate the motion from a state, with as many states as there are torques.

    Each torque and the dry friction at the start of a step are held over the step. Derivatives are
    those of :func:`rbd_jax.rollout`.
    """

    def policy(t, q, v):
        k = jnp.clip(jnp.round(t / dt).astype(jnp.int32), 0, len(tau) - 1)
        return tau[k] - friction_torque(model, v, width)

    steps = len(tau) - 1
    path = rollout(model, q0, v0, policy, dt, steps=steps, integrator=integrator, substeps=substeps)
    return path.q, path.v


class Unknowns(NamedTuple):
    """The unknowns of the fit: the parameters, and the first state of each window."""

    z: Float[Array, " k"]
    q: Float[Array, "B nq"]
    v: Float[Array, "B nv"]


class Windows(eqx.Module):
    """A problem of multiple shooting: the parameters to fit, and the windows of data.

    Errors are in standard deviations. A gap is the difference between the end of a window and the
    start of the next one, (2 nv,), in units of ``q_sigma`` and ``v_unit``.
    """

    parameters: Parameters
    data: Dataset
    follows: Bool[Array, " B"]
    """Whether the last sample of a window is the first of the next."""
    dt: Float[Array, ""]
    q_sigma: float | Array
    v_sigma: float | Array | None
    v_unit: float | Array
    weight: float
    """Weight of the prior."""
    loss: str = eqx.field(static=True)
    options: tuple = eqx.field(static=True)
    """Options of :func:`simulated`, as pairs."""

    def state_size(self, v: Array) -> int:
        """The number of tangent coordinates of a state."""
        return 2 * v.size

    def moved(self, q: Array, v: Array, d: Float[Array, " s"]) -> tuple[Array, Array]:
        """A state after a step d, which is in units of ``q_sigma`` and ``v_unit``."""
        nv = v.size
        q = integrate(self.parameters.nominal, q, self.q_sigma * d[:nv])
        return q, v + self.v_unit * d[nv:]

    def simulated(self, z: Array, q0: Array, v0: Array, window: Dataset) -> tuple[Array, Array]:
        """The states of a window, (L, nq) and (L, nv), from its first one."""
        (tau,) = required("fit_trajectories", window, "tau")
        return simulated(self.parameters.model(z), q0, v0, tau, self.dt, **dict(self.options))

    def cost(self, x: Unknowns, weight: Array) -> Float[Array, ""]:
        """Half the sum of squares of the errors, the prior, and the gaps times ``weight``."""
        r, q, v = jax.vmap(self._errors, (None, 0, 0, 0, 0))(x.z, *x[1:], self.data, self.follows)
        q1, v1 = _next(x)
        gaps = weight * jnp.where(self.follows[:, None], jax.vmap(self._gap)(q1, v1, q, v), 0)
        value = 0.5 * sum(jnp.sum(part**2) for part in (r, gaps, self.prior(x.z)))
        return jnp.where(jnp.isfinite(value), value, jnp.inf)

    def linear(self, x: Unknowns) -> Chain:
        """Errors and gaps, linear in the steps of the states (in their units) and of z."""

        def one(q, v, q1, v1, window, follows):
            def rows(d: Array, z: Array):
                r, q_end, v_end = self._errors(z, *self.moved(q, v, d), window, follows)
                values = r, self._gap(q1, v1, q_end, v_end)
                return values, (values, q_end, v_end)

            still = jnp.zeros((self.state_size(v),), v.dtype)
            J, ((r, gap), *end) = jax.jacfwd(rows, (0, 1), has_aux=True)(still, x.z)
            by_next = jax.jacfwd(lambda d: self._gap(*self.moved(q1, v1, d), *end))(still)
            continuity = jnp.concatenate([J[1][0], by_next, J[1][1], gap[:, None]], axis=1)
            measurements = jnp.concatenate([*J[0], r[:, None]], axis=1)
            return measurements, jnp.where(follows, continuity, 0)

        rows = jax.vmap(one)(x.q, x.v, *_next(x), self.data, self.follows)
        prior = jax.jacfwd(self.prior)(x.z), self.prior(x.z)[:, None]
        return compressed(Chain(*rows, jnp.concatenate(prior, axis=1)))

    def _errors(self, z: Array, q0: Array, v0: Array, window: Dataset, follows: Array):
        """Errors of one window, and its last state; a shared sample counts in the second window."""
        nominal = self.parameters.nominal
        q, v = self.simulated(z, q0, v0, window)
        miss = jax.vmap(lambda a, b: difference(nominal, a, b))(window.q, q)
        parts = [loss_root(self.loss, miss / self.q_sigma)]
        if self.v_sigma is not None:
            (measured,) = required("fit_trajectories", window, "v")
            parts.append(loss_root(self.loss, (v - measured) / self.v_sigma))
        r = jnp.concatenate(parts, axis=1)
        return jnp.where(follows, r.at[-1].set(0), r).reshape(-1), q[-1], v[-1]

    def _gap(self, q1: Array, v1: Array, q: Array, v: Array) -> Float[Array, " s"]:
        distance = difference(self.parameters.nominal, q1, q)
        return jnp.concatenate([distance / self.q_sigma, (v - v1) / self.v_unit])

    def prior(self, z: Array) -> Array:
        """Residuals of the prior."""
        return prior_residuals(self.parameters, z, self.parameters.model(z), self.weight)


def _next(x: Unknowns) -> tuple[Array, Array]:
    """For each window the first state of the next window."""
    return jnp.roll(x.q, -1, axis=0), jnp.roll(x.v, -1, axis=0)
