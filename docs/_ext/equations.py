"""What each paper says, row by row, with the tests and the state of its implementation.

The site's pages on the papers take from here the list of equations. Where an equation is
implemented is found in the docstrings: their ``Source:`` lines name it.
"""

from typing import NamedTuple

FULL = "full"


class Row(NamedTuple):
    """Some equations of a paper."""

    items: str
    """``(3)``, ``(3)–(5)``, ``Table 2``, ``Algorithm 1``, ``§3.2``, with commas between them."""
    what: str
    tests: str = ""
    """Files of tests: ``derivatives/kim`` is ``tests/derivatives/test_kim.py``."""
    state: str = FULL
    """``FULL``, or what is partial or absent."""
    others: str = ""
    """Where it is as well, if no docstring names it."""


KIM = (
    Row(
        "(1)–(4)",
        "rotation and pose, the homogeneous matrix and its inverse",
        "spatial/so3 spatial/se3",
    ),
    Row("(5)–(8)", "screws, Ad and Ad*", "spatial/twists_and_inertias"),
    Row(
        "(9), (10)", "velocity of a body as a twist", "model/joints algorithms/kinematic_identities"
    ),
    Row(
        "(11)–(13)", "wrenches; twists and wrenches in another frame", "spatial/twists_and_inertias"
    ),
    Row(
        "(14)–(20)",
        "kinetic energy, inertia matrix",
        "spatial/twists_and_inertias algorithms/identities",
    ),
    Row("(21), (22)", "inertia in another frame", "spatial/twists_and_inertias"),
    Row(
        "(23), (24)",
        "momentum, and in another frame",
        "spatial/twists_and_inertias algorithms/identities",
    ),
    Row(
        "(25)–(29)", "rates of twists and wrenches in a moving frame", "spatial/twists_and_inertias"
    ),
    Row(
        "(30), (31)",
        "equations of motion of a body",
        "simulate/free_body screw/newton_euler",
        others="`rbd.screw.body_fixed_wrench`, and within Tables 2 to 4",
    ),
    Row(
        "(32), (33), Table 1",
        "inverse, forward and hybrid dynamics as maps",
        "algorithms/identities algorithms/pinocchio",
        others="`rbd.inverse_dynamics`, `rbd.forward_dynamics`, `rbd.hybrid_dynamics`",
    ),
    Row(
        "(34)–(36)",
        "poses and twists along the tree",
        "algorithms/kinematic_identities algorithms/pinocchio",
    ),
    Row(
        "(37)–(40)",
        "accelerations along the tree",
        "algorithms/kinematic_identities model/coordinates",
    ),
    Row(
        "(41), Table 2",
        "recursive inverse dynamics",
        "derivatives/kim algorithms/pinocchio algorithms/robots_by_hand",
    ),
    Row(
        "footnote 6",
        "motion of the base",
        "algorithms/identities",
        "partial: gravity; the base has no other motion of its own, such as V₀",
    ),
    Row(
        "(42)–(49), Table 3",
        "recursive forward dynamics",
        "algorithms/pinocchio algorithms/identities",
    ),
    Row(
        "(50)–(52), Table 4",
        "recursive hybrid dynamics",
        "derivatives/kim algorithms/pinocchio",
        "partial: joints whose S depends on q (`rbd.with_coordinates`) raise a TypeError; for them "
        "there are inverse and forward dynamics",
    ),
    Row(
        "(53)–(60)",
        "derivatives of Ad and Ad*",
        "derivatives/kim derivatives/singh_identities",
        others="within Tables 5 to 7",
    ),
    Row("(61)–(63)", "∂h, the twist of a placement that changes", "derivatives/kim model/joints"),
    Row(
        "Table 5",
        "derivative of inverse dynamics along a scalar",
        "derivatives/kim derivatives/rules",
        "partial: joints whose S depends on q raise a TypeError; IDSVA takes them",
    ),
    Row(
        "Table 6",
        "derivative of forward dynamics along a scalar",
        "derivatives/kim",
        "partial: as Table 5",
    ),
    Row(
        "Table 7",
        "derivative of hybrid dynamics along a scalar",
        "derivatives/kim",
        "partial: as Table 5",
    ),
    Row("(64)", "what has to be given", "derivatives/kim"),
    Row(
        "§3.2",
        "what may be left out because it is zero",
        "derivatives/kim",
        "partial: a quantity that is zero for all bodies is left out; one that is zero for some "
        "bodies, as along one coordinate, is computed for all",
    ),
)

