"""Recorded motions: a container, readers, cuts into batches, and smoothing on the manifold."""

import csv
import importlib
import os
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key

from ..model import Model, difference, integrate
from ..model._topology import NQ, NV, Topology

_OF_Q, _OF_V = ("q",), ("v", "a", "tau")
_UNEVEN = 1e-3  # of a time step: how far a sample may lie from an even grid


class Dataset(eqx.Module):
    """Samples of motions; all arrays share their leading axes, and None stands for not recorded.

    Leading axes are those of samples (N,), or of trajectories and samples (B, T). It is a pytree:
    ``jax.tree.map(lambda x: x[:100], data)`` cuts it, ``jax.vmap`` maps over it.
    """

    t: Float[Array, "*b"] | None
    """Time (s)."""
    q: Float[Array, "*b nq"]
    """Configuration (rad, m; quaternions wxyz)."""
    v: Float[Array, "*b nv"] | None = None
    """Velocity (rad/s, m/s; body-fixed twist for a free joint)."""
    a: Float[Array, "*b nv"] | None = None
    """Acceleration, the time derivative of v."""
    tau: Float[Array, "*b nv"] | None = None
    """Joint torques and forces (N m, N)."""
    f_ext: Float[Array, "*b nb 6"] | None = None
    """External wrench (n, f) on each body, in its frame (N m, N)."""

    @property
    def shape(self) -> tuple[int, ...]:
        """The leading axes."""
        return self.q.shape[:-1]

    def samples(self) -> "Dataset":
        """All samples along one axis."""
        n = len(self.shape)
        return jax.tree.map(lambda x: x.reshape(-1, *x.shape[n:]), self)

    def windows(self, length: int, stride: int | None = None) -> "Dataset":
        """Pieces of ``length`` samples, (pieces, length); one every ``stride`` samples.

        Pieces follow one another without a gap if ``stride`` is None, sharing no sample; what is
        left at the end of a trajectory is dropped. Raises ValueError if none fits.
        """
        data = self if len(self.shape) == 2 else jax.tree.map(lambda x: x[None], self)
        T = data.shape[1]
        if len(data.shape) != 2 or not 1 <= length <= T:
            raise ValueError(
                f"windows: no pieces of {length} samples in data of shape {self.shape}"
            )
        starts = np.arange(0, T - length + 1, stride or length)
        index = starts[:, None] + np.arange(length)
        return jax.tree.map(lambda x: x[:, index].reshape(-1, length, *x.shape[2:]), data)

    def split(self, fraction: float = 0.8) -> tuple["Dataset", "Dataset"]:
        """The first part along the first axis and the rest, for training and for validation."""
        n = round(fraction * self.shape[0])
        if not 0 < n < self.shape[0]:
            raise ValueError(f"split: {fraction} of {self.shape[0]} leaves one part empty")
        return jax.tree.map(lambda x: x[:n], self), jax.tree.map(lambda x: x[n:], self)

    def minibatches(self, key: Key[Array, ""], size: int) -> "Dataset":
        """One epoch in random order, (batches, size, …) along the first axis, to be scanned over.

        What is left over by the last whole batch is dropped; another key drops other samples.
        """
        n = self.shape[0]
        if not 1 <= size <= n:
            raise ValueError(f"minibatches: size must be within 1 and {n}, got {size}")
        order = jax.random.permutation(key, n)[: n // size * size].reshape(-1, size)
        return jax.tree.map(lambda x: x[order], self)


# --- files ---------------------------------------------------------------------------------------


def save_npz(model: Model, data: Dataset, path: str | os.PathLike) -> None:
    """Write the arrays by name, with the robot's ``joint_names``, so that readers can sort them."""
    arrays: dict[str, Any] = {k: np.asarray(x) for k, x in vars(data).items() if x is not None}
    np.savez_compressed(path, joint_names=np.array(model.joint_names), **arrays)


def load_npz(model: Model, path: str | os.PathLike) -> Dataset:
    """Read arrays ``t``, ``q``, ``v``, ``a``, ``tau``, ``f_ext``; ``q`` must be there.

    With an array ``joint_names`` the columns of q, v, a and tau are sorted into the robot's order
    (f_ext by the bodies that these joints move). ``t`` of one trajectory serves all. Torques with
    one sample less than the motion, as ``rbd-jax rollout`` writes them, end it a sample earlier.

    Raises:
        ValueError: if names or shapes do not fit the robot.
    """
    with np.load(path) as file:
        arrays = {k: file[k] for k in ("t", "q", "v", "a", "tau", "f_ext") if k in file}
        names = [str(n) for n in file["joint_names"]] if "joint_names" in file else None
    if "q" not in arrays:
        raise ValueError(f"{path}: holds no array 'q'")
    if names is not None:
        _same_names(path, model, names)
        for k, x in arrays.items():
            if k == "f_ext":
                arrays[k] = x[..., [names.index(n) for n in model.joint_names], :]
            elif k != "t":
                arrays[k] = x[..., _order(model.topology, names, k in _OF_Q)]
    if "tau" in arrays and arrays["tau"].shape[-2] == arrays["q"].shape[-2] - 1:
        n, tau = arrays["tau"].shape[-2], arrays.pop("tau")
        cut = {k: x[..., :n] if k == "t" else x[..., :n, :] for k, x in arrays.items()}
        arrays = cut | {"tau": tau}
    return _dataset(path, model, arrays)


def _same_names(path, model: Model, names: list[str]) -> None:
    missing = [n for n in model.joint_names if n not in names]
    if missing or len(names) != model.nb:
        raise ValueError(
            f"{path}: joint_names {names} do not fit robot {model.topology.name!r}, missing: "
            f"{missing}; is it the same robot, with the same floating base?"
        )


def _order(topology: Topology, names: list[str], of_q: bool) -> np.ndarray:
    """Where each of our columns is among those of the joints ``names``."""
    sizes = NQ if of_q else NV
    kinds = dict(zip(topology.joint_names, topology.kinds, strict=True))
    starts = dict(
        zip(names, np.cumsum([0, *(sizes[kinds[n]] for n in names)])[:-1].tolist(), strict=True)
    )
    return np.concatenate([starts[n] + np.arange(sizes[kinds[n]]) for n in topology.joint_names])


def columns(model: Model, what: str) -> list[str]:
    """Names of the columns of q, v, a or tau in a CSV file: ``q:elbow``, ``v:root_joint:0`` …"""
    names, sizes = [], NQ if what in _OF_Q else NV
    for joint, kind in zip(model.joint_names, model.topology.kinds, strict=True):
        n = sizes[kind]
        names += [f"{what}:{joint}"] if n == 1 else [f"{what}:{joint}:{k}" for k in range(n)]
    return names


def save_csv(model: Model, data: Dataset, path: str | os.PathLike) -> None:
    """Write one trajectory, a column a number, named as :func:`columns` says; f_ext is left out."""
    if len(data.shape) != 1:
        raise ValueError(f"save_csv: takes one trajectory, got leading axes {data.shape}")
    found = {"t": data.t, "q": data.q, "v": data.v, "a": data.a, "tau": data.tau}
    present = {k: np.asarray(x) for k, x in found.items() if x is not None}
    header = [c for k in present for c in (["t"] if k == "t" else columns(model, k))]
    rows = np.concatenate([x.reshape(len(x), -1) for x in present.values()], axis=1)
    with Path(path).open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(header)
        writer.writerows([repr(float(x)) for x in row] for row in rows)


def load_csv(model: Model, path: str | os.PathLike) -> Dataset:
    """Read one trajectory: columns ``t``, ``q:joint``, ``v:joint``, ``a:joint``, ``tau:joint``.

    Columns may stand in any order, others are ignored; a joint of several coordinates has
    ``q:joint:0``, ``q:joint:1`` … A quantity is read if there is a column of it; torques of joints
    without a column are 0.

    Raises:
        ValueError: naming the columns that are missing or the line that holds no numbers.
    """
    with Path(path).open(newline="") as file:
        header, *rows = [row for row in csv.reader(file) if row]
    header = [name.strip() for name in header]
    try:
        table = np.array(rows, dtype=float).reshape(len(rows), len(header))
    except ValueError as error:
        raise ValueError(f"{path}: rows of {len(header)} numbers expected ({error})") from None
    arrays = {"t": table[:, header.index("t")]} if "t" in header else {}
    for what in (*_OF_Q, *_OF_V):
        wanted = columns(model, what)
        missing = [c for c in wanted if c not in header]
        if len(missing) == len(wanted) and what not in _OF_Q:
            continue
        if missing and what != "tau":
            raise ValueError(f"{path}: columns {missing[:6]} are missing")
        zeros = np.zeros(len(rows))
        every = [table[:, header.index(c)] if c in header else zeros for c in wanted]
        arrays[what] = np.stack(every, axis=1)
    return _dataset(path, model, arrays)


def _dataset(path, model: Model, arrays: dict[str, np.ndarray]) -> Dataset:
    lead = arrays["q"].shape[:-1]
    if "t" in arrays and arrays["t"].shape == lead[-1:]:
        arrays["t"] = np.broadcast_to(arrays["t"], lead)
    nv = (model.nv,)
    tails = {"t": (), "q": (model.nq,), "v": nv, "a": nv, "tau": nv, "f_ext": (model.nb, 6)}
    for name, x in arrays.items():
        if x.shape != (*lead, *tails[name]):
            raise ValueError(
                f"{path}: {name} has shape {x.shape}, expected {(*lead, *tails[name])} for robot "
                f"{model.topology.name!r}"
            )
    every = {name: jnp.asarray(x, model.dtype) for name, x in arrays.items()}
    return Dataset(**({"t": None} | every))


# --- smoothing -----------------------------------------------------------------------------------


def filter_and_differentiate(
    model: Model,
    t: Float[Array, " T"],
    q: Float[Array, "T nq"],
    tau: Float[Array, "T nv"] | None = None,
    *,
    window: int = 21,
    degree: int = 4,
) -> Dataset:
    """Smooth recorded configurations and differentiate them twice, without a shift in time.

    Source: Savitzky, Golay (1964), with coefficients from ``scipy.signal.savgol_coeffs``: a
    polynomial fitted around each sample. It is fitted to ``u(s) = q(t) ⊖ q(t + s)`` in the tangent
    space of that sample, where u̇(0) = v and ü(0) = v̇ exactly (dexp of 0 is the identity and
    ``[v, v] = 0``), so that rotations are treated as what they are. Torques pass the same filter.

    Args:
        model: the robot.
        t: times, evenly spaced (s). q: configurations. tau: torques, if recorded.
        window: number of samples that a polynomial is fitted to, odd; longer is smoother. At the
            ends of the record it is not centred, and noise there is amplified.
        degree: of the polynomials, at least 2.

    Returns:
        Smoothed q and tau, with v and a.

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
        raise ValueError("filter_and_differentiate: times are not evenly spaced; resample first")
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
        return jnp.einsum("tw,twi->ti", c, x, precision="highest")

    smooth = jax.vmap(integrate, (None, 0, 0))(model, q, fit(c0, u))
    rest = None if tau is None else fit(c0, tau[index])
    return Dataset(t, smooth, fit(c1, u), fit(c2, u), rest)


def _coefficients(window: int, degree: int, at: int, order: int, dt: float) -> np.ndarray:
    """Weights of a window's samples, in their order, for a derivative at sample ``at``."""
    try:
        signal = importlib.import_module("scipy.signal")
    except ImportError as error:
        raise ImportError("smoothing needs scipy: pip install 'rbd-jax[identify]'") from error
    return signal.savgol_coeffs(window, degree, deriv=order, delta=dt, pos=at, use="dot")
