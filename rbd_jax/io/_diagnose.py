"""What is physically wrong with a robot: its inertias, its mass matrix. Host side, NumPy."""

import numpy as np

from ..model import LinkSpec, RobotSpec
from ..spatial import host
from ._build import Bodies
from ._singular import singular_joints

TOLERANCE = 0.01  # of the triangle inequality: printed inertias are rounded


def diagnose(spec: RobotSpec, bodies: Bodies) -> dict[str, list[str]]:
    """What is physically impossible, as ``{what: names of the links or joints}``.

    Inertias are judged after links behind fixed joints are merged, because only their sum moves: a
    wrong antenna on a right torso does no harm. Massless links are judged by the mass matrix,
    because one between two other links does no harm, and one at the end of a chain does.
    """
    links = {x.name: x for x in spec.links}
    carried: list[list[LinkSpec]] = [[] for _ in bodies.parents]
    for name, (body, _) in bodies.frames.items():
        if body >= 0:
            carried[body].append(links[name])
    found: dict[str, list[str]] = {}
    for P, parts in zip(bodies.pseudo, carried, strict=True):
        for part in parts:
            if part.mass == 0 and np.any(part.inertia):
                text = "links with an inertia but no mass (kept, as Pinocchio does)"
                found.setdefault(text, []).append(part.name)
        flaw = _flaw(host.central_inertia(P))
        if flaw:
            names = [x.name for x in parts if _flaw(x.inertia) == flaw]
            found.setdefault(flaw, []).extend(names or [x.name for x in parts[:1]])
    singular = singular_joints(bodies)
    if singular:
        text = (
            "joints that make the mass matrix singular or indefinite in every configuration, so "
            "that forward dynamics is not defined (give what they move an inertia, give them an "
            "armature, or make them fixed)"
        )
        found[text] = singular
    return found


def _flaw(I: np.ndarray) -> str | None:
    a, b, c = np.linalg.eigvalsh(I)
    if a < -1e-9 * max(abs(c), abs(a)) - 1e-15:
        return "links whose inertia has a negative principal moment, which no body has (kept)"
    if c - a - b > TOLERANCE * c + 1e-15:
        return "links whose principal moments break the triangle inequality (kept)"
    return None
