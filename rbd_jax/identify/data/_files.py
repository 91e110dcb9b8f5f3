"""Recorded motions in files: NumPy archives, and CSV files with columns named after joints."""

import csv
import difflib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np

from ...model import Model
from ...model.topology import NQ, NV, Topology
from ._dataset import Dataset
from ._names import seconds_from, translated

_Q_COLUMNS, _V_COLUMNS = ("q",), ("v", "a", "tau")


def save_npz(model: Model, data: Dataset, path: str | os.PathLike) -> None:
    """Write the arrays by name, and the ``joint_names`` by which readers can order columns."""
    arrays: dict[str, Any] = {k: np.asarray(x) for k, x in vars(data).items() if x is not None}
    np.savez_compressed(path, joint_names=np.array(model.space.joint_names), **arrays)


def load_npz(model: Model, path: str | os.PathLike) -> Dataset:
    """Read ``t``, ``q``, ``v``, ``a``, ``tau``, ``f_ext`` and ``controls``. Only ``q`` is required.

    If there is an array ``joint_names``, the columns of q, v, a and tau are put into the order of
    the robot's joints, and those of f_ext into the order of the bodies that these joints move. For
    a robot with driven joints, such as mimic joints, the names are those of the other joints and of
    new coordinates, and f_ext is in the order of the robot's bodies. One row ``t`` may serve all
    trajectories. ``rbd-jax rollout`` writes one torque less than there are states; the last state
    is dropped then.

    Raises:
        ValueError: for arrays of other names, or if names or shapes do not fit the robot.
    """
    with np.load(path) as file:
        known = "t", "q", "v", "a", "tau", "f_ext", "controls"
        if unknown := sorted(set(file) - {*known, "joint_names"}):
            raise ValueError(
                f"{path}: arrays {unknown[:6]} are unknown; the names are {known} and joint_names: "
                "rename them, or leave them out"
            )
        arrays = {k: file[k] for k in known if k in file}
        names = [str(n) for n in file["joint_names"]] if "joint_names" in file else None
    if "q" not in arrays:
        raise ValueError(f"{path}: there is no array 'q' in the file")
    if names is not None:
        _same_names(path, model, names)
        for k, x in arrays.items():
            if k == "f_ext":
                if len(names) == model.nb:  # no joints are driven: each joint has its body
                    arrays[k] = x[..., [names.index(n) for n in model.joint_names], :]
            elif k not in ("t", "controls"):
                arrays[k] = x[..., _order(model.space, names, k in _Q_COLUMNS)]
    if "tau" in arrays and arrays["tau"].shape[-2] == arrays["q"].shape[-2] - 1:
        n, tau = arrays["tau"].shape[-2], arrays.pop("tau")
        cut = {k: x[..., :n] if k == "t" else x[..., :n, :] for k, x in arrays.items()}
        arrays = cut | {"tau": tau}
    return _dataset(path, model, arrays)


def _same_names(path, model: Model, names: list[str]) -> None:
    missing = [n for n in model.space.joint_names if n not in names]
    if missing or len(names) != len(model.space.joint_names):
        raise ValueError(
            f"{path}: joint_names {names} are not the joints of robot {model.topology.name!r}; "
            f"missing: {missing}; check that it is the same robot, with the same base"
        )


def _order(topology: Topology, names: list[str], of_q: bool) -> np.ndarray:
    """For each column of the robot, its index among the columns of the joints ``names``."""
    sizes = NQ if of_q else NV
    kinds = dict(zip(topology.joint_names, topology.kinds, strict=True))
    starts = dict(
        zip(names, np.cumsum([0, *(sizes[kinds[n]] for n in names)])[:-1].tolist(), strict=True)
    )
    return np.concatenate([starts[n] + np.arange(sizes[kinds[n]]) for n in topology.joint_names])


def column_names(model: Model, what: str) -> list[str]:
    """Names of the columns of q, v, a or tau in a CSV file: ``q:elbow``, ``v:root_joint:0`` …"""
    names, sizes = [], NQ if what in _Q_COLUMNS else NV
    for joint, kind in zip(model.space.joint_names, model.space.kinds, strict=True):
        n = sizes[kind]
        names += [f"{what}:{joint}"] if n == 1 else [f"{what}:{joint}:{k}" for k in range(n)]
    return names


