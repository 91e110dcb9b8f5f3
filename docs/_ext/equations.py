"""What each paper says, row by row, with the tests and the state of its implementation.

The site's page on the papers takes its table from here. For Kim and Singh, where an equation is
implemented is found in the docstrings: their ``Source:`` lines name it. For the other texts the
rows say it; names without a module are in ``rbd_jax.screw``.
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
    """``FULL``, or what is partial or absent, with the reason."""
    others: str = ""
    """Where it is, if no docstring names it."""


KIM = (
    Row(
        "Fig. 1",
        "frames of a body",
        tests="model/joints",
        others="{doc}`../guide/conventions`",
    ),
    Row(
        "(1)–(4)",
        "rotation and pose, the homogeneous matrix and its inverse",
        tests="spatial/so3 spatial/se3",
    ),
    Row(
        "(5)–(8)",
        "screws, Ad and Ad*",
        tests="spatial/twists_and_inertias",
    ),
    Row(
        "(9), (10)",
        "velocity of a body as a twist",
        tests="model/joints algorithms/kinematic_identities",
    ),
    Row(
        "(11)–(13)",
        "wrenches; twists and wrenches in another frame",
        tests="spatial/twists_and_inertias",
    ),
    Row(
        "(14)–(20)",
        "kinetic energy, inertia matrix",
        tests="spatial/twists_and_inertias algorithms/identities",
    ),
    Row(
        "(21), (22)",
        "inertia in another frame",
        tests="spatial/twists_and_inertias",
    ),
    Row(
        "(23), (24)",
        "momentum, and in another frame",
        tests="spatial/twists_and_inertias algorithms/identities",
    ),
    Row(
        "(25)–(29)",
        "rates of twists and wrenches in a moving frame",
        tests="spatial/twists_and_inertias",
    ),
    Row(
        "(30), (31)",
        "equations of motion of a body",
        tests="simulate/free_body screw/newton_euler",
        others="`rbd.screw.body_fixed_wrench`, and within Tables 2 to 4",
    ),
    Row(
        "(32), (33), Table 1",
        "inverse, forward and hybrid dynamics as maps",
        tests="algorithms/identities algorithms/pinocchio",
        others="`rbd.inverse_dynamics`, `rbd.forward_dynamics`, `rbd.hybrid_dynamics`",
    ),
    Row(
        "(34)–(36)",
        "poses and twists along the tree",
        tests="algorithms/kinematic_identities algorithms/pinocchio",
    ),
    Row(
        "(37)–(40)",
        "accelerations along the tree",
        tests="algorithms/kinematic_identities model/coordinates",
    ),
    Row(
        "(41), Table 2",
        "recursive inverse dynamics",
        tests="derivatives/kim algorithms/pinocchio algorithms/robots_by_hand",
    ),
    Row(
        "footnote 6",
        "motion of the base: gravity, V₀ and V̇₀",
        tests="algorithms/base_motion algorithms/identities",
        others="`rbd.rnea`, `rbd.aba` and `rbd.algorithms.hybrid_aba` with a base_motion",
    ),
    Row(
        "(42)–(49), Table 3",
        "recursive forward dynamics",
        tests="algorithms/pinocchio algorithms/identities",
    ),
    Row(
        "(50)–(52), Table 4",
        "recursive hybrid dynamics",
        tests="derivatives/kim derivatives/kim_driven algorithms/pinocchio",
    ),
    Row(
        "(53)–(60)",
        "derivatives of Ad and Ad*",
        tests="derivatives/kim derivatives/singh_identities",
        others="within Tables 5 to 7",
    ),
    Row(
        "(61)–(63)",
        "∂h, the twist of a placement that changes",
        tests="derivatives/kim model/joints",
    ),
    Row(
        "Table 5",
        "derivative of inverse dynamics along a scalar",
        tests="derivatives/kim derivatives/kim_driven derivatives/rules",
    ),
    Row(
        "Table 6",
        "derivative of forward dynamics along a scalar",
        tests="derivatives/kim derivatives/kim_driven",
    ),
    Row(
        "Table 7",
        "derivative of hybrid dynamics along a scalar",
        tests="derivatives/kim derivatives/kim_driven",
    ),
    Row(
        "(64)",
        "what has to be given",
        tests="derivatives/kim",
    ),
    Row(
        "§3.2",
        "what may be left out because it is zero",
        tests="derivatives/kim project/benchmarks",
        state=(
            "full: a quantity that is zero for all bodies is left out, and along one joint the "
            "recursions start at that joint. For the first and the last joint of a chain of 30, "
            "Table 5 then takes 13.4 and 2.9 thousand operations beyond those of Table 2, and "
            "Table 6 takes 18 and 37 beyond those of Table 3, because the articulated inertias of "
            "all bodies above the joint change. Along all coordinates at once it is 19 and 63 "
            "(`representations`)"
        ),
    ),
)

SINGH = (
    Row(
        "Fig. 1",
        "numbering of bodies",
        tests="model/topology",
        others="`model.Topology`, where parents come before their children",
    ),
    Row(
        "(1), (2), (4)",
        "inverse and forward dynamics",
        tests="algorithms/pinocchio algorithms/identities",
        others="`rbd.inverse_dynamics`, `rbd.forward_dynamics`",
    ),
    Row(
        "(3)",
        "forward dynamics by the inverse of the mass matrix",
        tests="algorithms/formulations",
    ),
    Row(
        "(5)",
        "derivatives of forward dynamics from those of inverse dynamics",
        tests="derivatives/pinocchio derivatives/rules_modes",
    ),
    Row(
        "(6), (7), (35)–(44), P1–P7",
        "spatial algebra",
        tests="spatial/twists_and_inertias",
        others="`rbd.spatial.motion`",
    ),
    Row(
        "(8)–(14)",
        "twists, accelerations and wrenches in ground coordinates",
        tests="algorithms/formulations algorithms/pinocchio",
        others="Algorithm 1, lines 3 to 10",
    ),
    Row(
        "(15)–(18), J1–J9, (45)–(81)",
        "derivatives of spatial quantities along a joint",
        tests="derivatives/singh_identities",
        others="Algorithm 1 follows from them; the test evaluates each",
    ),
    Row(
        "(19)–(27), (29), (82)–(117), (119)–(121), (123)–(131)",
        "derivatives of the terms of the equations of motion",
        tests="derivatives/pinocchio",
        others="Algorithm 1, whose sums they are",
    ),
    Row(
        "(28)",
        "the matrix B of a body",
        tests="derivatives/second_order screw/closed_form",
    ),
    Row(
        "(30)–(32), (118), (122), (132)",
        "∂τ/∂q and ∂τ/∂v in closed form",
        tests="derivatives/pinocchio derivatives/rules_modes",
        others="`rbd.inverse_dynamics_derivatives`",
    ),
    Row(
        "Algorithm 1",
        "IDSVA",
        tests="derivatives/pinocchio derivatives/rules_modes derivatives/kim",
    ),
    Row(
        "(33), (34)",
        "forward dynamics at rest, M⁻¹ b",
        tests="derivatives/linear_map model/coordinates",
    ),
    Row(
        "§IV-E",
        "FDSVA: a product with M⁻¹ (DMM) or a solution for each column (AZA), chosen by "
        "size and branching",
        tests="derivatives/explicit derivatives/pinocchio derivatives/long_chains",
        others="`rbd.forward_dynamics_derivatives`; the choice: `algorithms.formulations`",
    ),
    Row(
        "Table I",
        "ways to differentiate, compared",
        tests="project/benchmarks derivatives/long_chains",
        others=(
            "`python -m benchmarks singh` has one table of time and error for finite differences, "
            "the complex step, autodiff, and all forms of FDSVA, where the paper has words"
        ),
    ),
    Row(
        "Table II",
        "the algorithms that are compared",
        tests="project/benchmarks",
        state=(
            "full: Pinocchio 2.6.0 cannot be installed, so the algorithm before IDSVA is written "
            "here and checked, and compiled as IDSVA is. It takes 1.35 times as long for Talos "
            "(float64; 1.48 in float32; the paper has 1.4 with gcc and 1.2 with clang), 1.3 to 2.2 "
            "times for other robots, and 1.05 times for a chain of 100, where the paper has 2: "
            "there the gain is that of products of matrices, which lanes make in neither"
        ),
        others="`benchmarks/baselines.py`",
    ),
    Row(
        "Figs. 2, 3",
        "against chain rules; ground and body frames",
        tests="project/benchmarks",
        others="`python -m benchmarks figures`",
    ),
    Row(
        "Figs. 4, 6",
        "against Pinocchio, chains and trees",
        tests="project/benchmarks derivatives/explicit",
        state=(
            "partial: the paper is ahead of Pinocchio for every N. Here, in a batch of 1024, "
            "derivatives of forward dynamics are ahead for every N from 2 to 500 and every "
            "branching (1.3 to 7.5 times), and those of inverse dynamics from N = 2 to 100 (1.03 "
            "to 11 times), but not for N = 200 (0.6) and 500 (0.1 to 0.4). In a batch of 4, "
            "derivatives of forward dynamics are ahead from N = 20 on (1.3 to 3.9 times), and "
            "those of inverse dynamics for N = 20 and 50 (1.1 to 1.5 times; 0.6 to 0.9 for 100). "
            "Both are behind for N up to 10 (0.2 to 1.0), where a call itself costs more than "
            "Pinocchio's arithmetic: Pinocchio takes 19 and 23 µs for four chains of 2 and 5, and "
            "a program of JAX with the same arrays that computes nothing takes 98 and 88 µs. From "
            "N = 200 on dense results cost the time, 6 MB a sample for N = 500: without the zeros "
            "between branches (`derivatives.sparse_inverse_dynamics_derivatives`) trees of 500 "
            "are ahead of Pinocchio 4.9 and 6.0 times. Serial chains have no zeros (0.7). Page "
            "faults are half of the time of these trees (`benchmarks/README.md`)"
        ),
        others="`python -m benchmarks figures`",
    ),
    Row(
        "Fig. 5",
        "real robots",
        tests="project/benchmarks",
        others="`python -m benchmarks singh` and `python -m benchmarks pinocchio`",
    ),
    Row(
        "Fig. 7, Table III",
        "where AZA overtakes DMM",
        tests="project/benchmarks",
        state=(
            "full: AZA overtakes DMM at N = 268 on serial chains and at N = 88 and 35 with "
            "branching 2 and 5 (float64, batch 4), in float32 at N = 107, 22 and 10; the paper "
            "has 50 to 450, by compiler. AZA is O(n²) "
            "from 20 ancestors of a joint on, because its columns then go over the bodies, 130 "
            "operations for each body. Below, they go over the ancestors, 4 operations for each"
        ),
        others="`python -m benchmarks figures`",
    ),
    Row(
        "§V-A",
        "accuracy",
        tests="derivatives/long_chains",
        state=(
            "full, in norm: for a chain of 100, relative errors of matrices are 4e-14 by "
            '`method="aba"`, 5e-14 by ABACR, 2e-12 by AZA and 3e-12 by DMM; the paper states '
            "1e-13 and 1e-12. Entry by entry, entries that are small by cancellation have "
            "errors up to 1e-4 by ABACR too, because rounding q alone changes them by that "
            "much"
        ),
        others='`rbd.forward_dynamics_derivatives(…, method="aba")`, `benchmarks/singh.py`',
    ),
)

MUELLER = (
    Row(
        "(90), (94), (95)",
        "pose, Ad",
        tests="spatial/se3 spatial/twists_and_inertias",
        others=(
            "`spatial.se3`, `spatial.motion.to_parent`, `Ad_matrix`; in NumPy: "
            "`spatial.host.adjoint`"
        ),
    ),
    Row(
        "(91)",
        "joint frames: S exp(Z q) S⁻¹",
        tests="screw/poe",
        others="`from_joint_screws`, `joint_screws`",
    ),
    Row(
        "(92)",
        "product of exponentials, body-fixed screws",
        tests="screw/poe",
        others="`from_body_screws`, `body_screws`, `poses_by_body_screws`",
    ),
    Row(
        "(93), §4.4",
        "product of exponentials, spatial screws, A = 1",
        tests="screw/poe",
        others="`from_spatial_screws`, `spatial_screws`, `poses_by_spatial_screws`",
    ),
    Row(
        "(96), (118), (119)",
        "Ad_R, Ad_r, ad_ω, ad_r",
        tests="spatial/twists_and_inertias screw/representations",
        others="`spatial.motion.turn`, `.shift`; `hybrid.spin`, `.lever`",
    ),
    Row(
        "(97)",
        "twists of a pose",
        tests="screw/representations screw/poe",
        others="`twists`, tested against the rates of the poses",
    ),
    Row(
        "(98)–(100)",
        "conversions of twists",
        tests="screw/representations screw/poe",
        others="`convert_twist`",
    ),
    Row(
        "(101)–(106), (33)",
        "Jacobians",
        tests="screw/representations screw/poe",
        others="`jacobians`; of frames: `rbd.jacobian`",
    ),
    Row(
        "(107)",
        "screws in world axes",
        tests="screw/poe screw/closed_form",
        others="`hybrid.joint_screws`, `screw.spatial.joint_screws`",
    ),
    Row(
        "(108)–(110)",
        "recursions of twists",
        tests="screw/representations",
        others="`twists`",
    ),
    Row(
        "(111), (112)",
        "system Jacobian and its factors A X",
        tests="screw/closed_form",
        others="`system_jacobian`, `system_factors`",
    ),
    Row(
        "(113)–(116)",
        "Lie bracket",
        tests="spatial/twists_and_inertias",
        others="`spatial.motion.cross_twist`, `ad_matrix`",
    ),
    Row(
        "(117)",
        "Euler's formula for screws",
        tests="screw/torque_rates screw/first_order_systems",
        others="used in `body_fixed.motion`; derivatives of any order: `_series.in_moving_frame`",
    ),
    Row(
        "(120)",
        "wrenches",
        tests="spatial/twists_and_inertias",
        others="`spatial.motion.wrench_to_parent`, `wrench_to_child`",
    ),
    Row(
        "B.2",
        "screw of a line and a pitch, and back",
        tests="screw/lines",
        others="`screw_of_line`, `line_of_screw`",
    ),
    Row(
        "B.2",
        "reciprocal product",
        tests="screw/lines",
        others=(
            "`reciprocal_product`; the library's wrenches are (moment, force), so that the "
            "power is the plain inner product"
        ),
    ),
    Row(
        "(2)–(5), (7)",
        "partial derivatives, body-fixed",
        tests="screw/partials",
        others="`jacobian_partials(…, order=1)`",
    ),
    Row(
        "(6), (17), (28), (29)",
        "accelerations as sums",
        tests="screw/representations screw/misprints",
        others="`acceleration_sums`; O(n): `accelerations`",
    ),
    Row(
        "(8), (9), (10)",
        "rate of the system Jacobian, system acceleration",
        tests="screw/closed_form screw/jacobian_rates",
        others=(
            "`system_jacobian_rate`, `system.joint_twist_operators`; of all bodies: "
            "`jacobian_rates`"
        ),
    ),
    Row(
        "(11), Remark 3",
        "q̇ and q̈ from body-fixed twists and accelerations, (111) and [62] (26)",
        tests="screw/closed_form screw/first_order_systems",
        others="`joint_velocities`, `joint_accelerations`",
    ),
    Row(
        "(12), (20)",
        "second partial derivatives",
        tests="screw/partials",
        others="`jacobian_partials(…, order=2)`",
    ),
    Row(
        "(13), (21), (22), (31), (32)",
        "jerks as sums",
        tests="screw/representations screw/misprints",
        others="`jerk_sums`; O(n): `jerks`",
    ),
    Row(
        "(14), (23)",
        "partial derivatives of any order",
        tests="screw/partials",
        others="`jacobian_partials(…, order=ν)`",
    ),
    Row(
        "(15), (16)",
        "partial derivatives and rate, spatial",
        tests="screw/partials",
        others='`jacobian_partials(…, "spatial")`, `jacobian_rates(…, "spatial")`',
    ),
    Row(
        "(18), (19)",
        "system acceleration, spatial, and q̈ from spatial accelerations",
        tests="screw/closed_form screw/first_order_systems",
        others=(
            "`system.twist_operators`, written out in a test; `joint_accelerations(…, "
            "representation=)`"
        ),
    ),
    Row(
        "(24), (25)",
        "partial derivatives, hybrid; of any order (not in the paper)",
        tests="screw/partials",
        others='`jacobian_partials(…, "hybrid")`',
    ),
    Row(
        "(26), (27), (30)",
        "rates, hybrid",
        tests="screw/jacobian_rates screw/misprints",
        others='`jacobian_rates(…, "hybrid")`, `jacobian_second_rates(…, "hybrid")`',
    ),
    Row(
        "(33)",
        "mixed representation",
        tests="screw/representations",
        others="`mixed.of_hybrid`",
    ),
    Row(
        "(34), (40), (47), (51), (61), (64)",
        "inertia in other frames",
        tests="screw/newton_euler spatial/twists_and_inertias",
        others="`spatial.inertia.to_parent`, `matrix`, `from_com`",
    ),
    Row(
        "(35)–(38)",
        "spatial momentum, Newton–Euler",
        tests="screw/newton_euler screw/representations",
        others="`spatial_momenta`, `spatial_wrench`",
    ),
    Row(
        "Remark 2",
        "antisymmetry of Ṁˢ − 2Cˢ",
        tests="screw/closed_form",
        others="the test evaluates it",
    ),
    Row(
        "(39)–(46)",
        "body-fixed",
        tests="screw/newton_euler screw/representations",
        others="`body_fixed_wrench`",
    ),
    Row(
        "(48)–(55)",
        "hybrid",
        tests="screw/newton_euler screw/representations",
        others="`hybrid_wrench`",
    ),
    Row(
        "(56)–(58)",
        "mixed",
        tests="screw/newton_euler screw/representations",
        others="`mixed_wrench`",
    ),
    Row(
        "(59)–(64)",
        "in an arbitrary frame",
        tests="screw/newton_euler screw/representations",
        others="`wrench_in_frame`",
    ),
    Row(
        "(65)–(67)",
        "recursion, body-fixed",
        tests="screw/representations",
        others="`body_fixed.inverse_dynamics`",
    ),
    Row(
        "(68)–(71)",
        "recursion, spatial",
        tests="screw/representations",
        others="`screw.spatial.inverse_dynamics`",
    ),
    Row(
        "(72)–(76)",
        "recursion, hybrid",
        tests="screw/representations",
        others="`hybrid.inverse_dynamics`",
    ),
    Row(
        "–",
        "recursion, mixed (not in the paper)",
        tests="screw/representations",
        others="`mixed.inverse_dynamics`",
    ),
    Row(
        "§4, inverse dynamics",
        "one switch for the four recursions",
        tests="screw/representations",
        others="`inverse_dynamics(…, representation=)`",
    ),
    Row(
        "§4, forward dynamics",
        "the remarks on O(n) forward dynamics, in body-fixed, spatial, hybrid and mixed twists",
        tests="screw/first_order_systems",
        others="`forward_dynamics(…, representation=)`; fast: `rbd.aba`",
    ),
    Row(
        "§4, computational effort",
        "counts of transformations and brackets",
        tests="project/benchmarks",
        state=(
            "full: the calls are read from the program before the compiler. Per joint they are "
            "those of the paper: 3 transformations and 2 brackets (body-fixed); 1, 2 and one "
            "inertia (spatial); 6 translations and brackets, one rotation and one inertia "
            "(hybrid). The constants differ by up to 4, because the first body is treated as any "
            "other here. Mixed twists, which the paper does not count, take more rotations than "
            "the others"
        ),
        others="`python -m benchmarks representations`",
    ),
    Row(
        "§4.2",
        "rates of twists of any order by recursion: jerk, jounce, …",
        tests="screw/first_order_systems screw/representations",
        others="`twist_rates`, `jerks`",
    ),
    Row(
        "§2.2, [58]",
        "recursion for rates of spatial twists",
        tests="screw/first_order_systems screw/representations",
        others=(
            '`twist_rates(…, "spatial")`; a loop of bodies stays closed to any order where the '
            "rates of the two bodies at its cut are equal"
        ),
    ),
    Row(
        "(77), (78)",
        "Euler–Jourdain (projection, Kane) equations",
        tests="screw/closed_form",
        others="`euler_jourdain_torque`",
    ),
    Row(
        "(79)",
        "momentum form, solved by its block-triangular structure in O(n)",
        tests="screw/closed_form screw/first_order_systems",
        others=(
            "`spatial_momenta`, `spatial_momentum_rates`, `torque_of_momentum_rates`, "
            "`velocity_of_momenta`"
        ),
    ),
    Row(
        "(79)",
        "as a system in (q, Π), O(n)",
        tests="screw/phase_space screw/first_order_systems",
        others="`phase_rates`",
    ),
    Row(
        "§5.1",
        "(78) with (111) as a system in (q, Vᵇ), and the O(n) solution that follows from "
        "the block-triangular Jacobian",
        tests="screw/first_order_systems",
        others="`body_twist_rates`, `screw.articulated`",
    ),
    Row(
        "(1), (80), (81)",
        "Lagrange equations, mass matrix",
        tests="screw/closed_form",
        others="`lagrange_mass_matrix`",
    ),
    Row(
        "(82)–(84)",
        "Coriolis matrix",
        tests="screw/closed_form",
        others="`lagrange_coriolis_matrix`, `system.twist_operators`",
    ),
    Row(
        "(85), (86)",
        "Christoffel symbols by brackets",
        tests="screw/closed_form screw/misprints",
        others="`christoffel_by_brackets`; fast: `rbd.christoffel`",
    ),
    Row(
        "(87)",
        "with Binet's inertia",
        tests="screw/closed_form screw/misprints",
        others="`christoffel_by_binet`",
    ),
    Row(
        "§6",
        "linearity in the dynamic parameters, `τ = Y π`",
        tests="algorithms/regressors",
        others="`rbd.algorithms.joint_torque_regressor`; of a body: `spatial.inertia.regressor`",
    ),
    Row(
        "–",
        "the same of momenta and energies (not in the paper)",
        tests="algorithms/regressors",
        others=(
            "`rbd.algorithms.momentum_regressor`, `rbd.algorithms.kinetic_energy_regressor`, "
            "`rbd.algorithms.potential_energy_regressor`"
        ),
    ),
    Row(
        "§6.1",
        "derivatives (12), (20), (25) of the Jacobians",
        tests="screw/partials",
        others="`jacobian_partials`",
    ),
    Row(
        "§6.1",
        "linearized equations",
        tests="screw/sensitivity",
        others=(
            "`linearized_equations` (a `LinearizedEquations`); solved for the rates of the "
            "state: `linearized_dynamics`; of one step: `rbd.simulate.step_derivatives`"
        ),
    ),
    Row(
        "§6.1",
        "recursive gradients",
        tests="derivatives/rules",
        others=(
            "the derivatives of `rbd.inverse_dynamics`; as matrices: "
            "`rbd.inverse_dynamics_derivatives`"
        ),
    ),
    Row(
        "§6.1",
        "partial derivatives of M⁻¹",
        tests="screw/partials",
        others="`rbd.derivatives.forward_dynamics_second_derivatives`, its field uq",
    ),
    Row(
        "§6.2",
        "`B_i(π)`, products of exponentials",
        tests="screw/sensitivity",
        others="`Geometry`, `with_geometry`",
    ),
    Row(
        "§6.2",
        "sensitivity of a frame",
        tests="screw/sensitivity",
        others="`frame_sensitivity`",
    ),
    Row(
        "§6.2",
        "sensitivity of the dynamics",
        tests="screw/sensitivity",
        others="`inverse_dynamics_sensitivity`, `forward_dynamics_sensitivity`",
    ),
    Row(
        "§6.2",
        "calibration",
        tests="screw/sensitivity",
        others="`with_geometry`, an example in the test",
    ),
    Row(
        "§6.3",
        "time derivatives of (66), (67)",
        tests="screw/torque_rates",
        others="`inverse_dynamics_rates`, any order",
    ),
    Row(
        "§6.3",
        "time derivatives of (75), (76)",
        tests="screw/torque_rates",
        others='`inverse_dynamics_rates(…, representation="hybrid")`',
    ),
    Row(
        "§6.3",
        "flatness of series-elastic robots",
        tests="screw/torque_rates",
        others="`series_elastic_feedforward`",
    ),
    Row(
        "§6.3",
        "feedback linearization of series-elastic robots, with rigid joints among elastic"
        " ones [26]",
        tests="screw/torque_rates",
        others="`series_elastic_feedback`",
    ),
    Row(
        "§6.3, [68]",
        "stiffness that varies",
        tests="screw/torque_rates",
        others=(
            "`series_elastic_feedforward` and `series_elastic_feedback` with stiffness of "
            "three rows"
        ),
    ),
    Row(
        "§6.3",
        "rates of forward dynamics: from τ, τ̇, … to acceleration, jerk, …",
        tests="screw/first_order_systems",
        others="`forward_dynamics_rates`",
    ),
    Row(
        "(88), body-fixed",
        "kinematic reconstruction",
        tests="model/joints simulate/geometric_integrators",
        others="`rbd.rate_from_velocity`; on the group: `rbd.integrate`, `simulate.free_body_step`",
    ),
    Row(
        "(88), spatial",
        "the same from spatial twists",
        tests="screw/first_order_systems simulate/free_body",
        others=(
            'q̇ of a robot: `joint_velocities(…, "spatial")` and `rbd.rate_from_velocity`; a '
            "free body: `simulate.free_body_step`"
        ),
    ),
    Row(
        "(89), body-fixed",
        "dexp_{−X} and its inverse",
        tests="simulate/geometric_integrators spatial/se3",
        others=(
            "`model.chart_velocity`, `model.chart_rate`, `spatial.se3.right_jacobian`, "
            "`right_jacobian_inverse`"
        ),
    ),
    Row(
        "(89), spatial",
        "dexp_X and its inverse, for the twist of the increment ΔC",
        tests="simulate/geometric_integrators spatial/se3",
        others="`spatial.se3.left_jacobian`, `left_jacobian_inverse`",
    ),
    Row(
        "(89)",
        "Munthe-Kaas schemes",
        tests="simulate/geometric_integrators",
        others=(
            "`rbd.simulate.munthe_kaas`, `simulate.Tableau`, `simulate.TABLEAUS`, "
            "`rbd.simulate.rk4`"
        ),
    ),
    Row(
        "(88) with (41)",
        "free body by its velocity",
        tests="simulate/free_body",
        others="the same, of a robot with a free joint",
    ),
    Row(
        "(88) with (38)",
        "free body in absolute coordinates",
        tests="simulate/free_body",
        others=(
            "by (35), (36): `simulate.FreeBody`, `free_body_at`, `free_body_twist`, "
            "`free_body_step`, `free_body_path`"
        ),
    ),
    Row(
        "§7, [82]",
        "systems in absolute coordinates",
        state=(
            "absent: robots are trees in joint coordinates, which need no constraints for "
            "their joints. For a chain of n hinges the absolute coordinates are 7n numbers "
            "with 6n − n multipliers, instead of n numbers"
        ),
        others="`rbd.constraints` for constraints between bodies",
    ),
    Row(
        "§7, [18]",
        "generalized-α",
        tests="simulate/generalized_alpha",
        others=(
            "`rbd.simulate.GeneralizedAlpha`; constraints enter by the accelerations that "
            "they leave, with projection or Baumgarte's terms"
        ),
    ),
    Row(
        "§7, [42]",
        "explicit Newmark/Verlet of a rotation",
        tests="simulate/free_flight simulate/geometric_integrators",
        state=(
            "absent: the scheme itself is of another text than the five, for a single "
            "rotation. The schemes here have its order and also take trees"
        ),
        others=(
            "other explicit schemes on the group: `rbd.simulate.semi_implicit_euler`, "
            "`rbd.simulate.munthe_kaas`"
        ),
    ),
    Row(
        "§7, [59], [60]",
        "SE(3) instead of SO(3) × ℝ³",
        tests="simulate/free_flight",
        others="`rbd.integrate`, `rbd.difference` of a free joint",
    ),
    Row(
        "§7, [83]",
        "momentum-preserving schemes",
        tests="simulate/geometric_integrators simulate/heavy_top",
        state=(
            "partial: other schemes than in [83], which is for a single rotation. Those here "
            "keep the momentum of a free robot to rounding, as their tests measure"
        ),
        others=(
            "`simulate.momentum_munthe_kaas`, `simulate.variational`; the conserved momentum:"
            " `rbd.algorithms.spatial_momentum`"
        ),
    ),
    Row(
        "§7, [32], [79], [80]",
        "beams",
        state=(
            "absent: bodies are rigid. The paper names these works in one sentence and has no"
            " equation of them"
        ),
        others="–",
    ),
    Row(
        "§8",
        "spatial momentum balance in the integration",
        tests="simulate/geometric_integrators",
        others=(
            "`simulate.momentum_munthe_kaas`, with `algorithms.momentum.kinetic_gradients` "
            "and `model.coadjoint`"
        ),
    ),
    Row(
        "§8, [66]",
        "O(n) dynamics in canonical momenta, in the spatial representation that §8 proposes",
        tests="screw/first_order_systems",
        others="`canonical_momenta`, `canonical_rates`",
    ),
    Row(
        "–",
        "others (not in the paper)",
        tests="simulate/integrators",
        others=(
            "`rbd.simulate.semi_implicit_euler`; adaptive, in ambient coordinates: "
            "`simulate.adaptive_rollout` (`AdaptiveTrajectory`, `ControlledRobot`, "
            "`VectorField`)"
        ),
    ),
)

VLASBLOM = (
    Row(
        "Fig. 2.1",
        "a chain of revolute joints",
        tests="screw/closed_form",
        others="any robot of revolute joints, as `rbd.samples.chain`",
    ),
    Row(
        "(1.1)–(1.3), (2.1)–(2.4)",
        "coordinates, poses",
        tests="screw/closed_form",
        others="`rbd.forward_kinematics`",
    ),
    Row(
        "(1.4)–(1.8)",
        "twists",
        tests="screw/closed_form",
        others="`twists`",
    ),
    Row(
        "(1.9)–(1.11), (2.5)–(2.8)",
        "body Jacobians",
        tests="screw/closed_form",
        others="`vlasblom.body_jacobians`",
    ),
    Row(
        "(2.9), (2.13), (2.14)",
        "Jacobians at the centers of mass",
        tests="screw/closed_form",
        others="`vlasblom.com_jacobians`",
    ),
    Row(
        "(2.10)–(2.12), (2.15), (2.16)",
        "analytic Jacobians",
        tests="screw/closed_form",
        others="`vlasblom.analytic_jacobians`",
    ),
    Row(
        "(1.12), (2.17)–(2.19)",
        "mass matrix",
        tests="screw/closed_form",
        others="`vlasblom.mass_matrix`",
    ),
    Row(
        "(1.13), (2.20), (2.21)",
        "∂J/∂q",
        tests="screw/closed_form",
        others="`vlasblom.body_jacobian_partials`",
    ),
    Row(
        "(1.14), (2.22)",
        "∂M/∂q",
        tests="screw/closed_form",
        others="`vlasblom.mass_matrix_partials`",
    ),
    Row(
        "(1.15)",
        "Christoffel symbols",
        tests="screw/closed_form",
        others="`vlasblom.christoffel`",
    ),
    Row(
        "(1.16)",
        "Coriolis matrix",
        tests="screw/closed_form",
        others="`vlasblom.coriolis_matrix`",
    ),
    Row(
        "(1.17), (2.23), (2.24)",
        "gravity",
        tests="screw/closed_form",
        others="`vlasblom.gravity_wrench`",
    ),
)

NOTES = (
    Row(
        "§1.1, §1.2, §2.2",
        "poses, twists, wrenches",
        tests="spatial/twists_and_inertias",
        others="`spatial.se3`, `spatial.motion`",
    ),
    Row(
        "§1.3, §2.1",
        "home poses M, screws S and A",
        tests="screw/poe",
        others="`from_modern_robotics`, `to_modern_robotics`, `spatial_screws`, `body_screws`",
    ),
    Row(
        "§3, appendix",
        "Ad, ad, adᵀ, identities",
        tests="spatial/twists_and_inertias",
        others="`spatial.motion`; the identities are tested",
    ),
    Row(
        "§4",
        "compact recursion",
        tests="screw/representations",
        others="`body_fixed.inverse_dynamics`",
    ),
    Row(
        "§5–§7",
        "component form, frames at the centers of mass",
        tests="screw/notes",
        others="`component_inverse_dynamics`",
    ),
    Row(
        "§8–§10",
        "two-link robot, expanded",
        tests="screw/notes",
        others="`component_inverse_dynamics`",
    ),
    Row(
        "§8.1",
        "motion of the base: V₀, V̇₀, ω₀",
        tests="algorithms/base_motion",
        others="`component_inverse_dynamics`, `rbd.rnea` and `rbd.aba` with a base_motion",
    ),
    Row(
        "§11",
        "symmetry, Ṁ = C + Cᵀ, passivity",
        tests="screw/closed_form",
        others="`lagrange_coriolis_matrix`, `rbd.coriolis_matrix`",
    ),
)
