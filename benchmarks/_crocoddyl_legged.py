"""Crocoddyl's side of legged motion: a program for a Python that has it, JSON in and JSON out.

Reads one problem from the standard input, in this project's order of joints, and writes the
optimum that Crocoddyl finds and how long it took. Imports nothing of this project.
"""

import importlib.util
import json
import sys
import time
from pathlib import Path

import crocoddyl
import numpy as np
import pinocchio as pin

# by its path: the folder itself stays off the path of an isolated Python
_spec = importlib.util.spec_from_file_location("free", Path(__file__).parent / "_crocoddyl.py")
free = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(free)
Order, _weighted = free.Order, free._weighted


def _contacts(state, spec: dict, on: list[bool], nu: int, impulse: bool):
    """The contacts or impulses of one step."""
    kind = crocoddyl.ImpulseModelMultiple if impulse else crocoddyl.ContactModelMultiple
    all_ = kind(state) if impulse else kind(state, nu)
    for name, holds in zip(spec["feet"], on, strict=True):
        if not holds:
            continue
        frame, gains = state.pinocchio.getFrameId(name), np.array([0.0, spec["gain"]])
        if impulse:
            one = crocoddyl.ImpulseModel3D if spec["points"] else crocoddyl.ImpulseModel6D
            axes = pin.LOCAL_WORLD_ALIGNED if spec["points"] else pin.LOCAL
            all_.addImpulse(name, one(state, frame, axes))
        elif spec["points"]:
            axes = pin.LOCAL_WORLD_ALIGNED
            one = crocoddyl.ContactModel3D(state, frame, np.zeros(3), axes, nu, gains)
            all_.addContact(name, one)
        else:
            ref = pin.SE3.Identity()
            all_.addContact(name, crocoddyl.ContactModel6D(state, frame, ref, pin.LOCAL, nu, gains))
    return all_


def _barrier(limits):
    """A quadratic penalty of what is outside of the limits."""
    bounds = crocoddyl.ActivationBounds(limits.lb, limits.ub)
    return crocoddyl.ActivationModelQuadraticBarrier(bounds)


def _costs(state, spec: dict, order, k: int, nu: int):
    """The costs of step k."""
    costs = crocoddyl.CostModelSum(state, nu)
    free._state_cost(costs, state, order, spec["stage"], nu)
    effort = _weighted(np.asarray(spec["stage"]["u_weight"])[order.u])
    residual = crocoddyl.ResidualModelControl(state, nu)
    costs.addCost("u", crocoddyl.CostModelResidual(state, effort, residual), 1.0)
    com = crocoddyl.ResidualModelCoMPosition(state, np.asarray(spec["com"][k]), nu)
    weights = _weighted(spec["com_weight"])
    costs.addCost("com", crocoddyl.CostModelResidual(state, weights, com), 1.0)
    for swing in spec["swings"]:
        weight, target = swing["weights"][k], np.asarray(swing["targets"][k])
        if weight:
            frame = state.pinocchio.getFrameId(swing["frame"])
            place = crocoddyl.ResidualModelFrameTranslation(state, frame, target, nu)
            cost = crocoddyl.CostModelResidual(state, place)
            costs.addCost(f"{swing['frame']} swing", cost, weight**2)
    for level in spec["levels"]:
        frame = state.pinocchio.getFrameId(level["frame"])
        turn = crocoddyl.ResidualModelFrameRotation(state, frame, np.asarray(level["R"]), nu)
        cost = crocoddyl.CostModelResidual(state, _weighted(level["weight"]), turn)
        costs.addCost(f"{level['frame']} level", cost, 1.0)
    for name, holds in zip(spec["feet"], spec["active"][k], strict=True):
        if not holds:
            continue
        frame = state.pinocchio.getFrameId(name)
        cone = crocoddyl.FrictionCone(np.eye(3), spec["friction"], 4, False)
        force = crocoddyl.ResidualModelContactFrictionCone(state, frame, cone, nu)
        cost = crocoddyl.CostModelResidual(state, _barrier(cone), force)
        costs.addCost(f"{name} friction", cost, spec["friction_weight"] ** 2)
        if spec["sole"] is not None:
            sole = crocoddyl.CoPSupport(np.eye(3), 2 * np.asarray(spec["sole"]))
            center = crocoddyl.ResidualModelContactCoPPosition(state, frame, sole, nu)
            cost = crocoddyl.CostModelResidual(state, _barrier(sole), center)
            costs.addCost(f"{name} pressure", cost, spec["sole_weight"] ** 2)
    return costs