def save_csv(model: Model, data: Dataset, path: str | os.PathLike) -> None:
    """Write one trajectory without f_ext; the columns are named as :func:`load_csv` reads them."""
    if len(data.shape) != 1:
        raise ValueError(
            f"save_csv: the data must be one trajectory (T,), got leading axes {data.shape}"
        )
    found = {"t": data.t, "q": data.q, "v": data.v, "a": data.a, "tau": data.tau}
    present = {k: np.asarray(x) for k, x in found.items() if x is not None}
    header = [c for k in present for c in (["t"] if k == "t" else column_names(model, k))]
    rows = np.concatenate([x.reshape(len(x), -1) for x in present.values()], axis=1)
    with Path(path).open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(header)
        writer.writerows([repr(float(x)) for x in row] for row in rows)


def load_csv(
    model: Model, path: str | os.PathLike, columns: Mapping[str, str] | None = None
) -> Dataset:
    """Read one trajectory: columns ``t``, ``q:joint``, ``v:joint``, ``a:joint``, ``tau:joint``.

    The columns may be in any order. A joint of several coordinates has the columns ``q:joint:0``,
    ``q:joint:1`` and so on. A quantity is read if it has at least one column, and then it needs all
    of them. No torque is taken to be zero: a joint without a motor needs a column of zeros.

    Tables of ROS's ``JointState`` are read too, as PlotJuggler, ``rostopic echo -p`` and readers of
    bags write them: ``/joint_states/elbow/position``, ``position.0`` with ``name.0``, and so on.
    Times then begin at zero, and columns of other joints are left out.

    Args:
        model: the robot.
        path: the file.
        columns: names of columns in the file and their names here, as in ``{"enc_1": "q:elbow"}``.
            Columns that have neither a name of this library nor one of these are left out.

    Raises:
        ValueError: if columns are missing, unknown or named twice, or a row does not hold numbers.
    """
    with Path(path).open(newline="") as file:
        header, *rows = [row for row in csv.reader(file) if row]
    theirs = [name.strip() for name in header]
    header, rows = translated(path, model, theirs, rows, columns)
    try:
        table = np.array(rows, dtype=float).reshape(len(rows), len(header))
    except ValueError as error:
        raise ValueError(f"{path}: every row must hold {len(header)} numbers ({error})") from None
    wanted = {what: column_names(model, what) for what in (*_Q_COLUMNS, *_V_COLUMNS)}
    _check_columns(path, model, header, wanted)
    arrays = {"t": table[:, header.index("t")]} if "t" in header else {}
    if "t" in arrays and theirs != header:
        arrays["t"] = seconds_from(theirs, arrays["t"])
    for what, names in wanted.items():
        if any(c in header for c in names):
            arrays[what] = np.stack([table[:, header.index(c)] for c in names], axis=1)
    return _dataset(path, model, arrays)


def _check_columns(path, model: Model, header: list[str], wanted: dict[str, list[str]]) -> None:
    """Raise ValueError for columns that are unknown, named twice or missing."""
    known = {"t", *(c for names in wanted.values() for c in names)}
    if unknown := [c for c in header if c not in known]:
        near = difflib.get_close_matches(unknown[0], sorted(known), n=1)
        hint = f" (did you mean {near[0]!r}?)" if near else ""
        raise ValueError(
            f"{path}: columns {unknown[:6]} belong to no joint of robot {model.topology.name!r}"
            f"{hint}; columns are 't' and q, v, a or tau with the name of a joint, as in "
            f"{wanted['q'][:1]}; rename them, or leave them out"
        )
    if twice := [c for c in known if header.count(c) > 1]:
        raise ValueError(f"{path}: several columns are named {sorted(twice)[0]!r}")
    for what, names in wanted.items():
        missing = [c for c in names if c not in header]
        if missing and (what in _Q_COLUMNS or len(missing) < len(names)):
            hint = "; write zeros for joints without a motor" if what == "tau" else ""
            raise ValueError(f"{path}: columns {missing[:6]} are missing{hint}")


def _dataset(path, model: Model, arrays: dict[str, np.ndarray]) -> Dataset:
    lead = arrays["q"].shape[:-1]
    if "t" in arrays and arrays["t"].shape == lead[-1:]:
        arrays["t"] = np.broadcast_to(arrays["t"], lead)
    nv = (model.nv,)
    tails = {"t": (), "q": (model.nq,), "v": nv, "a": nv, "tau": nv, "f_ext": (model.nb, 6)}
    tails["controls"] = arrays["controls"].shape[-1:] if "controls" in arrays else ()
    for name, x in arrays.items():
        if x.shape != (*lead, *tails[name]):
            raise ValueError(
                f"{path}: {name} has shape {x.shape}, expected {(*lead, *tails[name])} for robot "
                f"{model.topology.name!r}"
            )
    every = {name: jnp.asarray(x, model.dtype) for name, x in arrays.items()}
    return Dataset(every.pop("t", None), **every)
