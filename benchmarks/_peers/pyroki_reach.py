"""PyRoki's inverse kinematics for the benchmark ``reach``, in an environment of its own.

``python pyroki_reach.py IN.npz OUT.npz``: targets and starts in, configurations and times out. The
problem is that of PyRoki's example of inverse kinematics: a cost of the pose with an analytic
Jacobian, and limits. Of several starts for a target the one with the smallest error is taken.
"""

import sys
import time

import jax
import jax.numpy as jnp
import jaxlie
import jaxls
import numpy as np
import pyroki as pk
import yourdfpy


def main(given: str, out: str) -> None:
    """Solve all targets at once and one by one, and time both."""
    with np.load(given) as saved:
        x = dict(saved)
    urdf = yourdfpy.URDF.load(str(x["urdf"]), load_meshes=False)
    robot = pk.Robot.from_urdf(urdf)
    links = [robot.links.names.index(str(name)) for name in x["frames"]]
    Rs, ps = jnp.asarray(x["R"], jnp.float32), jnp.asarray(x["p"], jnp.float32)
    table = jnp.asarray(x["starts"], jnp.float32)
    lower, upper = robot.joints.lower_limits, robot.joints.upper_limits
    starts = lower + table[:, : len(lower)] * (upper - lower)
    var = robot.joint_var_cls(0)

    def errors(q, R, p):
        poses = robot.forward_kinematics(q)
        found = []
        for k, link in enumerate(links):
            T = jaxlie.SE3(poses[link])
            turn = (jaxlie.SO3.from_matrix(R[k]).inverse() @ T.rotation()).log()
            found.append((jnp.linalg.norm(T.translation() - p[k]), jnp.linalg.norm(turn)))
        return jnp.asarray(found)

    def one(R, p, q0):
        costs = [pk.costs.limit_constraint(robot, var)]
        for k, link in enumerate(links):
            pose = jaxlie.SE3.from_rotation_and_translation(jaxlie.SO3.from_matrix(R[k]), p[k])
            costs.append(
                pk.costs.pose_cost_analytic_jac(
                    robot, var, pose, jnp.array(link), pos_weight=50.0, ori_weight=10.0
                )
            )
        solution = (
            jaxls.LeastSquaresProblem(costs, [var])
            .analyze()
            .solve(
                initial_vals=jaxls.VarValues.make([var.with_value(q0)]),
                verbose=False,
                linear_solver="dense_cholesky",
                trust_region=jaxls.TrustRegionConfig(lambda_initial=1.0),
            )
        )
        q = jnp.clip(solution[var], lower, upper)
        return q, errors(q, R, p)

    def best(R, p):
        q, e = jax.vmap(one, (None, None, 0))(R, p, starts)
        k = jnp.argmin(jnp.max(e[..., 0] + 0.3 * e[..., 1], axis=-1))
        return q[k], e[k]

    solve = jax.jit(jax.vmap(best))
    start = time.perf_counter()
    compiled = solve.lower(Rs, ps).compile()
    compile_s = time.perf_counter() - start
    jax.block_until_ready(compiled(Rs, ps))
    cpu = time.process_time()
    q, e = jax.block_until_ready(compiled(Rs, ps))
    batch_s = time.process_time() - cpu
    alone = jax.jit(best).lower(Rs[0], ps[0]).compile()
    jax.block_until_ready(alone(Rs[0], ps[0]))
    cpu = time.process_time()
    for R, p in zip(Rs, ps, strict=True):
        jax.block_until_ready(alone(R, p))
    one_by_one_s = time.process_time() - cpu
    np.savez(out, q=q, errors=e, batch_s=batch_s, one_by_one_s=one_by_one_s, compile_s=compile_s)


if __name__ == "__main__":
    main(*sys.argv[1:])
