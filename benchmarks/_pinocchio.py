"""Pinocchio's side: models made from ours, and calls in a loop."""

import numpy as np

import rbd_jax as rbd

from ._timing import Program, race


def same_tree(model: rbd.Model):
    """Pinocchio's model of a robot of revolute joints, body by body in our order."""
    import pinocchio as pin

    theirs, topology = pin.Model(), model.topology
    aligned = pin.JointModelRX, pin.JointModelRY, pin.JointModelRZ
    if set(topology.kinds) != {"revolute"}:
        raise ValueError("same_tree: all joints must be revolute")
    theirs.gravity.linear = np.asarray(model.gravity, float)
    for i, up in enumerate(topology.parents):
        axis = np.asarray(model.axis[i], float)
        special = [k for k, e in enumerate(np.eye(3)) if np.array_equal(axis, e)]  # as from a URDF
        joint = aligned[special[0]]() if special else pin.JointModelRevoluteUnaligned(axis)
        placement = pin.SE3(
            np.asarray(model.placement_R[i], float), np.asarray(model.placement_p[i], float)
        )
        j = theirs.addJoint(up + 1, joint, placement, topology.joint_names[i])
        I = pin.Inertia.FromDynamicParameters(np.asarray(model.inertia[i], float))
        theirs.appendBodyToJoint(j, I, pin.SE3.Identity())
    return theirs


def loop(call, model, rows: list[tuple]) -> Program:
    """Call for the rows one by one."""
    data = model.createData()

    def run():
        for row in rows:
            call(model, data, *row)

    return Program("pinocchio", run, per=len(rows))


def call_overhead() -> float:
    """Median time (µs) of ``pin.rnea`` for a robot of one joint: a bound on the call itself."""
    import pinocchio as pin

    model = pin.Model()
    model.addJoint(0, pin.JointModelRZ(), pin.SE3.Identity(), "hinge")
    x = np.zeros(1)
    nothing = loop(pin.rnea, model, [(x, x, x)] * 256)
    race(nothing, seconds=0.1)
    return nothing.median
