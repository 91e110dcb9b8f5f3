"""Robots written in code, for tests, benchmarks, notebooks and first steps. No files needed."""

from typing import Any

import numpy as np

from ..model import ELEMENTARY, JointSpec, LinkSpec, Model, RobotSpec
from ._build import build_model

_X, _Y, _Z = np.eye(3)


def _rod(name: str, mass: float, length: float, radius: float = 0.03, along=-_Z) -> LinkSpec:
    """A uniform solid cylinder that starts at the link's origin."""
    a = np.asarray(along, dtype=float)
    across = mass * (3 * radius**2 + length**2) / 12
    inertia = across * np.eye(3) + (mass * radius**2 / 2 - across) * np.outer(a, a)
    return LinkSpec(name, mass, 0.5 * length * a, inertia)


def _box(name: str, mass: float, size: tuple[float, float, float]) -> LinkSpec:
    x, y, z = (s**2 for s in size)
    return LinkSpec(name, mass, np.zeros(3), mass / 12 * np.diag([y + z, x + z, x + y]))


def _tree(name: str, links: list[LinkSpec], joints: list[JointSpec], dtype, **options) -> Model:
    spec = RobotSpec(name, (LinkSpec("base"), *links), tuple(joints))
    return build_model(spec, dtype=dtype, **options)


def pendulum(mass: float = 1.0, length: float = 1.0, dtype=None) -> Model:
    """A point mass on a massless rod that turns about y and hangs along −z at q = 0."""
    bob = LinkSpec("bob", mass, np.array([0.0, 0.0, -length]))
    return _tree("pendulum", [bob], [JointSpec("hinge", "revolute", "base", "bob", axis=_Y)], dtype)


def double_pendulum(
    masses: tuple[float, float] = (1.0, 1.0),
    lengths: tuple[float, float] = (1.0, 1.0),
    dtype=None,
) -> Model:
    """Two point masses on massless rods that turn about y and hang along −z at q = 0."""
    down = [np.array([0.0, 0.0, -x]) for x in lengths]
    links = [LinkSpec("upper", masses[0], down[0]), LinkSpec("lower", masses[1], down[1])]
    joints = [
        JointSpec("shoulder", "revolute", "base", "upper", axis=_Y),
        JointSpec("elbow", "revolute", "upper", "lower", p=down[0], axis=_Y),
    ]
    return _tree("double_pendulum", links, joints, dtype)


def tree(n: int, branching: int = 2, floating_base: bool = False, dtype=None) -> Model:
    """``n`` rods in a tree: body i hangs on body (i−1) // branching; axes alternate x, y, z."""
    length = 0.3
    links, joints = [], []
    for i in range(n):
        parent = "base" if i == 0 else f"link{(i - 1) // branching}"
        spread = 0.1 * ((i - 1) % branching - (branching - 1) / 2) if i else 0.0
        p = np.array([spread, 0.0, -length if i else 0.0])
        links.append(_rod(f"link{i}", 1.0, length))
        axis = (_X, _Y, _Z)[i % 3]
        joints.append(JointSpec(f"joint{i}", "revolute", parent, f"link{i}", p=p, axis=axis))
    name = f"chain{n}" if branching == 1 else f"tree{n}x{branching}"
    spec = RobotSpec(name, (_box("base", 5.0, (0.3, 0.2, 0.1)), *links), tuple(joints))
    return build_model(spec, floating_base=floating_base, dtype=dtype)


def chain(n: int, floating_base: bool = False, dtype=None) -> Model:
    """``n`` rods one after the other, with revolute axes x, y, z in turn."""
    return tree(n, branching=1, floating_base=floating_base, dtype=dtype)


def _random_link(rng: np.random.Generator, name: str) -> LinkSpec:
    A = rng.normal(size=(3, 3))
    Sigma = A @ A.T / 3 + 0.1 * np.eye(3)  # second moment of a physical mass distribution
    mass = rng.uniform(0.5, 2.0)
    inertia = 0.1 * mass * (np.trace(Sigma) * np.eye(3) - Sigma)
    return LinkSpec(name, mass, 0.2 * rng.normal(size=3), inertia)


def _random_rotation(rng: np.random.Generator) -> np.ndarray:
    Q, R = np.linalg.qr(rng.normal(size=(3, 3)))
    Q = Q * np.sign(np.diag(R))
    return Q if np.linalg.det(Q) > 0 else -Q


RANDOM_KINDS = (*ELEMENTARY, "cylindrical", "universal", "planar")


def random_tree(
    seed: int,
    kinds: tuple[str, ...] = RANDOM_KINDS,
    n: int | None = None,
    dtype=None,
) -> Model:
    """A random tree with one joint of each of ``kinds``, or ``n`` joints drawn from them.

    Joint axes, placements, pitches, armature and damping are all random, so that no term of an
    algorithm vanishes by symmetry.
    """
    rng = np.random.default_rng(seed)
    chosen = rng.permutation(np.array(kinds)) if n is None else rng.choice(np.array(kinds), n)
    links, joints = [], []
    for i, kind in enumerate(chosen):
        parent = "base" if i == 0 else f"link{rng.integers(max(0, i - 3), i)}"
        links.append(_random_link(rng, f"link{i}"))
        axis, axis2 = rng.normal(size=(2, 3))
        joints.append(
            JointSpec(
                f"joint{i}",
                str(kind),
                parent,
                f"link{i}",
                R=_random_rotation(rng),
                p=0.3 * rng.normal(size=3),
                axis=axis / np.linalg.norm(axis),
                axis2=axis2 / np.linalg.norm(axis2),
                pitch=rng.uniform(0.05, 0.2),
                damping=rng.uniform(0.0, 0.3),
                armature=rng.uniform(0.0, 0.1),
            )
        )
    return _tree(f"random_tree{seed}", links, joints, dtype)


