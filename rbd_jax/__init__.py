"""rbd_jax: differentiable rigid-body dynamics for JAX. ``import rbd_jax as rbd``.

What is needed first stands here. Everything else is in the rooms: ``rbd.spatial``, ``rbd.model``,
``rbd.io``, ``rbd.algorithms``, ``rbd.derivatives``, ``rbd.constraints``, ``rbd.contact``,
``rbd.screw``, ``rbd.simulate``, ``rbd.control``, ``rbd.optimize``, ``rbd.identify``,
``rbd.learn`` and ``rbd.tasks``.
"""

import importlib as _importlib
import sys as _sys
from types import ModuleType as _ModuleType
from typing import TYPE_CHECKING as _TYPE_CHECKING

from ._version import __version__ as __version__

if _TYPE_CHECKING:
    from . import (
        algorithms as algorithms,
        constraints as constraints,
        contact as contact,
        control as control,
        derivatives as derivatives,
        identify as identify,
        io as io,
        learn as learn,
        model as model,
        optimize as optimize,
        screw as screw,
        simulate as simulate,
        spatial as spatial,
        tasks as tasks,
    )
    from .algorithms.aba import aba as aba, hybrid_aba as hybrid_aba
    from .algorithms.crba import crba as crba, mass_matrix as mass_matrix
    from .algorithms.energy import (
        center_of_mass as center_of_mass,
        centroidal_momentum as centroidal_momentum,
        kinetic_energy as kinetic_energy,
        potential_energy as potential_energy,
        total_mass as total_mass,
    )
    from .algorithms.jacobians import frame_velocity as frame_velocity, jacobian as jacobian
    from .algorithms.kinematics import (
        forward_kinematics as forward_kinematics,
        frame_placement as frame_placement,
    )
    from .algorithms.rnea import rnea as rnea
    from .algorithms.torques import bias_torque as bias_torque, gravity_torque as gravity_torque
    from .constraints import (
        constrained_dynamics as constrained_dynamics,
        constrained_dynamics_derivatives as constrained_dynamics_derivatives,
        impact as impact,
    )
    from .contact import load_mjcf as load_mjcf
    from .derivatives.custom_jvp.forward_dynamics import (
        forward_dynamics as forward_dynamics,
        hybrid_dynamics as hybrid_dynamics,
        mass_matrix_inverse as mass_matrix_inverse,
    )
    from .derivatives.custom_jvp.inverse_dynamics import inverse_dynamics as inverse_dynamics
    from .derivatives.explicit.coriolis import (
        christoffel as christoffel,
        coriolis_matrix as coriolis_matrix,
    )
    from .derivatives.explicit.fdsva import (
        forward_dynamics_derivatives as forward_dynamics_derivatives,
    )
    from .derivatives.explicit.idsva import (
        inverse_dynamics_derivatives as inverse_dynamics_derivatives,
    )
    from .io import (
        build_model as build_model,
        convert as convert,
        example_robot as example_robot,
        example_robots as example_robots,
        export_urdf as export_urdf,
        load_example_robot as load_example_robot,
        load_urdf as load_urdf,
        samples as samples,
    )
    from .lanes import LanesWarning as LanesWarning, lanes as lanes
    from .model import (
        CoordinateModel as CoordinateModel,
        JointSpec as JointSpec,
        LinkSpec as LinkSpec,
        Model as Model,
        RobotDescriptionError as RobotDescriptionError,
        RobotDescriptionWarning as RobotDescriptionWarning,
        RobotSpec as RobotSpec,
        difference as difference,
        integrate as integrate,
        neutral as neutral,
        random_configuration as random_configuration,
        rate_from_velocity as rate_from_velocity,
        velocity_from_rate as velocity_from_rate,
        with_coordinates as with_coordinates,
    )
    from .simulate import rollout as rollout, step as step
    from .view import film as film, render as render, view as view

_ROOMS = (
    "algorithms",
    "constraints",
    "contact",
    "control",
    "derivatives",
    "identify",
    "io",
    "learn",
    "model",
    "optimize",
    "screw",
    "simulate",
    "spatial",
    "tasks",
)
_HOMES = {
    ".algorithms.aba": "aba hybrid_aba",
    ".algorithms.crba": "crba mass_matrix",
    ".algorithms.energy":
        "center_of_mass centroidal_momentum kinetic_energy potential_energy total_mass",
    ".algorithms.jacobians": "frame_velocity jacobian",
    ".algorithms.kinematics": "forward_kinematics frame_placement",
    ".algorithms.rnea": "rnea",
    ".algorithms.torques": "bias_torque gravity_torque",
    ".constraints": "constrained_dynamics constrained_dynamics_derivatives impact",
    ".contact": "load_mjcf",
    ".derivatives.custom_jvp.forward_dynamics":
        "forward_dynamics hybrid_dynamics mass_matrix_inverse",
    ".derivatives.custom_jvp.inverse_dynamics": "inverse_dynamics",
    ".derivatives.explicit.coriolis": "christoffel coriolis_matrix",
    ".derivatives.explicit.fdsva": "forward_dynamics_derivatives",
    ".derivatives.explicit.idsva": "inverse_dynamics_derivatives",
    ".io":
        "build_model convert example_robot example_robots export_urdf load_example_robot load_urdf "
        "samples",
    ".lanes": "LanesWarning lanes",
    ".model":
        "CoordinateModel JointSpec LinkSpec Model RobotDescriptionError "
        "RobotDescriptionWarning RobotSpec difference integrate neutral "
        "random_configuration rate_from_velocity velocity_from_rate with_coordinates",
    ".simulate": "rollout step",
    ".view": "film render view",
}  # fmt: skip
"""Where the names of the top level come from; a test compares them with the imports above."""

_HOME = {name: home for home, names in _HOMES.items() for name in names.split()}


def __getattr__(name: str):
    """Import a name when it is first used, so that the import of the package is quick."""
    if name in _HOME:
        value = getattr(_importlib.import_module(_HOME[name], __name__), name)
    elif name in _ROOMS:
        value = _importlib.import_module(f".{name}", __name__)
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """All names, those that are imported later among them."""
    return sorted({*globals(), *_ROOMS, *_HOME})


class _Package(_ModuleType):
    """The package, in which ``lanes`` and ``view`` are functions although they are rooms too."""

    def __setattr__(self, name: str, value) -> None:
        """Python sets a room as an attribute when it is imported; the function takes its place."""
        if name in _HOME and isinstance(value, _ModuleType):
            value = getattr(value, name)
        super().__setattr__(name, value)


_sys.modules[__name__].__class__ = _Package
