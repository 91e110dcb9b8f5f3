"""What is physically wrong with a robot: its inertias, its mass matrix. Host side, NumPy."""

import numpy as np

from ..model import NV, LinkSpec, RobotSpec
from ..spatial import host
from ._build import Bodies
from ._singular import gimbals, mass_matrix, singular_joints

USUAL_STEP = 2e-3  # s, that of the command line and of most simulations of contact
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
    locks = [name for chain in gimbals(bodies) if not {*chain} & {*singular} for name in chain]
    if locks:
        text = (
            "hinges of chains of three with massless links between them: where their axes lie in "
            "one plane (gimbal lock) the mass matrix is singular, and motions that come near it "
            "are wrong or not finite at any step (give the links between an inertia, or "
            "give the joints an armature)"
        )
        found[text] = locks
    return found


def strongly_damped(bodies: Bodies, constrained: bool) -> dict[str, list[str]]:
    """Joints whose damping makes explicit integrators unstable at the usual steps, as above.

    Args:
        bodies: of the description.
        constrained: whether mimic joints follow the others.
    """
    joints = bodies.joints
    if not any(j.damping for j in joints):
        return {}
    counts = [NV[j.kind] for j in joints]
    owner = np.repeat(np.arange(len(joints)), counts)
    M, _ = mass_matrix(bodies, np.zeros(len(joints)))
    M += np.diag(np.repeat([j.armature for j in joints], counts))
    D = np.diag(np.repeat([j.damping for j in joints], counts))
    Phi = np.eye(len(D))
    if constrained:
        place = {name: int(np.argmax(owner == i)) for i, name in enumerate(bodies.joint_names)}
        rules = {place[n]: (place[j.mimic.target], j.mimic.multiplier)
                 for n, j in zip(bodies.joint_names, joints, strict=True) if j.mimic}  # fmt: skip
        for _ in rules:  # as often as chains of them can be long
            for row, (target, multiplier) in rules.items():
                Phi[row] = multiplier * Phi[target]
        Phi = Phi[:, [i for i in range(len(D)) if i not in rules]]
    rate, x = host.greatest_ratio(Phi.T @ D @ Phi, Phi.T @ M @ Phi)
    if not rate * USUAL_STEP > 2:
        return {}
    power = np.diag(D) * (Phi @ x) ** 2
    text = (
        f"joints with so much damping that explicit integrators need steps shorter than "
        f"{2 / rate:.2g} s (the default integrator takes damping implicitly, at any step)"
    )
    return {text: [bodies.joint_names[i] for i in sorted({*owner[power > 0.1 * power.max()]})]}


def _flaw(I: np.ndarray) -> str | None:
    a, b, c = np.linalg.eigvalsh(I)
    if a < -1e-9 * max(abs(c), abs(a)) - 1e-15:
        return "links whose inertia has a negative principal moment, which no body has (kept)"
    if c - a - b > TOLERANCE * c + 1e-15:
        return "links whose principal moments break the triangle inequality (kept)"
    return None
