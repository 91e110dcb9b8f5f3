"""Smoothing and differentiation of recorded motions on the manifold."""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ...model import Model, difference, integrate
from ...spatial import linear
from .._extras import extra
from ._dataset import Dataset

_UNEVEN = 1e-3  # Samples may deviate from an even grid by this part of a time step.


def filter_and_differentiate(
    model: Model,
    t: Float[Array, " T"],
    q: Float[Array, "T nq"],
    tau: Float[Array, "T nv"] | None = None,
    *,
    f_ext: Float[Array, "T nb 6"] | None = None,
    window: int = 21,
    degree: int = 4,
) -> Dataset:
    """Smooth recorded configurations and differentiate them twice, without a shift in time.

    A polynomial is fitted around each sample. It is fitted to ``u(s) = q(t) ⊖ q(t + s)`` in the
    tangent space of the sample, so that rotations are treated exactly: u̇(0) = v and ü(0) = v̇,
    because dexp of 0 is the identity and ``[v, v] = 0``. Torques and wrenches pass the same filter.
    Derivatives by q are those of autodiff.

    Source: Savitzky, Golay (1964), with coefficients from ``scipy.signal.savgol_coeffs``.

    Args:
        model: the robot.
        t: times, evenly spaced (s).
        q: configurations.
        tau: torques, if recorded (N m, N).
        f_ext: external wrenches (n, f) on each body, in its frame, if recorded (N m, N).
        window: number of samples that a polynomial is fitted to. It must be odd. A longer window
            smooths more. At the ends of the record the window is not centered, and noise there is
            amplified.
        degree: degree of the polynomials, at least 2.

    Returns:
        Smoothed q, tau and f_ext, with v and a.

    Raises:
        ImportError: without scipy.
        ValueError: for uneven times or a window that does not fit.
    """
    times = np.asarray(t, dtype=float)
    T = len(times)
    if not (window % 2 == 1 and degree >= 2 and degree < window <= T):
        raise ValueError(
            f"filter_and_differentiate: window={window} must be odd, greater than "
            f"degree={degree} >= 2, and at most the {T} samples"
        )
    dt = (times[-1] - times[0]) / (T - 1)
    if not np.abs(times - times[0] - dt * np.arange(T)).max() < _UNEVEN * dt:
        raise ValueError(
            "filter_and_differentiate: the times are not evenly spaced; resample the record first"
        )
    start = np.clip(np.arange(T) - window // 2, 0, T - window)
    tables = [
        np.stack([_coefficients(window, degree, k, order, dt) for k in range(window)])
        for order in range(3)
    ]
    c0, c1, c2 = (jnp.asarray(c[np.arange(T) - start], q.dtype) for c in tables)
    index = start[:, None] + np.arange(window)
    around = jax.vmap(jax.vmap(difference, (None, None, 0)), (None, 0, 0))
    u = around(model, q, q[index])

    def fit(c: Array, x: Array) -> Array:
        return linear.einsum("tw,tw...->t...", c, x)

    smooth = jax.vmap(integrate, (None, 0, 0))(model, q, fit(c0, u))
    rest = (None if x is None else fit(c0, x[index]) for x in (tau, f_ext))
    return Dataset(t, smooth, fit(c1, u), fit(c2, u), *rest)


def _coefficients(window: int, degree: int, at: int, order: int, dt: float) -> np.ndarray:
    """Weights of a window's samples for a derivative at sample ``at``."""
    signal = extra("scipy.signal")
    return signal.savgol_coeffs(window, degree, deriv=order, delta=dt, pos=at, use="dot")
