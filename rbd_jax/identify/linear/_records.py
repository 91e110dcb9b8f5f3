"""Parameters from a record as a robot gives it: positions and torques, with honest deviations.

Letters: x are the selected parameters and ``π = B x`` the combinations of them that torques depend
on. The positions of even samples give the motion A, those of odd samples the motion B. M is the
mean of the regressors of A and B, and D is half their difference. ``τ₀`` are the torques of all
that is not selected. All is divided by the noise of a joint.
"""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from ...model import Model, difference, integrate, random_configuration
from ...spatial import linear
from ...spatial.linear import qr_factor, solve_upper
from ..data._dataset import Dataset, required
from ..parameters._parameters import Parameters
from ._base import (
    BaseParameters,
    default_tolerance,
    from_nullspace,
    numerical_base_parameters,
)
from ._regressors import (
    TERMS,
    WIDTH,
    linear_parameters,
    parameter_names,
    regression,
    torque_regressor,
)
from ._structure import base_parameters

_ROUNDS = 4  # Rounds that estimate the noise of the joints and the delay.
_NODES = 2  # Samples at each side that interpolation of fourth order needs.
_LONGEST = 8  # Delays of more samples are not looked for.
_SPREADS = 5.0  # A joint counts as slow below so many standard deviations of its velocity.


class RecordEstimate(NamedTuple):
    """Estimated base parameters of a record, with standard deviations that errors really have."""

    value: Float[Array, " r"]
    """The base parameters, in the order of :class:`BaseParameters`."""
    covariance: Float[Array, "r r"]
    delay: Float[Array, ""]
    """By how much the torques are late (s); negative if the positions are late."""
    delay_deviation: Float[Array, ""]
    """Standard deviation of the delay (s)."""
    sigma: Float[Array, " nv"]
    """Standard deviation of the errors of the torques of each joint (N m, N)."""
    residuals: Float[Array, "B T nv"]
    """Measured minus predicted torques (N m, N); zero where ``used`` is False."""
    used: Bool[Array, "B T nv"]
    """The samples that the estimate uses: those at which the joint is not slow."""
    noise: Float[Array, ""]
    """Greatest share of noise in the regressors' squares. Above 0.1 the filter is too short."""

    @property
    def deviation(self) -> Float[Array, " r"]:
        """Standard deviations of the base parameters. A 95 % interval is ± 1.96 of them."""
        return jnp.sqrt(jnp.diagonal(self.covariance))


def linear_terms(parameters: Parameters) -> tuple[str, ...]:
    """The leaves with selected rows; ValueError if one of them does not enter torques linearly."""
    leaves = {b.leaf for b in parameters.blocks}
    if not leaves or leaves - set(TERMS):
        raise ValueError(
            f"a record gives parameters of {TERMS}, which enter torques linearly; got "
            f"{sorted(leaves)}: use fit_torques or fit_trajectories for the others"
        )
    return tuple(t for t in TERMS if t in leaves)


def _places(parameters: Parameters, terms: tuple[str, ...]) -> np.ndarray:
    """The entries of θ that are selected, in the order of x."""
    m, at, sizes = parameters.nominal, 0, {}
    for t in terms:
        shape = getattr(m, t).shape
        size = int(np.prod(shape))
        sizes[t] = np.arange(at, at := at + size).reshape(shape)
    return np.concatenate([sizes[b.leaf][np.array(b.rows)].reshape(-1) for b in parameters.blocks])


def selected_base(parameters: Parameters, tol: float | None = None) -> BaseParameters:
    """The combinations of the selected parameters that torques depend on.

    This runs on the host, once for a robot. The robot's structure gives them, see
    :func:`base_parameters`; for a robot with driven joints, regressors of random states do.

    Args:
        parameters: what is unknown, made of inertias, armature, damping and friction.
        tol: relative tolerance of the ranks. None stands for 1e-9, or 1e-5 for a robot in float32.

    Raises:
        ValueError: for other parameters.
    """
    terms = linear_terms(parameters)
    places, model = _places(parameters, terms), parameters.nominal
    if model.space is not model.topology:
        names = tuple(parameter_names(model, terms)[k] for k in places)
        return numerical_base_parameters(_random_regressors(model, terms)[..., places], names, tol)
    base = base_parameters(model, terms)
    _, s, Vt = np.linalg.svd(base.B[:, places], full_matrices=True)
    rank = int(np.sum(s > (tol or default_tolerance(model.dtype)) * s.max(initial=0)))
    return from_nullspace(tuple(base.names[k] for k in places), Vt[rank:].T)


