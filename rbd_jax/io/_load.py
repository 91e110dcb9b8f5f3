"""``load_urdf``: from a file to a model."""

from typing import Literal, get_args

import jax

from ..model import Model, RobotDescriptionError, with_mimics
from ._build import build_model, collect_bodies
from ._diagnose import diagnose, strongly_damped
from ._urdf import read_urdf, shorten, warn
from ._xml import Source

Mimic = Literal["constrain", "independent", "error"]


def load_urdf(
    source: Source,
    floating_base: bool = False,
    dtype=None,
    *,
    gravity: tuple[float, float, float] = (0.0, 0.0, -9.81),
    mimic: Mimic = "constrain",
) -> Model:
    """Load a robot from a URDF.

    Body i is moved by joint i. Joints are numbered depth first, in document order at each link;
    ``model.q_slice(name)`` finds them by name. Every link is a frame. Meshes are never opened.
    :func:`rbd_jax.io.read_urdf` says how the ambiguities of URDF are read.

    Warnings (:class:`rbd_jax.RobotDescriptionWarning`, at most one of each kind) name the links
    whose merged inertia no body can have, the joints that make the mass matrix singular in every
    configuration, the hinges that do so where their axes lie in one plane, the joints whose
    damping makes explicit integration unstable at steps of 2 ms, and whatever was not read
    literally. Nothing is repaired.

    Args:
        source: path of a URDF, an XML string, bytes, or an open file.
        floating_base: put a free joint named ``root_joint`` between the world and the root link.
        dtype: of the model's arrays; JAX's default float if None.
        gravity: gravitational acceleration in the world frame (m/s²).
        mimic: what to do with joints that mimic another one. With ``"constrain"`` they follow it
            exactly, and q and v are those of the other joints
            (:func:`rbd_jax.model.with_mimics`); ``model.robot`` is the robot without these
            constraints. ``"independent"`` ignores the elements and keeps the joints as degrees of
            freedom. ``"error"`` refuses such a robot.

    Raises:
        RobotDescriptionError: for anything that is not one tree of known joints. The message has
            the file, line and element, what is wrong and what to do.
        ValueError: for an unknown ``mimic``.
    """
    if mimic not in get_args(Mimic):
        raise ValueError(f"mimic is {mimic!r}; choose one of {get_args(Mimic)}")
    spec = read_urdf(source)
    names = [j.name for j in spec.joints if j.mimic is not None]
    if names and mimic == "error":
        raise RobotDescriptionError(
            f"robot {spec.name!r}: joints that mimic another: {shorten(names)}; load with "
            "mimic='constrain' or mimic='independent', or remove the <mimic> elements"
        )
    bodies = collect_bodies(spec, floating_base)
    for what, found in diagnose(spec, bodies).items():
        warn(f"robot {spec.name!r}", f"{what}: {shorten(found)}")
    model = build_model(spec, floating_base=floating_base, dtype=dtype, gravity=gravity)
    if mimic == "constrain":
        with jax.ensure_compile_time_eval():  # as in build_model
            model = with_mimics(model)
    for what, found in strongly_damped(bodies, mimic == "constrain").items():
        warn(f"robot {spec.name!r}", f"{what}: {shorten(found)}")
    return model
