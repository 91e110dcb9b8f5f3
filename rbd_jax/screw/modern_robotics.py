"""Robots in the format of the book "Modern Robotics" (Lynch, Park 2017) and of the notes.

``Mlist[i]`` is the home pose of link frame i+1 in link frame i, where frame 0 is the base and the
last frame is the tool. ``Glist[i]`` is the 6×6 inertia of link i+1 in its frame. ``Slist[:, i]`` is
the spatial screw of joint i+1, angular part first.
"""

from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..algorithms.kinematics import frame_in_body
from ..model import Model
from ..spatial import inertia, se3
from .build import Rows, from_spatial_screws
from .poe import Frames, reference_frames, spatial_screws


def from_modern_robotics(Mlist: Rows, Glist: Rows, Slist: Rows, **options: Any) -> Model:
    """A serial robot from home poses, inertias and spatial screws.

    Source: the notes §1.3, §2.1: ``M_{0,i} = M_{0,1} M_{1,2} …``, Müller (93).

    Args:
        Mlist: n or n + 1 matrices (4, 4) (m). The last one of n + 1 is the tool.
        Glist: (n, 6, 6) inertias in the link frames.
        Slist: (6, n), one column for each joint (rad, m).
        options: options of :func:`rbd_jax.screw.from_body_screws`.

    Returns:
        A model with link frames ``link1`` … and, if given, ``tool``.

    Raises:
        ValueError: if the numbers of matrices differ.
        RobotDescriptionError: for a screw of no known joint, or an inertia of no rigid body.
    """
    M, S = [np.asarray(m, dtype=float) for m in Mlist], np.asarray(Slist)
    n = S.shape[-1]
    if S.shape != (6, n) or len(M) not in (n, n + 1) or len(Glist) != n:
        raise ValueError(
            f"from_modern_robotics: Slist of shape {S.shape} needs n = {n} matrices in Glist and "
            f"n or n + 1 in Mlist; got {len(Glist)} and {len(M)}"
        )
    A = np.eye(4)
    home = [A := A @ m for m in M[:n]]
    tool = M[n] if len(M) > n else None
    return from_spatial_screws(S.T, Glist, np.reshape(home, (n, 4, 4)), tool=tool, **options)


def to_modern_robotics(
    model: Model, frames: Frames | None = None, tool: str | int | None = None
) -> tuple[Float[Array, "k 4 4"], Float[Array, "n 6 6"], Float[Array, "6 n"]]:
    """``(Mlist, Glist, Slist)`` of a serial robot; the inverse of :func:`from_modern_robotics`.

    The format has no armature and no damping. Derivatives are those of autodiff.

    Source: the notes §1.3, §2.1, §6.1.

    Args:
        model: a chain of revolute, prismatic and helical joints.
        frames: name (or number) of each body's link frame. If None, the frames are at the centers
            of mass with the axes of the bodies, so that inertias are block diagonal.
        tool: frame on the last body for the last matrix of Mlist; None for no such matrix.

    Raises:
        ValueError: if the robot is not such a chain, or the tool is not on its last body.
    """
    topology, n = model.topology, model.nb
    if topology.parents != tuple(range(-1, n - 1)) or model.nv != n:
        raise ValueError(
            f"robot {topology.name!r} is not a chain of joints of one degree of freedom, and the "
            "format of Modern Robotics has no others; use body_screws or spatial_screws"
        )
    Y, A = spatial_screws(model)
    D = reference_frames(model, frames)
    if frames is None:
        D = D[0], inertia.com(model.inertia)
    home = se3.compose(A, D)
    R, p = se3.identity(model.dtype)
    before = jnp.concatenate([R[None], home[0][:-1]]), jnp.concatenate([p[None], home[1][:-1]])
    M = se3.matrix(se3.compose(se3.inverse(before), home))
    if tool is not None:
        body, local = frame_in_body(model, tool)
        if body != n - 1:
            raise ValueError(f"frame {tool!r} is not on the last body of {topology.name!r}")
        last = se3.compose(se3.inverse((D[0][-1], D[1][-1])), local)
        M = jnp.concatenate([M, se3.matrix(last)[None]])
    G = inertia.matrix(inertia.to_parent(se3.inverse(D), model.inertia))
    return M, G, Y.T
