"""The state of a robot in the layouts of the peers, in NumPy.

A request's state of a robot with a floating base: its position (m) and quaternion (wxyz), its twist
and the rate of it, angular first, in the base's frame; the joints of one degree of freedom in the
order of the request. No wrench acts on the base, so that the results of the joints, which are what
is compared, do not depend on how a library represents the base.
"""

import numpy as np


def rotation(quat: np.ndarray) -> np.ndarray:
    """Rotation matrices of unit quaternions wxyz."""
    w, x, y, z = np.moveaxis(quat, -1, 0)
    rows = [
        [1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)],
        [2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)],
        [2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)],
    ]
    return np.moveaxis(np.array(rows), (0, 1), (-2, -1))


def _arrange(states: dict, order: list[int], base) -> dict:
    parts = {k: states[f"joint_{k}"][:, order] for k in ("q", "v", "a", "tau")}
    if "base_q" not in states:
        return parts
    p, quat = states["base_q"][:, :3], states["base_q"][:, 3:]
    R = rotation(quat)
    w, v = np.split(states["base_v"], 2, axis=1)
    dw, dv = np.split(states["base_a"], 2, axis=1)
    turn = lambda x: np.einsum("bij,bj->bi", R, x)  # noqa: E731
    heads = {"q": np.concatenate([p, quat], axis=1), "tau": np.zeros_like(states["base_v"])}
    heads |= base(turn, w, v, dw, dv + np.cross(w, v))
    return {k: np.concatenate([heads[k], x], axis=1) for k, x in parts.items()}


def mujoco(states: dict, order: list[int]) -> dict:
    """Linear velocity in the world, angular velocity in the base's frame."""

    def base(turn, w, v, dw, a):
        return {"v": np.hstack([turn(v), w]), "a": np.hstack([turn(a), dw])}

    return _arrange(states, order, base)


def mixed(states: dict, order: list[int]) -> dict:
    """Linear velocity of the base's origin and angular velocity, both in the world's axes."""

    def base(turn, w, v, dw, a):
        return {"v": np.hstack([turn(v), turn(w)]), "a": np.hstack([turn(a), turn(dw)])}

    return _arrange(states, order, base)


def body_fixed(states: dict, order: list[int]) -> dict:
    """That of this project: the request's own."""

    def base(turn, w, v, dw, a):
        return {"v": states["base_v"], "a": states["base_a"]}

    return _arrange(states, order, base)


def pinocchio(states: dict, order: list[int]) -> dict:
    """That of Pinocchio: quaternions xyzw, linear before angular velocity, in the base's axes."""

    def base(turn, w, v, dw, a):
        found = {k: np.roll(states[f"base_{k}"], 3, axis=1) for k in ("v", "a")}
        return found | {"q": states["base_q"][:, [0, 1, 2, 4, 5, 6, 3]]}

    return _arrange(states, order, base)