def _random_regressors(model: Model, terms: tuple[str, ...], count: int = 64) -> np.ndarray:
    def one(key):
        keys = jax.random.split(key, 3)
        v, a = (jax.random.normal(k, (model.nv,), model.dtype) for k in keys[1:])
        return torque_regressor(model, random_configuration(model, keys[0]), v, a, terms)

    return np.asarray(jax.jit(jax.vmap(one))(jax.random.split(jax.random.key(0), count)))


def estimate_from_record(
    parameters: Parameters,
    record: Dataset,
    base: BaseParameters | None = None,
    *,
    dt: float | None = None,
    window: int = 21,
    degree: int = 4,
    delay: bool = True,
    width: float = WIDTH,
    correlation: int | None = None,
) -> RecordEstimate:
    """Estimate base parameters from measured positions and torques alone.

    Torques are not filtered. A filter would turn the jump of dry friction at a reversal into a
    ramp, which the regressor does not have, and friction would come out too small. What remains is
    treated so:

    - Positions are smoothed and differentiated by polynomials, see
      :func:`filter_and_differentiate`. Noise that remains in velocities and accelerations would
      make parameters too small as well. Even and odd samples therefore give two motions with
      independent noise. Each is the instrument of the other, so that squares of the noise cancel:
      ``(Mᵀ M − Dᵀ D) π = Mᵀ (τ − τ₀) + Dᵀ D₀``, where D₀ is half the difference of ``τ₀``.
    - Near reversals, smoothed motions and laws of friction are wrong. If friction is selected,
      samples within half a window of a slow sample of their joint are not used. Slow is slower
      than five standard deviations of the velocity, and than three times ``width``.
    - A delay between torques and positions is estimated with the parameters.
    - The errors that remain are correlated, because the filter spreads the noise of a position over
      a window. The covariance follows from the spectrum of the residuals, by their correlations at
      up to ``correlation`` samples, with Bartlett's weights. Residuals are smaller than errors at
      the frequencies of the motion; the expected difference is added.

    No interval contains errors of the model: gears that bend, friction that depends on load or
    temperature, wrong lengths or axes, a wrong torque constant, filters inside the motor drive.

    Source: Durbin, "Errors in variables", 1954, for instruments; Janot, Vandanjon, Gautier, "A
    generic instrumental variable approach for industrial robot identification", 2014, for their use
    with robots, where instruments come from a simulation; Newey, West (1987) for the weights.

    Args:
        parameters: what is unknown: inertias, armature, damping and friction of any links and
            joints, see :func:`select`. The rest of the robot is taken as in ``nominal``.
        record: q and tau, evenly sampled, one record (T,) or several (B, T); f_ext if there is one.
        base: see :func:`selected_base`, which is called if None.
        dt: time step (s); from ``record.t`` if None.
        window: odd number of samples of the polynomials. ``noise`` in the result shows whether it
            is too short. If it is too long, it cuts the accelerations of fast motions.
        degree: degree of the polynomials.
        delay: whether to estimate a delay of up to eight samples; else it is zero.
        width: smoothing of dry friction, see :func:`friction_torque`.
        correlation: number of samples; twice the window if None.

    Returns:
        The estimate; give it to :func:`fit_estimate` for a physical robot. It may be mapped over
        records and robots.

    Raises:
        ValueError: for missing or uneven data, or a window that does not fit.
    """
    name = "estimate_from_record"
    q, tau = required(name, record, "q", "tau")
    if len(record.shape) not in (1, 2):
        raise ValueError(f"{name}: expected a record (T,) or (B, T), got {record.shape}")
    terms, model = linear_terms(parameters), parameters.nominal
    base = selected_base(parameters) if base is None else base
    dt = even_step(name, record) if dt is None else dt
    least = 2 * degree + 3
    T = record.shape[-1]
    if window % 2 == 0 or window < least or T < window + 4 * _LONGEST:
        raise ValueError(
            f"{name}: window={window} must be odd, at least {least} for degree={degree}, and the "
            f"{T} samples at least {4 * _LONGEST} more"
        )
    bare = Dataset(None, q, tau=tau, f_ext=record.f_ext)
    data = bare if len(record.shape) == 2 else jax.tree.map(lambda x: x[None], bare)
    two = jax.vmap(lambda r: _two_motions(model, r, window, degree, dt))(data)
    A, B = jax.tree.map(lambda x: x[:, 0], two), jax.tree.map(lambda x: x[:, 1], two)
    YA, YB = (_columns(parameters, s, base, terms, width) for s in (A, B))
    M, D = 0.5 * (YA + YB), 0.5 * (YA - YB)
    used = jnp.broadcast_to(_inner(A.shape[1])[None, :, None], A.tau.shape)
    if "friction" in terms:
        used = used & ~_near_slow(0.5 * (A.v + B.v), 0.5 * (A.v - B.v), width, window // 2)
    count = jnp.sum(used.astype(tau.dtype), axis=(0, 1))
    sigma = jnp.sqrt(jnp.sum(jnp.where(used, A.tau, 0) ** 2, (0, 1)) / jnp.maximum(count, 1))
    r, late, eps = base.count, jnp.zeros((), tau.dtype), jnp.finfo(tau.dtype).eps
    sigma = jnp.where(sigma > 0, sigma, 1)
    floor = 10 * eps * sigma
    solved, x = None, None
    for k in range(_ROUNDS):
        M_d, D_d = _earlier(M, late), _earlier(D, late)
        if delay and x is not None:
            M_d, D_d = _with_rate(M_d, x[:r]), _with_rate(D_d, x[:r])
        weight = used.astype(tau.dtype) / sigma[None, None]
        solved = _solve(M_d, D_d, A.tau, weight)
        x = solved.x
        if delay and k > 0:
            late = jnp.clip(late + x[r], -_LONGEST, _LONGEST)
        freedom = jnp.maximum(count - jnp.sum(solved.Q**2, axis=(0, 1, 3)), 1)
        spread = jnp.sqrt(jnp.sum(solved.left**2, axis=(0, 1)) / freedom) * sigma
        sigma = jnp.maximum(spread, floor)
    assert solved is not None and x is not None
    meat = _meat(solved.Q, solved.left, used, correlation or 2 * window)
    C = linear.matmul(linear.matmul(solved.back, meat), solved.back.T)
    zero = jnp.zeros((), tau.dtype)
    spread = dt * jnp.sqrt(C[r, r]) if delay else zero
    left = jnp.where(used, solved.left / jnp.where(weight > 0, weight, 1), 0)
    return RecordEstimate(x[:r], C[:r, :r], dt * late, spread, sigma, left, used, solved.noise)


def even_step(name: str, record: Dataset) -> float:
    """The time step of a record (s); ValueError if its times are missing or uneven."""
    (t,) = required(name, record, "t")
    times = np.asarray(t, dtype=float)
    steps = np.diff(times, axis=-1)
    dt = float(steps.mean())
    line = times[..., :1] + dt * np.arange(times.shape[-1])
    if not dt > 0 or np.abs(times - line).max() > 0.01 * dt:
        raise ValueError(f"{name}: the times are not evenly spaced; see rbd_jax.identify.resampled")
    return dt


def _inner(T: int) -> np.ndarray:
    """The samples from which interpolation does not reach over an end."""
    k = np.arange(T)
    far = _LONGEST + _NODES
    return (k >= far) & (k < T - far)


@functools.cache
def _tables(window: int, degree: int) -> np.ndarray:
    """Weights of polynomials through even and through odd offsets, (2, 3 orders, window)."""
    m = window // 2
    offsets, out = np.arange(-m, m + 1), np.zeros((2, 3, window))
    for odd in (0, 1):
        use = offsets % 2 == odd
        inverse = np.linalg.pinv(np.vander(offsets[use] / m, degree + 1, increasing=True))
        out[odd][:, use] = inverse[:3] * np.array([[1], [1 / m], [2 / m**2]])
    return out


def _two_motions(model: Model, record: Dataset, window: int, degree: int, dt: float) -> Dataset:
    """The motions of even and of odd samples, (2, T − window + 1), at the same times."""
    m, T = window // 2, record.shape[0]
    inner = slice(m, T - m)
    index = np.arange(m, T - m)[:, None] + np.arange(-m, m + 1)
    around = jax.vmap(jax.vmap(difference, (None, None, 0)), (None, 0, 0))
    u = around(model, record.q[inner], record.q[index])
    tables, parity = _tables(window, degree), np.arange(m, T - m) % 2

    def motion(which: int) -> Dataset:
        c = jnp.asarray(tables[parity ^ which], u.dtype)
        p = linear.einsum("tow,twv->otv", c, u)
        q = jax.vmap(integrate, (None, 0, 0))(model, record.q[inner], p[0])
        f_ext = None if record.f_ext is None else record.f_ext[inner]
        assert record.tau is not None
        return Dataset(None, q, p[1] / dt, p[2] / dt**2, record.tau[inner], f_ext)

    return jax.tree.map(lambda x, y: jnp.stack([x, y]), motion(0), motion(1))


def _columns(parameters: Parameters, s: Dataset, base, terms, width) -> Float[Array, "B T nv c"]:
    """The regressor of the base parameters, and as its last column the known torques τ₀."""
    nominal, places = parameters.nominal, _places(parameters, terms)
    Y, left = regression(nominal, s, terms, width)
    known = linear_parameters(nominal, terms).at[places].set(0)
    assert s.tau is not None
    rest = s.tau.reshape(left.shape) - left + linear.einsum("nvp,p->nv", Y, known)
    Y = jnp.concatenate([Y[..., places[base.independent]], rest[..., None]], axis=-1)
    return Y.reshape(*s.tau.shape, -1)


def _near_slow(v: Array, half: Array, width: float, reach: int) -> Bool[Array, "B T nv"]:
    """Samples within ``reach`` of one at which their joint is slow or changes its direction."""
    spread = jnp.sqrt(jnp.mean(half**2, axis=(0, 1)))
    limit = jnp.maximum(_SPREADS * spread, 3 * width)
    turns = jnp.pad(v[:, 1:] * v[:, :-1] <= 0, ((0, 0), (1, 0), (0, 0)))
    slow = (jnp.abs(v) < limit[None, None]) | turns
    size = 1, 2 * reach + 1, 1
    return jax.lax.reduce_window(slow, False, jax.lax.bitwise_or, size, (1, 1, 1), "SAME")


def _earlier(x: Float[Array, "B T nv c"], late: Float[Array, ""]) -> Float[Array, "B T nv c"]:
    """x at times that are ``late`` samples earlier, by cubic interpolation."""
    whole = jnp.floor(late)
    f = late - whole
    weights = (
        -f * (f - 1) * (f - 2) / 6, (f + 1) * (f - 1) * (f - 2) / 2,
        -(f + 1) * f * (f - 2) / 2, (f + 1) * f * (f - 1) / 6,
    )  # fmt: skip
    T = x.shape[1]
    at = jnp.arange(T, dtype=jnp.int32) - whole.astype(jnp.int32)
    parts = [
        w * jnp.take(x, jnp.clip(at + k, 0, T - 1), axis=1)
        for w, k in zip(weights, (1, 0, -1, -2), strict=True)
    ]
    return sum(parts[1:], parts[0])


def _with_rate(Y: Float[Array, "B T nv c"], value: Float[Array, " r"]) -> Float[Array, "B T nv d"]:
    """Y with the column of the delay, ``−Ṗ`` for the predicted torques P, before the last one."""
    torques = linear.einsum("btvp,p->btv", Y, jnp.append(value, jnp.ones((), Y.dtype)))
    before, after = torques[:, :-2], torques[:, 2:]
    rate = jnp.pad(0.5 * (before - after), ((0, 0), (1, 1), (0, 0)))
    return jnp.concatenate([Y[..., :-1], rate[..., None], Y[..., -1:]], axis=-1)


class _Solved(NamedTuple):
    x: Float[Array, " k"]
    Q: Float[Array, "B T nv k"]
    """Orthonormal regressors, zero at samples that are not used."""
    left: Float[Array, "B T nv"]
    """Residuals, in standard deviations."""
    back: Float[Array, "k k"]
    """``back g`` is the change of x by a change g of the right side in the coordinates of Q."""
    noise: Float[Array, ""]


def _solve(M: Array, D: Array, tau: Array, weight: Array) -> _Solved:
    """Solve ``(Mᵀ M − Dᵀ D) x = Mᵀ (τ − τ₀) + Dᵀ D₀`` without squaring the condition of M."""
    k = M.shape[-1] - 1
    W, V = ((Y * weight[..., None]).reshape(-1, k + 1) for Y in (M, D))
    length = jnp.sqrt(jnp.sum(W[:, :k] ** 2, axis=0))
    length = jnp.where(length > 0, length, 1)
    Wk, Vk = W[:, :k] / length[None], V[:, :k] / length[None]
    y = (tau * weight).reshape(-1) - W[:, k]
    R = qr_factor(jnp.concatenate([Wk, y[:, None]], axis=1))
    inverse = solve_upper(R[:k, :k], jnp.eye(k, dtype=R.dtype))
    Q, K = linear.matmul(Wk, inverse), linear.matmul(Vk, inverse)
    N = linear.matmul(K.T, K)
    H = linear.inverse(jnp.eye(k, dtype=R.dtype) - N)
    z = linear.matmul(H, R[:k, k] + linear.matmul(K.T, V[:, k]))
    left = y - linear.matmul(Q, z)
    back = inverse / length[:, None]
    shape = tau.shape
    return _Solved(
        linear.matmul(back, z), Q.reshape(*shape, k), left.reshape(shape),
        linear.matmul(back, H), jnp.max(jnp.linalg.eigvalsh(N), initial=0),
    )  # fmt: skip


def _meat(Q: Array, left: Array, used: Array, lags: int) -> Float[Array, "k k"]:
    """``Qᵀ Ω Q``, where Ω is the covariance of the errors, stationary along each record.

    Correlations of residuals at each lag, weighted by ``1 − lag / lags``, are averaged over the
    pairs of samples that are used. With ``P = 1 − Q Qᵀ`` the residuals have the covariance
    ``P Ω P``. It is smaller than Ω by about ``Q (Qᵀ Ω Q) Qᵀ``, which is added in a few rounds.
    """
    T, k = Q.shape[1], Q.shape[-1]
    size = T + lags
    lag = np.minimum(np.arange(size), size - np.arange(size))
    taper = jnp.asarray(np.maximum(1 - lag / lags, 0)[:, None, None], Q.dtype)

    def spectrum(x):
        return jnp.fft.rfft(x, size, axis=1)

    def correlations(f):
        return jnp.fft.irfft(f, size, axis=0)

    e, u, Qf = spectrum(left), spectrum(used.astype(Q.dtype)), spectrum(Q)
    pairs = jnp.maximum(correlations(jnp.einsum("bfi,bfj->fij", u, jnp.conj(u))), 1)
    found = correlations(jnp.einsum("bfi,bfj->fij", e, jnp.conj(e)))
    weights = np.full(size // 2 + 1, 2.0)
    weights[0] = 1
    weights[-1] = 1 if size % 2 == 0 else 2
    weights = jnp.asarray(weights / size, Qf.dtype)[None, :, None, None]
    meat = jnp.eye(k, dtype=Q.dtype)
    for _ in range(3):
        lost = jnp.einsum("bfik,kl,bfjl->fij", Qf, meat.astype(Qf.dtype), jnp.conj(Qf))
        S = jnp.fft.rfft(taper * (found + correlations(lost)) / pairs, axis=0)
        SQ = jnp.einsum("fij,bfjk->bfik", S, Qf) * weights
        meat = jnp.real(jnp.einsum("bfik,bfil->kl", jnp.conj(Qf), SQ))
        meat = 0.5 * (meat + meat.T)
    return meat
