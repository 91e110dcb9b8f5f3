"""``load_urdf``: from a file to a model."""

from typing import Literal

from ..model import Model, RobotDescriptionError, RobotSpec
from ._build import build_model, collect_bodies
from ._diagnose import diagnose
from ._urdf import read_urdf, shorten, warn
from ._xml import Source

Mimic = Literal["independent", "ignore", "error"]


def load_urdf(
    source: Source,
    floating_base: bool = False,
    dtype=None,
    *,
    gravity: tuple[float, float, float] = (0.0, 0.0, -9.81),
    mimic: Mimic = "independent",
) -> Model:
    """Load a robot from a URDF.

    Body i is moved by joint i; joints are numbered depth first, in document order at each link, so
    find them by name with ``model.q_slice(name)``. Every link is a frame. Meshes are never opened.
    How the many ambiguities of URDF are read is told by :func:`rbd_jax.io.read_urdf`.

    Warnings (:class:`rbd_jax.RobotDescriptionWarning`, at most one of each kind) name the links
    whose merged inertia no body can have, the joints that make the mass matrix singular in every
    configuration, and what was read against the letter of the file. Nothing is repaired.

    Args:
        source: path of a URDF, an XML string, bytes, or an open file.
        floating_base: put a free joint named ``root_joint`` between the world and the root link.
        dtype: of the model's arrays; JAX's default float if None.
        gravity: gravitational acceleration in the world frame (m/s²).
        mimic: joints that mimic another one are kept as independent degrees of freedom, either
            with a warning that names them ("independent") or without ("ignore"), or refused
            ("error"). :func:`rbd_jax.model.mimic_map` gives the constraint.

    Raises:
        RobotDescriptionError: for anything that is not one tree of known joints, with file, line,
            element, what is wrong and what to do.
    """
    if mimic not in ("independent", "ignore", "error"):
        raise ValueError(f"mimic is {mimic!r}; choose 'independent', 'ignore' or 'error'")
    spec = read_urdf(source)
    _judge_mimics(spec, mimic)
    for what, names in diagnose(spec, collect_bodies(spec, floating_base)).items():
        warn(f"robot {spec.name!r}", f"{what}: {shorten(names)}")
    return build_model(spec, floating_base=floating_base, dtype=dtype, gravity=gravity)


def _judge_mimics(spec: RobotSpec, mimic: Mimic) -> None:
    names = [j.name for j in spec.joints if j.mimic is not None]
    if not names or mimic == "ignore":
        return
    text = f"joints that mimic another: {shorten(names)}"
    if mimic == "error":
        raise RobotDescriptionError(
            f"robot {spec.name!r}: {text}; load with mimic='independent' and use mimic_map, or "
            "remove the <mimic> elements"
        )
    warn(
        f"robot {spec.name!r}",
        f"{text}; they are kept as independent degrees of freedom. "
        "rbd_jax.model.mimic_map(model) gives the constraint; mimic='ignore' silences this warning",
    )
