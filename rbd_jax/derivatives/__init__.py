"""Exact derivatives: IDSVA, FDSVA, Kim's tables, second order, and all rules of the library."""

from .custom_jvp.forward_dynamics import (
    mass_matrix_product as mass_matrix_product,
    mass_matrix_solve as mass_matrix_solve,
)
from .explicit.fdsva import ForwardDynamicsDerivatives as ForwardDynamicsDerivatives
from .explicit.idsva import (
    InverseDynamicsDerivatives as InverseDynamicsDerivatives,
    TorqueDerivativeEntries as TorqueDerivativeEntries,
    sparse_inverse_dynamics_derivatives as sparse_inverse_dynamics_derivatives,
)
from .explicit.second_order import (
    Hessian as Hessian,
    SecondDerivatives as SecondDerivatives,
    forward_dynamics_hessian as forward_dynamics_hessian,
    forward_dynamics_second_derivatives as forward_dynamics_second_derivatives,
    inverse_dynamics_hessian as inverse_dynamics_hessian,
    inverse_dynamics_second_derivatives as inverse_dynamics_second_derivatives,
    mass_matrix_derivative as mass_matrix_derivative,
)
from .kim.perturbation import (
    JointPerturbation as JointPerturbation,
    Perturbation as Perturbation,
    ValueAndDerivative as ValueAndDerivative,
    perturbation_of as perturbation_of,
)
from .kim.table5 import kim_inverse_dynamics_derivative as kim_inverse_dynamics_derivative
from .kim.tables6_7 import (
    kim_forward_dynamics_derivative as kim_forward_dynamics_derivative,
    kim_hybrid_dynamics_derivative as kim_hybrid_dynamics_derivative,
)
