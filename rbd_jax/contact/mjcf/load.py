"""Loads scenes from MJCF: MuJoCo compiles the file, this room converts it. Extra ``mjcf``."""

import os
import warnings
from collections.abc import Collection
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp

from ...algorithms.passive import without_springs
from ...io import Layout, convert
from ...io.mjcf import mujoco, name_of, read_mjcf, robot_of
from ...model import Model, RobotDescriptionError, RobotDescriptionWarning
from ..collision.many import CONVEX_PAIRS
from ..collision.support import CONVEX
from ..constraints import Constraints
from ..scene import Keyframe, Scene
from .geom_pairs import GeomPair, geom_pairs
from .read_actuators import activations_of, actuators_of, first_of, kept_actuators
from .read_contacts import contacts_of, met_pairs
from .read_equalities import equalities_of
from .read_joints import free_friction_of, joints_of
from .read_mocap import mocap_of
from .read_noslip import noslip_of
from .read_passive import fluid_of, gravcomp_of
from .read_sensors import left_out, sensors_of
from .read_tendons import tendons_of
from .reader import Reader
from .unsupported import FEATURES, SHAPES, unsupported

Drop = Collection[str] | str
_KINDS = dict(enumerate(CONVEX, start=2))
"""The convex kinds by MuJoCo's numbers."""
_REMEDY = (
    " (all shapes may meet but signed distance fields and meshes without a hull; an "
    "<exclude> or contype and conaffinity keep shapes apart)"
)


def load_mjcf(
    source: str | os.PathLike, dtype=None, *, drop: Drop = (), drop_meshes: bool = False
) -> Scene:
    """Load a scene from MJCF: robot, actuators, contacts, keyframes, time step and options.

    Source: MuJoCo compiles the file, so that defaults, includes and inferred inertias are its own.
    All robots of the file are one model; its q is MuJoCo's ``qpos``. Sites are frames.

    Args:
        source: path of an MJCF file, or a string that holds the XML.
        dtype: of the arrays; JAX's default float if None.
        drop: features that may be left out although the motion then differs, with a warning that
            names them: one name or several, or ``"all"`` for any. The error of a file that needs
            some says which ones.
        drop_meshes: leave out mesh geoms before compiling, for files whose meshes are absent.

    Raises:
        RobotDescriptionError: if MuJoCo refuses the file, or for what is not supported.
        ValueError: if ``drop`` names a feature that does not exist.
        ImportError: without mujoco.
    """
    spec, compiled = read_mjcf(source, drop_meshes)
    return scene_of(compiled, dtype, drop=drop, spec=spec)


def scene_of(mj_model: Any, dtype=None, *, drop: Drop = (), spec: Any = None) -> Scene:
    """The scene of a loaded ``mujoco.MjModel``. Arguments and errors as :func:`load_mjcf`.

    Args:
        mj_model: the compiled model.
        dtype: of the arrays. drop: features that may be left out.
        spec: the ``mujoco.MjSpec`` of which the model was compiled. It tells which numbers MuJoCo
            derived from the robot: the damping of servos with a ``dampratio``, which is a number
            of the model without it, and the pose of welds.
    """
    mj = mujoco()
    drop = _wanted(drop)
    found, met = flaws(mj_model, mj)
    refused = {k: v for k, v in found.items() if k not in drop}
    if refused:
        text = "; ".join(f"{k}: {_short(v)}" for k, v in refused.items())
        remedy = _REMEDY if SHAPES in refused else ""
        effects = dict.fromkeys(FEATURES[k] for k in refused)
        raise RobotDescriptionError(
            f"load_mjcf: not supported: {text}. Change the file{remedy}, or leave "
            f"them out with drop={tuple(refused)!r}: then {', '.join(effects)}"
        )
    if found:
        text = "; ".join(f"{k}: {_short(v)} ({FEATURES[k]})" for k, v in found.items())
        warnings.warn(f"load_mjcf: left out: {text}", RobotDescriptionWarning, stacklevel=3)
    deaf = left_out(mj_model, mj)
    if deaf:
        warnings.warn(
            f"load_mjcf: sensors that are not supported, and missing in scene.sensors: "
            f"{_short(deaf)}; the motion is not affected",
            RobotDescriptionWarning,
            stacklevel=3,
        )
    with jax.ensure_compile_time_eval():  # numbers within jax.jit too: such a scene may be kept
        model, bodies = robot_of(mj_model, dtype)
        return _scene(Reader(mj_model, mj, spec, model, bodies, met))


