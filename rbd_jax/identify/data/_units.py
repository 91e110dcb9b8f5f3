"""Whether the numbers of a record can be seconds, radians and newton meters, and even times."""

import jax
import jax.numpy as jnp
import numpy as np

from ...model import Model, difference, integrate
from ._dataset import Dataset, required

_SLOWEST = 0.2  # A longer time step (s) is not one of a robot's record.
_FASTEST = 60.0  # Joints of robots do not turn faster (rad/s).
_STRONG = 20.0  # Torques exceed their limits by less than this factor.
_BEYOND = 1.0  # A joint may leave its limits by so much (rad).
_RATIOS = ((180 / np.pi, "degrees/s"), (np.pi / 180, "rad/s beside positions in degrees"),
           (60 / (2 * np.pi), "turns a minute"), (1e3, "units a millisecond"))  # fmt: skip


def implausible(model: Model, record: Dataset) -> tuple[str, ...]:
    """Sentences about numbers of a record that hint at other units; empty if there are none.

    Times steps, speeds, position limits, torque limits, and the ratio of recorded velocities to
    those of the positions are compared with what robots do. This runs on the host.
    """
    said, q = [], np.asarray(record.q, float).reshape(-1, record.shape[-1], model.nq)
    kinds = [model.space.kinds[k] for k, n in enumerate(model.space.joint_names)]
    names = model.space.joint_names
    turning = [(n, model.q_slice(n).start, model.v_slice(n).start)
               for n, kind in zip(names, kinds, strict=True) if kind == "revolute"]  # fmt: skip
    lower, upper = (np.asarray(x) for x in (model.position_lower, model.position_upper))
    for name, k, _ in turning:
        low, high = q[..., k].min(), q[..., k].max()
        over = max(low * -1 + lower[k], high - upper[k])
        if over > _BEYOND and high - low > 2 * np.pi:
            said.append(
                f"joint {name!r} moves from {low:.4g} to {high:.4g}, and its limits are "
                f"{lower[k]:.3g} and {upper[k]:.3g} rad: are the positions in degrees?"
            )
            break
    rates = None
    if record.t is not None:
        t = np.asarray(record.t, float).reshape(-1, record.shape[-1])
        dt = np.median(np.diff(t, axis=-1))
        if (np.diff(t, axis=-1) <= 0).any():
            said.append("the times do not increase: sort the rows, or leave out doubled ones")
        elif dt > _SLOWEST:
            unit = "nanoseconds" if dt > 1e4 else "milliseconds"
            said.append(f"the time step is {dt:.4g} s: are the times in {unit}?")
        else:
            rates = (
                np.asarray(np.gradient(q, axis=1)) / np.asarray(np.gradient(t, axis=1))[..., None]
            )
            fast = [(n, np.quantile(np.abs(rates[..., k]), 0.9)) for n, k, _ in turning]
            if fast and max(x for _, x in fast) > _FASTEST:
                name, speed = max(fast, key=lambda x: x[1])
                said.append(
                    f"joint {name!r} turns at {speed:.4g} rad/s by its positions and times: are "
                    "the positions in degrees, or the times in other units?"
                )
    if rates is not None and record.v is not None:
        v = np.asarray(record.v, float).reshape(*q.shape[:2], -1)
        for name, k, j in turning:
            a, b = rates[..., k].ravel(), v[..., j].ravel()
            scale = (a @ b) / (a @ a) if a @ a > 0 else 1.0
            if (near := [w for r, w in _RATIOS if 0.8 < scale / r < 1.25]) and b.std() > 0:
                said.append(f"velocities of {name!r} are {scale:.3g} times the rate of its "
                            f"positions: are they in {near[0]}?")  # fmt: skip
                break
            if scale < 0 and np.corrcoef(a, b)[0, 1] < -0.5:
                said.append(f"velocities of {name!r} have the opposite sign of its positions' rate")
                break
    if record.tau is not None:
        tau = np.abs(np.asarray(record.tau, float)).reshape(-1, model.nv).max(axis=0)
        limit = np.asarray(model.effort_limit)
        if (over := np.flatnonzero(tau > _STRONG * limit)).size:
            k = int(over[0])
            said.append(
                f"torques of degree of freedom {k} reach {tau[k]:.4g}, and its limit is "
                f"{limit[k]:.4g}: are they torques at the joint, in N m?"
            )
    return tuple(said)


def uneven(record: Dataset) -> float:
    """By which part of a time step the times deviate from an even grid."""
    (t,) = required("uneven", record, "t")
    times = np.asarray(t, float)
    dt = (times[..., -1:] - times[..., :1]) / (times.shape[-1] - 1)
    return float((np.abs(times - times[..., :1] - dt * np.arange(times.shape[-1])) / dt).max())


def resampled(model: Model, record: Dataset, dt: float | None = None) -> Dataset:
    """The record at even times, by interpolation along geodesics between neighbors.

    This runs on the host where times are concerned; values keep their derivatives.

    Args:
        model: the robot.
        record: one record (T,) with increasing times.
        dt: the new time step (s); the median of the old ones if None.

    Raises:
        ValueError: for times that do not increase, or a gap of more than ten steps.
    """
    (t,) = required("resampled", record, "t")
    times = np.asarray(t, float)
    steps = np.diff(times)
    if times.ndim != 1 or not (steps > 0).all():
        raise ValueError("resampled: expected one record (T,) whose times increase")
    dt = float(np.median(steps)) if dt is None else dt
    if steps.max() > 10 * np.median(steps):
        k = int(np.argmax(steps))
        raise ValueError(
            f"resampled: the record has a gap of {steps[k]:.3g} s at t = {times[k]:.6g} s; cut it "
            "there, and give the parts one by one"
        )
    new = times[0] + dt * np.arange(int(np.floor((times[-1] - times[0]) / dt + 1e-9)) + 1)
    at = np.clip(np.searchsorted(times, new, side="right") - 1, 0, len(times) - 2)
    part = jnp.asarray((new - times[at]) / steps[at], record.q.dtype)
    step = jax.vmap(lambda a, b, s: integrate(model, a, s * difference(model, a, b)))

    def between(x):
        if x is None:
            return None
        s = part.reshape(-1, *[1] * (x.ndim - 1))
        return x[at] + s * (x[at + 1] - x[at])

    others = [between(getattr(record, k)) for k in ("v", "a", "tau", "f_ext", "controls")]
    even = jnp.asarray(new, record.q.dtype)
    return Dataset(even, step(record.q[at], record.q[at + 1], part), *others)
