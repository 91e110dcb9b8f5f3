"""Identification of parameters, and of dynamics that rigid bodies lack, from recorded motions."""

# The folders from the ground up: data, parameters, linear, fits, neural.
from ._progress import Progress as Progress
from .data._dataset import Dataset as Dataset
from .data._excitation import Excitation as Excitation, excitation as excitation
from .data._files import (
    load_csv as load_csv,
    load_npz as load_npz,
    save_csv as save_csv,
    save_npz as save_npz,
)
from .data._filter import filter_and_differentiate as filter_and_differentiate
from .data._units import implausible as implausible, resampled as resampled, uneven as uneven
from .fits._estimates import (
    Quantities as Quantities,
    fit_estimate as fit_estimate,
    quantities as quantities,
)
from .fits._plants import PlantFit as PlantFit, fit_plant as fit_plant
from .fits._samples import (
    acceleration_error as acceleration_error,
    fit_accelerations as fit_accelerations,
    fit_torques as fit_torques,
    predicted_accelerations as predicted_accelerations,
    predicted_torques as predicted_torques,
    torque_error as torque_error,
)
from .fits._solve import Fit as Fit
from .fits._trajectories import TrajectoryFit as TrajectoryFit, fit_trajectories as fit_trajectories
from .fits._windows import simulated as simulated
from .linear._base import (
    BaseParameters as BaseParameters,
    Estimate as Estimate,
    least_squares as least_squares,
    numerical_base_parameters as numerical_base_parameters,
)
from .linear._design import (
    information as information,
    optimal_excitation as optimal_excitation,
)
from .linear._records import (
    RecordEstimate as RecordEstimate,
    estimate_from_record as estimate_from_record,
    selected_base as selected_base,
)
from .linear._regressors import (
    TERMS as TERMS,
    friction_torque as friction_torque,
    linear_parameters as linear_parameters,
    parameter_names as parameter_names,
    regression as regression,
    torque_regressor as torque_regressor,
    with_linear_parameters as with_linear_parameters,
)
from .linear._structure import base_parameters as base_parameters
from .neural._dynamics import (
    DrivenDynamics as DrivenDynamics,
    Dynamics as Dynamics,
    Stepper as Stepper,
)
from .neural._hamiltonian import Hamiltonian as Hamiltonian
from .neural._learned import (
    PARTS as PARTS,
    LearnedDynamics as LearnedDynamics,
    learned_dynamics as learned_dynamics,
)
from .neural._networks import (
    Network as Network,
    Scaling as Scaling,
    Sizes as Sizes,
    features as features,
    residual_torques as residual_torques,
    scaling_of as scaling_of,
    unit_scaling as unit_scaling,
)
from .neural._terms import (
    Friction as Friction,
    MassMatrix as MassMatrix,
    Potential as Potential,
    StateNetwork as StateNetwork,
)
from .neural._training import (
    AccelerationLoss as AccelerationLoss,
    ResidualLoss as ResidualLoss,
    RolloutLoss as RolloutLoss,
    TorqueLoss as TorqueLoss,
    train as train,
    trainable as trainable,
)
from .parameters._charts import (
    Bounded as Bounded,
    Direction as Direction,
    InEllipsoid as InEllipsoid,
    LogCholesky as LogCholesky,
    PoseChart as PoseChart,
    Positive as Positive,
    Real as Real,
)
from .parameters._parameters import Block as Block, Parameters as Parameters, select as select
from .parameters._physical import (
    Ellipsoid as Ellipsoid,
    consistent as consistent,
    entropic_distance as entropic_distance,
    made_consistent as made_consistent,
)