def flaws(m: Any, mj: Any) -> tuple[dict[str, list[str]], list[GeomPair]]:
    """``{feature: names of the elements}`` of what is not supported, and the pairs that may touch.

    Args:
        m: a ``mujoco.MjModel``. mj: the package ``mujoco``.
    """
    found = unsupported(m, mj)
    met, unsupported_pairs = geom_pairs(m, mj)
    if unsupported_pairs:
        found[SHAPES] = unsupported_pairs
    nativeccd = int(mj.mjtDisableBit.mjDSBL_NATIVECCD)
    if m.opt.disableflags & nativeccd and any(_searched(m, x.geoms) for x in met):
        found.setdefault("option flag", []).append("nativeccd disabled")
    return found, met


def _searched(m: Any, geoms: tuple[int, int]) -> bool:
    """Whether a pair of geoms goes to the search for convex shapes."""
    a, b = (_KINDS.get(int(m.geom_type[g]), "") for g in geoms)
    return (a, b) in CONVEX_PAIRS


def _wanted(drop: Drop) -> frozenset[str]:
    """The names of the features that may be left out, after a check."""
    if isinstance(drop, str):
        drop = FEATURES if drop == "all" else (drop,)
    unknown = [x for x in drop if x not in FEATURES]
    if unknown:
        raise ValueError(
            f"load_mjcf: drop names {', '.join(map(repr, unknown))}, which is no feature; "
            f"expected 'all' or some of {', '.join(map(repr, FEATURES))}"
        )
    return frozenset(drop)


def _short(names: list[str]) -> str:
    return ", ".join(names[:8]) + (f" and {len(names) - 8} more" if len(names) > 8 else "")


def _switched(r: Reader) -> Model:
    """The robot without springs, dampers or gravity that the file's options switch off."""
    model = without_springs(r.model) if r.disabled("SPRING") else r.model
    for flag, leaf in (("DAMPER", "damping"), ("GRAVITY", "gravity")):
        if r.disabled(flag):
            zero = jnp.zeros_like(getattr(model, leaf))
            model = eqx.tree_at(lambda m, leaf=leaf: getattr(m, leaf), model, zero)
    return model


def _scene(r: Reader) -> Scene:
    m, o = r.m, r.m.opt
    names = "EULER", "RK4", "IMPLICIT", "IMPLICITFAST"
    kinds = {int(getattr(r.mj.mjtIntegrator, f"mjINT_{k}")): k.lower() for k in names}
    r.model = _switched(r)
    layout = convert.mujoco(r.model, m, ref=False)
    acting = contacts_of(r), *joints_of(r), *equalities_of(r)
    sensors = sensors_of(r)
    return Scene(
        model=r.model,
        actuators=actuators_of(r),
        constraints=Constraints(
            *acting,
            r.parts(r.named),
            **tendons_of(r),
            free_friction=free_friction_of(r),
            noslip=noslip_of(r, met_pairs(r)),
        ),
        q0=layout.q_from(r.array(m.qpos0, m.nq)),
        keyframes=_keyframes(r, layout),
        gravcomp=gravcomp_of(r),
        fluid=fluid_of(r),
        dt=r.array(o.timestep),
        integrator=kinds[int(o.integrator)],
        implicit_damping=not any(map(r.disabled, ("EULERDAMP", "DAMPER"))),
        layout=layout,
        sensors=sensors,
        mocap=mocap_of(r),
    )


def _keyframes(r: Reader, layout: Layout) -> dict[str, Keyframe]:
    m = r.m
    frames, kept = {}, kept_actuators(r)
    at, first = first_of(r, kept, "ctrl"), activations_of(r, kept)
    for k in range(m.nkey):
        q = layout.q_from(r.array(m.key_qpos[k], m.nq))
        v = layout.v_from(q, r.array(m.key_qvel[k], m.nv))
        controls = r.array(m.key_ctrl[k][at], len(at))
        act = r.array(m.key_act[k][first], len(first)) if len(first) else None
        frames[name_of(m, "key", k)] = Keyframe(q, v, controls, act)
    return frames
