"""Builds the kernels of GRiD for robots, on a machine that need not have a GPU.

    python -m benchmarks._peers.grid_build FOLDER ARCHITECTURE URDF...

ARCHITECTURE is a compute capability such as 90. The environment needs ``grid-rbd``, JAX in the
version that will call the kernels, ``nvcc`` and a C++ compiler. Each ``NAME.urdf``, a robot with a
free base, is built three times: with the resource tiers of the profile that GRiD ships for NAME,
and with the two other tiers of every function. ``grid`` measures which build is the fastest.
"""

import json
import shutil
import sys
from pathlib import Path

import grid_rbd
from grid_codegen.launch_config import load_launch_config
from grid_codegen.resources import resource_path

FUNCTIONS = {
    "id": "inverse_dynamics",
    "fd": "forward_dynamics",
    "aba": "aba",
    "fd_du": "forward_dynamics_gradient",
}
"""GRiD's names in profiles and in lists of algorithms."""
TIERS = ("shared", "lite", "minimal")
THREADS, BATCH = 128, 4096


def shipped(name: str) -> dict[str, str]:
    """The tier of each function in the profile of this robot, else ``shared``."""
    found = load_launch_config(name, True, profile="ffi")
    tiers = {k: found.get(symbol, {}).get("tier", "") for k, symbol in FUNCTIONS.items()}
    tiers = {k: tier.removeprefix("TIER_").lower() for k, tier in tiers.items()}
    return {k: tier if tier in TIERS else TIERS[0] for k, tier in tiers.items()}


def profile(name: str, shift: int, architecture: int) -> str:
    """Give GRiD a profile with the tiers moved on by ``shift``; returns its name."""
    tiers = {k: TIERS[(TIERS.index(x) + shift) % 3] for k, x in shipped(name).items()}
    entries = {k: {"tier": tier, "threads": THREADS} for k, tier in tiers.items()}
    new = f"{name}_tiers{shift}"
    folder = Path(str(resource_path("launch_configs"))) / new
    folder.mkdir(exist_ok=True)
    text = json.dumps({"bases": {"floating": entries}})
    (folder / f"moved_sm{architecture}.json").write_text(text)
    return new


def build(folder: Path, architecture: int, urdf: Path) -> None:
    """The three builds of one robot."""
    for shift in range(3):
        name = profile(urdf.stem, shift, architecture)
        named = folder / "work" / f"{name}.urdf"  # GRiD takes the profile by the file's name
        named.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(urdf, named)
        grid_rbd.warm_robot(
            name,
            str(named),
            floating_base=True,
            max_batch_size=BATCH,
            cache_dir=folder / "work",
            cuda_arch=architecture,
            algorithm_list=sorted(FUNCTIONS.values()),
            enable_mujoco_kernels=False,
        )


def keep(folder: Path, urdfs: list[Path]) -> None:
    """What is needed to run: the libraries and what GRiD wrote about them."""
    work = folder / "work"
    shutil.copy(work / "manifest.json", folder / "manifest.json")
    for library in work.glob("store/*/robot.so"):
        to = folder / library.parent.relative_to(work)
        to.mkdir(parents=True, exist_ok=True)
        for name in ("robot.so", "meta.json", "build_inputs.json"):
            shutil.copy(library.parent / name, to / name)
    for urdf in urdfs:
        shutil.copy(urdf, folder / urdf.name)


if __name__ == "__main__":
    into, architecture, *urdfs = sys.argv[1:]
    for urdf in map(Path, urdfs):
        build(Path(into), int(architecture), urdf)
    keep(Path(into), [Path(x) for x in urdfs])
