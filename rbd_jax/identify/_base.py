"""Base parameters: the combinations that torques depend on, by factorisation of a regressor.

Host side (NumPy): what is identifiable is a property of a robot, not something to differentiate.
"""

from typing import NamedTuple

import numpy as np

from ._extras import extra


class BaseParameters(NamedTuple):
    """The minimal parameters ``π_b = B θ``, with ``Y θ = Y[:, independent] π_b``."""

    names: tuple[str, ...]
    """Of the parameters θ."""
    independent: np.ndarray
    """One parameter for each base parameter: where the combination has its coefficient 1, (r,)."""
    B: np.ndarray
    """(r, p)."""
    nullspace: np.ndarray
    """Orthonormal directions of θ that no torque shows, (p, p − r)."""

    @property
    def count(self) -> int:
        """Number of base parameters, the rank of the regressor."""
        return len(self.independent)

    def combinations(self, tol: float = 1e-9) -> tuple[str, ...]:
        """Each base parameter in words: ``Izz:upper + 0.25 m:lower …``."""

        def words(row):
            used = sorted(np.flatnonzero(np.abs(row) > tol), key=lambda k: abs(row[k] - 1) > tol)
            terms = [f"{row[k]:+.4g} {self.names[k]}".replace("+1 ", "+ ") for k in used]
            return " ".join(terms).removeprefix("+").strip()

        return tuple(words(row) for row in self.B)

    def verdicts(self, tol: float = 1e-7) -> tuple[str, ...]:
        """Of each parameter: ``"identifiable"``, ``"in combination"`` or ``"not identifiable"``."""
        hidden = np.sum(self.nullspace**2, axis=1)  # of the unit vector, within the nullspace
        return tuple(
            "identifiable" if h < tol else "not identifiable" if h > 1 - tol else "in combination"
            for h in hidden
        )


def numerical_base_parameters(
    Y: np.ndarray, names: tuple[str, ...], tol: float = 1e-9
) -> BaseParameters:
    """Base parameters from a regressor of many samples, by singular values.

    What the motion at hand does not excite counts as not identifiable here. Columns are scaled to
    unit length; singular values below ``tol`` of the greatest count as zero.

    Args:
        Y: regressors one below the other, (…, p). names: of the p parameters.
        tol: relative tolerance.
    """
    Y = np.asarray(Y, dtype=float).reshape(-1, len(names))
    R = np.linalg.qr(Y, mode="r")
    length = np.linalg.norm(R, axis=0)
    seen = length > tol * length.max(initial=0)
    scale = np.where(seen, length, 1)
    _, s, Vt = np.linalg.svd(np.where(seen, R / scale, 0), full_matrices=True)
    rank = int(np.sum(s > tol * s.max(initial=0)))
    N = Vt[rank:].T / scale[:, None]
    return from_nullspace(names, np.linalg.qr(N)[0] if N.size else N.reshape(len(names), 0))


def from_nullspace(names: tuple[str, ...], N: np.ndarray) -> BaseParameters:
    """B by a pivoted factorisation: the dependent parameters are those best told by N."""
    p, k = N.shape
    if k == 0:
        return BaseParameters(names, np.arange(p), np.eye(p), N)
    _, _, order = extra("scipy.linalg").qr(N.T, pivoting=True, mode="economic")
    dependent, independent = np.sort(order[:k]), np.sort(order[k:])
    # θ and θ + N y are the same robot: choose y so that the dependent ones vanish
    carried = -np.linalg.solve(N[dependent].T, N[independent].T).T
    B = np.zeros((p - k, p))
    B[np.arange(p - k), independent] = 1
    B[:, dependent] = carried
    B[np.abs(B) < 1e-12] = 0
    return BaseParameters(names, independent, B, N)
