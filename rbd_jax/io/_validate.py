"""The checks that every robot description passes, whichever reader made it. Host side, no JAX."""

from collections import Counter
from collections.abc import Mapping

import numpy as np

from ..model import KINDS, RobotDescriptionError, RobotSpec
from ..model.topology import depth_first

Places = Mapping[tuple[str, str], str]
_ROTATION = 1e-5  # deviation from orthonormality that float32 files have
_NO_AXIS = ("fixed", "spherical", "translation", "free")


def check_tree(spec: RobotSpec, places: Places | None = None) -> str:
    """Refuse anything but a tree of known joints with distinct names; return the root link's name.

    Args:
        spec: the description.
        places: where ``("link", name)``, ``("joint", name)`` and ``("robot", "")`` were read
            (file and line), for the messages.

    Raises:
        RobotDescriptionError: says what is wrong, where, and what to do.
    """
    places = places or {}

    def fail(text: str, *about: str) -> None:
        place = places.get(about) or places.get(("robot", ""))  # pyright: ignore
        raise RobotDescriptionError(f"{place + ': ' if place else ''}robot {spec.name!r}: {text}")

    for what, names in (
        ("link", [x.name for x in spec.links]),
        ("joint", [j.name for j in spec.joints]),
    ):
        if "" in names:
            fail(f"a {what} has an empty name; give it one")
        twice = [n for n, k in Counter(names).items() if k > 1]
        if twice:
            text = f"{what} name {twice[0]!r} is used more than once; rename one of them"
            fail(text, what, twice[0])
    links = {x.name for x in spec.links}
    if not links:
        fail("it has no links; a robot needs at least one <link>")
    for x in spec.links:
        _check_link(x, lambda text, name=x.name: fail(text, "link", name))
    for j in spec.joints:
        _check_joint(j, links, lambda text, name=j.name: fail(text, "joint", name))
    children = Counter(j.child for j in spec.joints)
    for name, k in children.items():
        if k > 1:
            joints = [j.name for j in spec.joints if j.child == name]
            text = f"link {name!r} is the child of {k} joints {joints}: a kinematic loop. "
            fail(text + "Cut it: keep one joint and model the closure as a constraint",
                 "joint", joints[1])  # fmt: skip
    roots = [x.name for x in spec.links if x.name not in children]
    if not roots:
        fail("every link is some joint's child: the joints form a cycle; remove one of them")
    if len(roots) > 1:
        text = f"it has {len(roots)} root links {roots[:5]}; join them to one with fixed joints"
        fail(text, "link", roots[1])
    reached = {spec.links[i].name for i in link_order(spec, roots[0])}
    if len(reached) < len(links):
        lost = sorted(links - reached)[:5]
        text = f"links {lost} hang on a cycle of joints and not on the root; remove one joint of it"
        fail(text, "link", lost[0])
    return roots[0]


def _check_link(x, fail) -> None:
    for what, value, shape in (("com", x.com, (3,)), ("inertia", x.inertia, (3, 3))):
        if np.shape(value) != shape or not np.isfinite(value).all():
            fail(f"link {x.name!r} needs {what} of shape {shape}, finite, got {value}")
    if not 0 <= x.mass < np.inf:
        fail(f"link {x.name!r} has mass {x.mass}; it must be finite and not negative")


def _check_joint(j, links: set[str], fail) -> None:
    if j.kind not in KINDS:
        fail(f"joint {j.name!r} has the unknown type {j.kind!r}; known: {', '.join(KINDS)}")
    for role, name in (("parent", j.parent), ("child", j.child)):
        if name not in links:
            fail(f"joint {j.name!r} names the {role} link {name!r}, which does not exist; add it")
    if j.kind not in _NO_AXIS and not np.linalg.norm(j.axis) > 1e-9:
        fail(f"joint {j.name!r} has a zero axis; give it a direction")
    R = np.asarray(j.R, dtype=float)
    rotation = R.shape == (3, 3) and np.abs(R.T @ R - np.eye(3)).max() < _ROTATION
    if not rotation or np.linalg.det(R) < 0:
        fail(f"joint {j.name!r} has an R that is no rotation matrix; orthonormalize it, det +1")
    if np.shape(j.p) != (3,) or not np.isfinite(j.p).all():
        fail(f"joint {j.name!r} needs a finite p of shape (3,), got {j.p}")


def link_order(spec: RobotSpec, root: str) -> list[int]:
    """Link numbers, depth first in document order."""
    number = {x.name: i for i, x in enumerate(spec.links)}
    below: list[list[int]] = [[] for _ in spec.links]
    for j in spec.joints:
        below[number[j.parent]].append(number[j.child])
    return depth_first(lambda i: below[i], number[root])
