"""The policy of the rollouts against MJX, for NumPy, for JAX and for a peer's process."""

STEPS, DT = 100, 0.005
REACH = 0.1
"""The most that the network adds to a control."""


def controls_of(xp, network, qpos, qvel):
    """The controls of a state in MuJoCo's coordinates; ``xp`` is NumPy or JAX's."""
    x = xp.concatenate([qpos, qvel])
    exact = {} if xp.__name__ == "numpy" else {"precision": "highest"}
    for k in range(3):
        x = xp.tanh(xp.matmul(network[f"W{k}"], x, **exact))
    return network["hold"] + REACH * x