def solve(spec: dict) -> dict:
    """The optimum, its iterations, and the time of a solve (ms, the least of some runs)."""
    model = pin.buildModelFromUrdf(spec["urdf"], pin.JointModelFreeFlyer())
    model.gravity.linear = np.asarray(spec["gravity"])
    order, state = Order(model, spec["joints"], True), crocoddyl.StateMultibody(model)
    actuation = crocoddyl.ActuationModelFloatingBase(state)
    nu = actuation.nu
    bare = crocoddyl.DifferentialActionModelFreeFwdDynamics(
        state, actuation, crocoddyl.CostModelSum(state, nu)
    )
    free._same_dynamics(model, bare, order)
    low, high = (np.asarray(spec[x])[order.u] for x in ("lower", "upper"))
    actions, us, before = [], [], spec["active"][0]
    for k in range(spec["steps"]):
        on = spec["active"][k]
        if any(a and not b for a, b in zip(on, before, strict=True)):
            impulses = _contacts(state, spec, on, nu, impulse=True)
            nothing = crocoddyl.CostModelSum(state, 0)
            actions.append(crocoddyl.ActionModelImpulseFwdDynamics(state, impulses, nothing))
            us.append(np.zeros(0))
        before = on
        contacts = _contacts(state, spec, on, nu, impulse=False)
        dynamics = crocoddyl.DifferentialActionModelContactFwdDynamics(
            state, actuation, contacts, _costs(state, spec, order, k, nu), 0.0, True
        )
        action = crocoddyl.IntegratedActionModelEuler(dynamics, spec["dt"])
        action.u_lb, action.u_ub = low, high
        actions.append(action)
        us.append(np.asarray(spec["u"][k])[order.u])
    final = crocoddyl.CostModelSum(state, nu)
    free._state_cost(final, state, order, spec["final"], nu)
    contacts = _contacts(state, spec, spec["active"][-1], nu, impulse=False)
    last = crocoddyl.DifferentialActionModelContactFwdDynamics(
        state, actuation, contacts, final, 0.0, True
    )
    q0, v0 = np.asarray(spec["q0"])[order.q], np.asarray(spec["v0"])[order.v]
    x0, still = np.concatenate([q0, v0]), np.concatenate([q0, 0 * v0])
    last = crocoddyl.IntegratedActionModelEuler(last, 0.0)
    problem = crocoddyl.ShootingProblem(x0, actions, last)
    best = np.inf
    for _ in range(spec["repeats"]):
        solver = crocoddyl.SolverBoxFDDP(problem)
        solver.th_stop = spec["tol"]
        xs = [x0] + [still] * len(actions)
        start = time.process_time()
        done = solver.solve(xs, us, spec["max_iterations"], False)
        best = min(best, time.process_time() - start)
    given = {}
    if "check" in spec:  # the cost of a given trajectory of controls
        us, k = [], 0
        for action in actions:
            u = np.zeros(0) if action.nu == 0 else np.asarray(spec["check"][k])[order.u]
            k += action.nu > 0
            us.append(u)
        xs = problem.rollout(us)
        given = {"cost_of_check": float(problem.calc(xs, us))}
    found = np.zeros((spec["steps"], nu))
    found[:, order.u] = [u for u in solver.us if len(u)]
    # the states in which the steps begin: before an impact, not after it
    first = [k for k in range(len(us) + 1) if k == 0 or len(solver.us[k - 1])]
    states = np.array([solver.xs[k] for k in first])
    q, v = np.zeros((len(states), model.nq)), np.zeros((len(states), model.nv))
    q[:, order.q], v[:, order.v] = states[:, : model.nq], states[:, model.nq :]
    return {
        "version": crocoddyl.__version__,
        "converged": bool(done),
        "cost": float(solver.cost),
        "iterations": int(solver.iter) + 1,  # counted from zero
        "ms_a_solve": 1e3 * best,
        "q": q.tolist(),
        "v": v.tolist(),
        "u": found.tolist(),
        **given,
    }


if __name__ == "__main__":
    print(json.dumps(solve(json.load(sys.stdin))))
