"""Crocoddyl's side of ``optimize``: a program for a Python that has it, JSON in and JSON out.

Reads one problem from the standard input, in this project's order of joints, and writes the
optimum that ``SolverBoxFDDP`` finds and how long it took. Imports nothing of this project.
"""

import json
import sys
import time

import crocoddyl
import numpy as np
import pinocchio as pin


class Order:
    """From this project's order of q and v to that of a Pinocchio model."""

    def __init__(self, model, joints: list[str], free: bool):
        ids = [model.getJointId(name) for name in joints]
        base_q, base_v = ([0, 1, 2, 4, 5, 6, 3], [3, 4, 5, 0, 1, 2]) if free else ([], [])
        self.q, self.v = np.zeros(model.nq, int), np.zeros(model.nv, int)
        self.q[: len(base_q)], self.v[: len(base_v)] = base_q, base_v  # wxyz, angular first
        for k, i in enumerate(ids):
            self.q[model.joints[i].idx_q] = len(base_q) + k
            self.v[model.joints[i].idx_v] = len(base_v) + k
        self.u = self.v[len(base_v) :] - len(base_v)


def _weighted(weights) -> crocoddyl.ActivationModelWeightedQuad:
    return crocoddyl.ActivationModelWeightedQuad(np.square(np.asarray(weights, float)))


def _state_cost(costs, state, order: Order, c: dict, nu: int) -> None:
    target = np.concatenate([np.asarray(c["q"])[order.q], np.zeros(state.nv)])
    weights = np.concatenate([np.asarray(c[k])[order.v] for k in ("q_weight", "v_weight")])
    residual = crocoddyl.ResidualModelState(state, target, nu)
    costs.addCost("x", crocoddyl.CostModelResidual(state, _weighted(weights), residual), 1.0)


def _same_dynamics(model, dynamics, order: Order) -> None:
    """Refuse a Crocoddyl whose Pinocchio is not the imported one: it reads other memory."""
    rng = np.random.default_rng(0)
    q, v = (
        pin.randomConfiguration(model, -np.ones(model.nq), np.ones(model.nq)),
        rng.normal(size=model.nv),
    )
    u, data = rng.normal(size=order.u.size), dynamics.createData()
    dynamics.calc(data, np.concatenate([q, v]), u)
    tau = np.concatenate([np.zeros(model.nv - u.size), u])
    if not np.allclose(data.xout, pin.aba(model, model.createData(), q, v, tau), rtol=1e-8):
        raise SystemExit(
            f"Crocoddyl {crocoddyl.__version__} was built for another Pinocchio than "
            f"{pin.__version__}: its accelerations are wrong (3.2.1 needs pin 4.0.0)"
        )


def solve(spec: dict) -> dict:
    """The optimum, its iterations, and the time of an iteration (ms, the least of some runs)."""
    base = [pin.JointModelFreeFlyer()] if spec["free"] else []
    model = pin.buildModelFromUrdf(spec["urdf"], *base)
    model.gravity.linear = np.asarray(spec["gravity"])
    order, state = Order(model, spec["joints"], spec["free"]), crocoddyl.StateMultibody(model)
    drive = crocoddyl.ActuationModelFloatingBase if spec["free"] else crocoddyl.ActuationModelFull
    actuation = drive(state)
    nu = actuation.nu
    stage, final = crocoddyl.CostModelSum(state, nu), crocoddyl.CostModelSum(state, nu)
    _state_cost(stage, state, order, spec["stage"], nu)
    effort = _weighted(np.asarray(spec["stage"]["u_weight"])[order.u])
    residual = crocoddyl.ResidualModelControl(state, nu)
    stage.addCost("u", crocoddyl.CostModelResidual(state, effort, residual), 1.0)
    _state_cost(final, state, order, spec["final"], nu)
    actions = []
    for costs, dt in ((stage, spec["dt"]), (final, 0.0)):
        dynamics = crocoddyl.DifferentialActionModelFreeFwdDynamics(state, actuation, costs)
        _same_dynamics(model, dynamics, order)
        actions.append(crocoddyl.IntegratedActionModelEuler(dynamics, dt))
    actions[0].u_lb = np.asarray(spec["lower"])[order.u]
    actions[0].u_ub = np.asarray(spec["upper"])[order.u]
    x0 = np.concatenate([np.asarray(spec["q0"])[order.q], np.zeros(model.nv)])
    problem = crocoddyl.ShootingProblem(x0, [actions[0]] * spec["steps"], actions[1])
    us = list(np.asarray(spec["u"])[:, order.u])
    best = np.inf
    for _ in range(spec["repeats"]):
        solver = crocoddyl.SolverBoxFDDP(problem)
        solver.th_stop = spec["tol"]
        xs = problem.rollout(us)
        start = time.process_time()
        done = solver.solve(xs, us, spec["max_iterations"], True)
        best = min(best, time.process_time() - start)
    return {
        "version": crocoddyl.__version__,
        "converged": bool(done),
        "cost": float(solver.cost),
        "iterations": int(solver.iter) + 1,  # counted from zero
        "ms_a_solve": 1e3 * best,
    }


if __name__ == "__main__":
    print(json.dumps(solve(json.load(sys.stdin))))
