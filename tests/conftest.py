"""Strict JAX settings, runtime shape checks and the fixtures that every test file shares.

Nothing here imports rbd_jax at module level: the import hook of ``--typecheck`` comes first.
"""

import argparse
import gc
import os
import resource
from pathlib import Path

import jax
import pytest

ROOT = Path(__file__).resolve().parent.parent

jax.config.update("jax_compilation_cache_dir", str(ROOT / ".jax_cache"))
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.1)
os.environ.setdefault("RBD_JAX_CACHE_DIR", str(ROOT / ".pytest_cache" / "lanes"))
# Traced programs are many small objects that live long: to look through them seldom saves 15 %.
gc.set_threshold(1_000_000, 20, 100)


def strict() -> None:
    """The strict mode: float64, no implicit promotion, and code that is compiled quickly.

    The tests spend their time compiling, not running. LLVM at its lowest level halves it, and the
    older of the two code generators, where XLA still has it, halves it once more.
    """
    jax.config.update("jax_enable_x64", True)
    jax.config.update("jax_numpy_rank_promotion", "raise")
    jax.config.update("jax_numpy_dtype_promotion", "strict")
    jax.config.update("jax_disable_most_optimizations", True)
    jax.config.update("jax_traceback_in_locations_limit", 0)
    flags = ["--xla_cpu_parallel_codegen_split_count=1"]
    if jax.__version_info__ < (0, 11):
        flags.append("--xla_cpu_use_fusion_emitters=false")
    os.environ["XLA_FLAGS"] = " ".join([os.environ.get("XLA_FLAGS", ""), *flags])
    os.environ.setdefault("RBD_JAX_LANES_OPT", "0")


def default() -> None:
    """The mode of users: what JAX and LLVM do when nobody has configured them."""


MODES = {"strict": strict, "default": default}


def pytest_addoption(parser):
    parser.addoption(
        "--mode",
        choices=list(MODES),
        default="strict",
        help="strict: float64, strict promotion, quick compilation; default: JAX as users have it",
    )
    parser.addoption(
        "--examples",
        type=int,
        default=None,
        help="random programs that lanes/test_fuzz.py tries, other ones each time; few by default",
    )
    parser.addoption(
        "--typecheck",
        action=argparse.BooleanOptionalAction,
        default=False,  # a seventh of the time; CI has it in the run on the newest JAX
        help="check the jaxtyping annotations of rbd_jax at run time with beartype",
    )


# Files that take long although their tests are few. They start first, so that at the end of a run
# with ``--dist loadfile`` no worker waits for one of them.
LONG = {
    ROOT / "tests" / room / f"test_{name}.py"
    for room, names in {
        "algorithms": ("identities",),
        "constraints": ("edges", "motion", "rule"),
        "contact": ("constants", "gradient", "kinks", "step"),
        "derivatives": ("autodiff", "kim", "rules", "rules_modes"),
        "identify": ("convex", "fit"),
        "lanes": ("primitive",),
        "model": ("coordinates",),
        "optimize": ("honesty", "interior_point"),
        "project": ("float32", "programs"),
        "screw": ("closed_form",),
        "simulate": (
            "geometric_integrators",
            "implicit_damping",
            "rollout_gradients",
            "smoothing",
        ),
        "tasks": ("literature",),
    }.items()
    for name in names
}


def pytest_collection_modifyitems(config, items):
    items.sort(key=lambda item: item.path not in LONG)
    if config.getoption("--mode") == "default":
        skip = pytest.mark.skip(reason="compares digits that float32 does not have")
        for item in items:
            if item.get_closest_marker("float64"):
                item.add_marker(skip)


def pytest_configure(config):
    MODES[config.getoption("--mode")]()
    if hasattr(config.option, "loadscopereorder"):  # of pytest-xdist: by the number of tests
        config.option.loadscopereorder = False
    # A cache entry that another process is just writing is no failure of a test.
    config.addinivalue_line("filterwarnings", "ignore:Error (reading|writing) persistent comp")
    if config.getoption("--typecheck"):
        from jaxtyping import install_import_hook

        # all rooms but the compiler, whose million small calls would take minutes
        rooms = [
            p.stem for p in (ROOT / "rbd_jax").iterdir() if p.stem not in ("lanes", "__init__")
        ]
        install_import_hook([f"rbd_jax.{room}" for room in rooms], "beartype.beartype")
    # read only now: resolving the category imports rbd_jax, which must come after the hook
    config.addinivalue_line("filterwarnings", "ignore::rbd_jax.RobotDescriptionWarning")


@pytest.fixture(scope="module", autouse=True)
def forget_programs():
    """Drop compiled programs when they are too many: a whole run would hold more than 10 GB."""
    yield
    if _resident_gigabytes() > 4:
        jax.clear_caches()


def _resident_gigabytes() -> float:
    """The memory that this process holds, or has held at most where the system tells only that."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        return pages * resource.getpagesize() / 1e9
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6


@pytest.fixture(scope="session")
def models():
    """Sample models by name, see ``helpers.MODELS``."""
    from support import helpers

    return {name: helpers.model(name) for name in helpers.MODELS}


def pytest_generate_tests(metafunc):
    """A test that asks for ``model`` runs once for each sample model."""
    if "model" in metafunc.fixturenames and "model" not in _parametrized(metafunc):
        from support import helpers

        metafunc.parametrize("model", list(helpers.MODELS), indirect=True)


def _parametrized(metafunc) -> set[str]:
    marks = metafunc.definition.iter_markers("parametrize")
    return {name.strip() for mark in marks for name in str(mark.args[0]).split(",")}


@pytest.fixture
def model(request):
    """The sample model named by the parameter."""
    from support import helpers

    return helpers.model(request.param)


@pytest.fixture
def state(model):
    """A random state of the model."""
    from support import helpers

    return helpers.random_state(model)
