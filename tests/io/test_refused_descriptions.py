"""Descriptions that are refused, and what the errors say."""

import dataclasses

import numpy as np
import pytest
from support.descriptions import Y, joint, link, one_joint, robot
from support.helpers import assert_close

from rbd_jax import JointSpec, RobotDescriptionError, RobotSpec, build_model
from rbd_jax.model import ELEMENTARY


def _chain(**changes) -> RobotSpec:
    """base → a → b, with the first joint changed."""
    first = dataclasses.replace(joint("j0", "revolute", "base", "a"), **changes)
    return robot(
        first, joint("j1", "revolute", "a", "b"), links=[link(n, 0) for n in ("base", "a", "b")]
    )


def _with(spec: RobotSpec, *joints: JointSpec, links=()) -> RobotSpec:
    return dataclasses.replace(spec, joints=spec.joints + joints, links=spec.links + tuple(links))


def _with_link(**changes) -> RobotSpec:
    spec = _chain()
    return dataclasses.replace(
        spec, links=(*spec.links[:-1], dataclasses.replace(spec.links[-1], **changes))
    )


REFUSED = {
    "scaled rotation": (_chain(R=2 * np.eye(3)), r"joint 'j0' has an R that is no rotation matrix"),
    "reflection": (_chain(R=np.diag([1.0, 1, -1])), r"joint 'j0' has an R that is no rotation"),
    "two numbers for a place": (_chain(p=np.zeros(2)), r"'j0' needs a finite p of shape \(3,\)"),
    "negative mass": (_with_link(mass=-1.0), r"link 'b' has mass -1.0; it must be finite"),
    "infinite mass": (_with_link(mass=np.inf), r"link 'b' has mass inf; it must be finite"),
    "no inertia matrix": (_with_link(inertia=np.zeros(3)), r"'b' needs inertia of shape \(3, 3\)"),
    "no number": (_with_link(com=np.full(3, np.nan)), r"'b' needs com of shape \(3,\), finite"),
    "unknown kind": (_chain(kind="ball"), r"joint 'j0' has the unknown type 'ball'; known: rev"),
    "unknown parent": (_chain(parent="nobody"), r"joint 'j0' names the parent link 'nobody'"),
    "unknown child": (_chain(child="nobody"), r"joint 'j0' names the child link 'nobody', which"),
    "zero axis": (_chain(axis=np.zeros(3)), r"joint 'j0' has a zero axis"),
    "nan axis": (_chain(axis=np.full(3, np.nan)), r"joint 'j0' has a zero axis"),
    "zero normal": (_chain(kind="planar", axis=np.zeros(3)), r"joint 'j0' has a zero axis"),
    "no second axis": (_chain(kind="universal"), r"universal joint 'j0' needs axis2"),
    "parallel axes": (_chain(kind="universal", axis=Y, axis2=-2 * Y), r"not parallel to its axis"),
    "no links": (RobotSpec("robot", (), ()), r"it has no links"),
    "link twice": (_with(_chain(), links=[link("a", 1)]), r"link name 'a' is used more than once"),
    "joint twice": (
        _with(_chain(), joint("j0", "fixed", "b", "c"), links=[link("c", 1)]),
        r"joint name 'j0' is used more than once",
    ),
    "loop": (
        _with(_chain(), joint("j2", "revolute", "base", "b")),
        r"link 'b' is the child of 2 joints \['j1', 'j2'\]: a kinematic loop",
    ),
    "several roots": (
        _with(_chain(), links=[link("island", 1)]),
        r"it has 2 root links \['base', 'island'\]",
    ),
    "cycle": (
        _with(_chain(), joint("j2", "revolute", "b", "base")),
        r"every link is some joint's child: the joints form a cycle",
    ),
    "cycle beside the root": (
        _with(_chain(), joint("j2", "fixed", "c", "d"), joint("j3", "fixed", "d", "c"),
              links=[link("c", 1), link("d", 2)]),
        r"links \['c', 'd'\] hang on a cycle of joints and not on the root",
    ),
    "link on itself": (
        _with(_chain(), joint("j2", "revolute", "c", "c"), links=[link("c", 1)]),
        r"links \['c'\] hang on a cycle",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_descriptions_that_are_refused(case):
    spec, message = REFUSED[case]
    with pytest.raises(RobotDescriptionError, match=message):
        build_model(spec)


def test_the_description_that_the_refusals_spoil_is_accepted():
    assert build_model(_chain()).body_names == ("a", "b")


def test_a_second_root_joint_is_refused():
    spec = _chain(name="root_joint")
    assert build_model(spec).joint_names[0] == "root_joint"
    with pytest.raises(RobotDescriptionError, match="'root_joint' already"):
        build_model(spec, floating_base=True)


@pytest.mark.parametrize(
    "kind", [k for k in ELEMENTARY if k in ("spherical", "translation", "free")]
)
def test_kinds_without_an_axis_do_not_ask_for_one(kind):
    model = build_model(one_joint(kind, axis=np.zeros(3)))
    assert_close(model.axis, np.zeros((1, 3)), atol=0)