def quadruped(floating_base: bool = True, dtype=None) -> Model:
    """A 30 kg quadruped: a trunk and four legs of three joints (abduction, hip, knee)."""
    links = [_box("trunk", 18.0, (0.6, 0.3, 0.15))]
    joints = []
    for leg, (x, y) in {"lf": (1, 1), "rf": (1, -1), "lh": (-1, 1), "rh": (-1, -1)}.items():
        hip = np.array([0.3 * x, 0.12 * y, 0.0])
        out = np.array([0.0, 0.08 * y, 0.0])
        knee = np.array([0.0, 0.0, -0.3])
        links += [
            _rod(f"{leg}_hip", 1.0, 0.08, 0.04, along=y * _Y),
            _rod(f"{leg}_thigh", 1.5, 0.3, 0.03),
            _rod(f"{leg}_shank", 0.5, 0.3, 0.015),
            LinkSpec(f"{leg}_foot", 0.05),
        ]
        limits: dict[str, Any] = {
            "velocity": 20.0,
            "effort": 80.0,
            "damping": 0.1,
            "armature": 0.01,
        }
        joints += [
            JointSpec(f"{leg}_haa", "revolute", "trunk", f"{leg}_hip", p=hip, axis=_X,
                      lower=-0.8, upper=0.8, **limits),
            JointSpec(f"{leg}_hfe", "revolute", f"{leg}_hip", f"{leg}_thigh", p=out, axis=_Y,
                      lower=-1.5, upper=1.5, **limits),
            JointSpec(f"{leg}_kfe", "revolute", f"{leg}_thigh", f"{leg}_shank", p=knee, axis=_Y,
                      lower=-2.6, upper=2.6, **limits),
            JointSpec(f"{leg}_sole", "fixed", f"{leg}_shank", f"{leg}_foot", p=knee),
        ]  # fmt: skip
    spec = RobotSpec("quadruped", tuple(links), tuple(joints))
    return build_model(spec, floating_base=floating_base, dtype=dtype)


def arm(dtype=None) -> Model:
    """A seven-joint arm in the shape of common collaborative robots, with a tool frame."""
    lengths = (0.33, 0.0, 0.32, 0.08, 0.38, 0.0, 0.1)
    masses = (4.0, 4.0, 3.0, 2.7, 1.7, 1.6, 0.5)
    axes = (_Z, _Y, _Z, -_Y, _Z, -_Y, _Z)
    links, joints = [], []
    for i, (length, mass, axis) in enumerate(zip(lengths, masses, axes, strict=True)):
        parent = "base" if i == 0 else f"link{i}"
        along = lengths[i + 1] if i < 6 else 0.1
        links.append(_rod(f"link{i + 1}", mass, max(along, 0.1), 0.05, along=_Z))
        joints.append(
            JointSpec(f"joint{i + 1}", "revolute", parent, f"link{i + 1}",
                      p=np.array([0.0, 0.0, length]), axis=axis, lower=-2.8, upper=2.8,
                      velocity=2.6, effort=87.0 if i < 4 else 12.0, damping=0.1, armature=0.05)
        )  # fmt: skip
    links.append(LinkSpec("tool"))
    joints.append(JointSpec("flange", "fixed", "link7", "tool", p=np.array([0.0, 0.0, 0.1])))
    return _tree("arm", links, joints, dtype)


def cart_pole(cart: float = 1.0, pole: float = 0.3, length: float = 0.5, dtype=None) -> Model:
    """A cart on a rail along x with a point mass on a massless pole, hanging along −z at q = 0."""
    down = np.array([0.0, 0.0, -length])
    links = [_box("cart", cart, (0.3, 0.2, 0.1)), LinkSpec("pole", pole, down), LinkSpec("tip")]
    joints = [
        JointSpec("rail", "prismatic", "base", "cart", axis=_X),
        JointSpec("hinge", "revolute", "cart", "pole", axis=_Y),
        JointSpec("end", "fixed", "pole", "tip", p=down),
    ]
    return _tree("cart_pole", links, joints, dtype)


def quadrotor_arm(dtype=None) -> Model:
    """A flying quadrotor (1.2 kg) under which an arm of two joints hangs; frames at its rotors."""
    links = [_box("trunk", 1.2, (0.25, 0.25, 0.08)), _rod("upper", 0.15, 0.2, 0.01),
             _rod("lower", 0.1, 0.2, 0.01), LinkSpec("hand")]  # fmt: skip
    down = np.array([0.0, 0.0, -0.2])
    joints = [
        JointSpec("shoulder", "revolute", "trunk", "upper", p=0.2 * down, axis=_Y, damping=0.01),
        JointSpec("elbow", "revolute", "upper", "lower", p=down, axis=_Y, damping=0.01),
        JointSpec("grip", "fixed", "lower", "hand", p=down),
    ]
    for i, (x, y) in enumerate([(1, 1), (-1, 1), (-1, -1), (1, -1)]):
        links.append(LinkSpec(f"rotor{i}"))
        p = np.array([0.16 * x, 0.16 * y, 0.03])
        joints.append(JointSpec(f"mount{i}", "fixed", "trunk", f"rotor{i}", p=p))
    spec = RobotSpec("quadrotor_arm", tuple(links), tuple(joints))
    return build_model(spec, floating_base=True, dtype=dtype)