SINGH = (
    Row(
        "(1), (2), (4)",
        "inverse and forward dynamics",
        "algorithms/pinocchio algorithms/identities",
        others="`rbd.inverse_dynamics`, `rbd.forward_dynamics`",
    ),
    Row("(3)", "forward dynamics by the inverse of the mass matrix", "algorithms/formulations"),
    Row(
        "(5)",
        "derivatives of forward dynamics from those of inverse dynamics",
        "derivatives/pinocchio derivatives/rules_modes",
    ),
    Row(
        "(6), (7), (35)–(44), P1–P7",
        "spatial algebra",
        "spatial/twists_and_inertias",
        others="`rbd.spatial.motion`",
    ),
    Row(
        "(8)–(14)",
        "twists, accelerations and wrenches in ground coordinates",
        "algorithms/formulations algorithms/pinocchio",
        others="Algorithm 1, lines 3 to 10",
    ),
    Row(
        "(15)–(18), J1–J9, (45)–(81)",
        "derivatives of spatial quantities along a joint",
        "derivatives/singh_identities",
        others="Algorithm 1 follows from them; the test evaluates each",
    ),
    Row(
        "(19)–(27), (29), (82)–(117), (119)–(121), (123)–(131)",
        "derivatives of the terms of the equations of motion",
        "derivatives/pinocchio",
        others="Algorithm 1, whose sums they are",
    ),
    Row("(28)", "the matrix B of a body", "derivatives/second_order screw/closed_form"),
    Row(
        "(30)–(32), (118), (122), (132)",
        "∂τ/∂q and ∂τ/∂v in closed form",
        "derivatives/pinocchio derivatives/rules_modes",
        others="`rbd.inverse_dynamics_derivatives`",
    ),
    Row("Algorithm 1", "IDSVA", "derivatives/pinocchio derivatives/rules_modes derivatives/kim"),
    Row(
        "(33), (34)", "forward dynamics at rest, M⁻¹ b", "derivatives/linear_map model/coordinates"
    ),
    Row(
        "§IV-E",
        "FDSVA: a product with M⁻¹ (DMM) or a solution for each column (AZA)",
        "derivatives/pinocchio derivatives/long_chains",
        'partial: both are there, and `method="auto"` always takes AZA, where the paper chooses '
        "by the size of the robot. On serial chains AZA takes up to 1.8 times as long as DMM",
    ),
    Row(
        "Table I",
        "ways to differentiate, compared",
        "",
        "absent: no table of finite differences, complex step and autodiff; the tests use all "
        "three as references",
    ),
    Row(
        "Table II",
        "the algorithms that are compared",
        "project/benchmarks",
        "partial: RNEACR, ABACR and FDCR are in `benchmarks/baselines.py`. The derivatives of "
        "Pinocchio 2.6.0 are absent: later versions of Pinocchio contain IDSVA itself",
    ),
    Row(
        "Figs. 2, 3",
        "against chain rules; ground and body frames",
        "project/benchmarks",
        others="`python -m benchmarks figures`",
    ),
    Row(
        "Figs. 4, 6",
        "against Pinocchio, chains and trees",
        "project/benchmarks",
        "partial: measured by `python -m benchmarks figures`. The paper is ahead of Pinocchio for "
        "every N. Here the derivatives of inverse dynamics are behind it for N = 2 and 5 in a "
        "batch of 4, and for N = 500",
    ),
    Row(
        "Fig. 5",
        "real robots",
        "project/benchmarks",
        others="`python -m benchmarks singh` and `pinocchio`",
    ),
    Row(
        "Fig. 7, Table III",
        "where AZA overtakes DMM",
        "project/benchmarks",
        "partial: measured by `python -m benchmarks figures`. Up to N = 500 AZA does not overtake "
        "on serial chains: its cost here is O(N² d), with d the depth of the tree",
    ),
    Row(
        "§V-A",
        "accuracy",
        "derivatives/long_chains",
        "partial: `python -m benchmarks singh` measures errors in norm, 2e-12 for a chain of 100. "
        "Single small entries have relative errors up to 4e-3 with AZA, where the paper states "
        "1e-12 entry by entry",
    ),
)

OTHERS = (
    (
        "Müller",
        "(18)",
        "q̈ from spatial accelerations",
        "partial: the system acceleration is there, its inverse is for body-fixed twists only",
    ),
    (
        "Müller",
        "§4",
        "recursions in spatial, hybrid and mixed twists",
        "partial: inverse dynamics in all four; forward dynamics in body-fixed twists",
    ),
    ("Müller", "§4", "counts of operations", "partial: times and FLOPs (`representations`)"),
    ("Müller", "§4.2", "rates of twists by recursion", "partial: to jerk, no higher"),
    ("Müller", "(79)", "equations in momenta, block-triangular", "partial: dense, O(n³)"),
    ("Müller", "§5.1", "a system in (q, Vᵇ)", "absent"),
    (
        "Müller",
        "§6.3",
        "series-elastic robots with variable stiffness",
        "absent: the stiffness is constant; joints without springs may be among them",
    ),
    ("Müller", "§6.3", "rates of forward dynamics, from τ̇ to jerk", "absent as a function"),
    (
        "Müller",
        "(88), spatial",
        "reconstruction from spatial twists",
        "absent: joint velocities are body-fixed",
    ),
    ("Müller", "§7, [42]", "explicit Newmark/Verlet of a rotation", "absent"),
    (
        "Müller",
        "§7, [82]",
        "systems in absolute coordinates",
        "absent: robots are trees in joint coordinates, with constraints between bodies",
    ),
    ("Müller", "§7, [83]", "momentum-preserving schemes", "partial: other schemes than in [83]"),
    ("Müller", "§7, [32], [79], [80]", "beams", "absent: bodies are rigid"),
    (
        "Müller",
        "§8, [66]",
        "O(n) dynamics in canonical momenta",
        "absent: `M v = p` is solved by the factor of the articulated bodies",
    ),
    ("Notes", "§8.1", "motion of the base", "partial: gravity only, as Kim's footnote 6"),
)
