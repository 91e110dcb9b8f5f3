"""Other JAX libraries of rigid-body dynamics, each in a process and an environment of its own.

``serve`` is the program that runs there; it imports one adapter (a module named after the peer)
and nothing of this project but its own package. ``side`` is the other end of the pipe.
"""

from typing import NamedTuple


class Peer(NamedTuple):
    """What to install, and what to know when reading its numbers."""

    package: str
    requirements: tuple[str, ...]
    note: str


PEERS = {
    "frax": Peer(
        "frax",
        ("frax==0.1.0", "jax==0.4.30", "jaxlib==0.4.30"),
        "`rnea`, `forward_dynamics`; on the JAX that its README recommends for CPUs",
    ),
    "mjx": Peer(
        "mujoco-mjx",
        ("mujoco-mjx==3.17.0", "mujoco==3.17.0", "jax==0.6.0", "jaxlib==0.6.0"),
        "the smooth part only (kinematics to `rne` and `solve_m`), no contacts, no constraints; on "
        "a JAX before XLA's fusion emitters, which slow it many times",
    ),
    "brax": Peer(
        "brax",
        ("brax==0.14.2", "mujoco-mjx==3.17.0", "mujoco==3.17.0", "jax==0.6.0", "jaxlib==0.6.0"),
        "generalized pipeline, its terms only: `mass.matrix`, `dynamics.inverse`, Cholesky",
    ),
    "jaxsim": Peer(
        "jaxsim",
        ("jaxsim==0.9.0", "jax==0.10.2", "jaxlib==0.10.2"),
        "`forward_dynamics_aba`, `inverse_dynamics`, its data object built from the state",
    ),
    "adam": Peer(
        "adam-robotics",
        (
            "adam-robotics[jax]==0.5.0",
            "jax==0.6.0",
            "jaxlib==0.6.0",
        ),
        "`aba`; for ID and fixed bases, which it has not, `mass_matrix`, `bias_force`, Cholesky",
    ),
}
