"""The command line of the benchmarks."""

import argparse
import importlib
import os
import sys
import time
import warnings

COMMANDS = {
    "peers": "against frax, MJX, Brax, JaxSim and adam, each in an environment of its own",
    "pinocchio": "dynamics and first derivatives against Pinocchio, on real robots",
    "constraints": "dynamics under constraints against the unconstrained and Pinocchio",
    "coordinates": "mimic joints that follow, against all joints independent (--cores 1)",
    "second_order": "second derivatives against autodiff of autodiff",
    "figures": "Figs. 2–7 and Table III of Singh: methods, frames, Pinocchio; chains and trees",
    "singh": "Tables I and II and accuracy against the complex step; a robot of the size of Atlas",
    "scaling": "time against the length of a chain, with fitted slopes and a plot",
    "single": "one call for one state: what the settings of JAX's runtime are worth",
    "optimize": "multiple shooting against Crocoddyl on real robots; Riccati sweeps",
    "problems": "solvers on a public problem set: share solved, judged; IPOPT, BoxFDDP, CSQP",
    "legged": "gaits of HyQ, tasks of Talos: against Crocoddyl; played back; MPC; G1 walks",
    "standing": "quadrupeds stand up, take pushes, get onto a box; objects (--cores 1)",
    "contact": "a step of a quadruped on the ground against MuJoCo, and its vjp (--cores 1)",
    "contact_memory": "memory of the gradient of a rollout on the ground, in each gradient mode",
    "reach": "inverse kinematics of arms: share of targets, time; PyRoki (--cores 1)",
    "mjcf": "MJCF files of packages (--packages DIR): which load, how far they are from MuJoCo",
    "train": "robots that learn to walk, three seeds; judged in MuJoCo (--cores 1)",
    "representations": "inverse dynamics in four representations of twists, Christoffel symbols",
    "formulations": "formulations, frames, factorizations: time and error",
    "kernels": "compiled for a GPU that need not be there: kernels, estimated times",
    "ptx": "the code of threads of a GPU that need not be there: registers, memory, spills",
    "gpu_model": "a model of the time on a GPU beside the stored times, and what it predicts",
    "gpu": "on a GPU: XLA, lanes, MuJoCo Warp, frax, MJX, GRiD; exit code 1 without one",
    "compile": "first-call compile time of every public function and its derivatives",
    "guard": "compare the ratios of pinocchio with the committed ones; exit code 1 if slower",
}


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description="Benchmarks of rbd_jax. Each writes benchmarks/results/NAME.json and NAME.md.",
        epilog="commands: " + "; ".join(f"{k}: {v}" for k, v in COMMANDS.items()),
    )
    parser.add_argument("command", choices=[*COMMANDS, "all"])
    parser.add_argument(
        "--seconds",
        type=float,
        help="time spent on each comparison, more for slow programs (default 1)",
    )
    parser.add_argument("--batch", type=int, help="samples in a batch (default: each command's)")
    parser.add_argument(
        "--dtypes", help="comma-separated (default float64,float32; peers: float32)"
    )
    parser.add_argument("--robots", help="comma-separated, e.g. talos,hyq,arm,chain50,tree30x2")
    parser.add_argument("--cores", type=int, help="restrict the process to so many cores")
    parser.add_argument(
        "--clock",
        choices=["wall", "processor"],
        default="wall",
        help="what is measured: the time that passes, or the time of the processor, in which other "
        "work on the machine hardly counts (with --cores 1)",
    )
    parser.add_argument(
        "--keep",
        action="store_true",
        help="keep the rows of an earlier run for robots and dtypes that this one does not reach",
    )
    parser.add_argument(
        "--parts",
        help="standing: policies,controllers,plans,box,objects; legged: names of tasks,playback,"
        "mpc,humanoid; problems: how names of solvers begin; gpu: ways,sizes,ground,warp,"
        "policy,rivals,grid,solvers; ptx: threads,dynamics,solvers,grid,ground,policy; gpu_model: "
        "predictions,policy,targets (default all); with --keep the others stay",
    )
    parser.add_argument(
        "--again",
        action="store_true",
        help="gpu, mjcf, problems, standing with --keep: measure again what is there",
    )
    parser.add_argument("--tiny", action="store_true", help="small sizes, to see that all runs")
    parser.add_argument(
        "--limit",
        type=float,
        help="start nothing after so many seconds: peers (450), figures (900), mjcf, problems",
    )
    parser.add_argument(
        "--margin",
        type=float,
        default=1.3,
        help="guard: how much worse a ratio may be than the committed one (default 1.3)",
    )
    parser.add_argument(
        "--calls",
        nargs="+",
        choices=["single", "batches"],
        default=["single", "batches"],
        help="peers: single calls, batches (default both)",
    )
    parser.add_argument(
        "--peer-envs",
        default=".venv-peers",
        metavar="FOLDER",
        help="where the peers' environments are, FOLDER/NAME/bin/python (default .venv-peers)",
    )
    parser.add_argument(
        "--peer-python",
        action="append",
        metavar="NAME=PYTHON",
        help="the Python of one peer, also warp and crocoddyl; may be repeated",
    )
    parser.add_argument(
        "--make-peers",
        action="store_true",
        help="make the missing environments of the peers first (venv and pip; minutes, 4 GB)",
    )
    parser.add_argument(
        "--patience",
        type=float,
        default=180,
        help="a peer that has not answered after so many seconds (default 180) is left out; "
        "in problems, its other starts are",
    )
    parser.add_argument("--model", help="train, legged: mjlab's file, for --robots go1 or g1")
    parser.add_argument(
        "--packages", nargs="+", help="mjcf, gpu, gpu_model, ptx: folders of unpacked packages"
    )
    parser.add_argument("--results", help="folder to write to (default benchmarks/results)")
    return parser


def main(arguments: list[str] | None = None) -> None:
    """Run one command, or all of them one after the other."""
    options = _parser().parse_args(arguments)
    if options.cores:  # before JAX is imported: XLA sizes its thread pool by it
        os.sched_setaffinity(0, set(sorted(os.sched_getaffinity(0))[: options.cores]))
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    os.environ["RBD_JAX_CACHE_DIR"] = ""  # compile times are those without a cache on the disk
    import jax

    from . import _timing

    jax.config.update("jax_enable_x64", True)
    jax.config.update("jax_enable_compilation_cache", False)
    usual = (
        "float32"
        if options.command in ("peers", "kernels", "gpu", "gpu_model")
        else "float64,float32"
    )
    options.dtypes = (options.dtypes or usual).split(",")
    options.robots = options.robots.split(",") if options.robots else None
    options.parts = options.parts.split(",") if options.parts else None
    options.seconds = options.seconds or 1.0
    _timing.chosen = options.clock
    warnings.filterwarnings("ignore", message="", category=UserWarning, module="rbd_jax")
    every = [n for n in COMMANDS if n not in ("guard", "gpu", "mjcf", "train")]
    names = every if options.command == "all" else [options.command]
    for name in names:
        start = time.perf_counter()
        importlib.import_module(f"benchmarks.{name}").main(options)
        print(f"{name}: {time.perf_counter() - start:.0f} s", file=sys.stderr, flush=True)
        jax.clear_caches()


if __name__ == "__main__":
    main()
