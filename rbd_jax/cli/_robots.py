"""A robot by what the user typed: a file, ``sample:NAME``, or an example robot's name."""

import importlib.util
import inspect
import warnings
from itertools import takewhile
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import typer

from ..io import example_robot, example_robots, load_urdf, samples
from ..model import Model, RobotDescriptionError, RobotDescriptionWarning

SAMPLES = (
    "pendulum", "double_pendulum", "cart_pole", "chain", "tree", "random_tree", "quadruped", "arm",
    "quadrotor_arm",
)  # fmt: skip
HELP = (
    "A URDF or MJCF (.xml) file, the name of an example robot (talos, panda …) or of "
    "robot_descriptions (panda_description …), or sample:NAME[:N]."
)


OWN = "Or FILE.py:NAME, {} of your own: a value in a Python file, or a function that returns it."
"""How the help of a command says what :func:`own` takes."""


class Robot(NamedTuple):
    """A loaded robot, where it came from and what its reader warned of."""

    model: Model
    path: Path | None
    warnings: list[str]


def fail(message: str, code: int = 2) -> NoReturn:
    """End the command with one line on the standard error stream."""
    typer.echo(f"rbd-jax: {message}", err=True)
    raise typer.Exit(code)


def load(robot: str, floating_base: bool = False, dtype=None) -> Robot:
    """Load a robot; ends the command with a clear line if there is no such robot."""
    if robot.startswith("sample:"):
        return Robot(_sample(robot, floating_base, dtype), None, [])
    path = _find(robot)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            model = load_urdf(path, floating_base=floating_base, dtype=dtype)
        except (RobotDescriptionError, OSError) as error:
            fail(f"cannot load {robot}: {error}")
    said = [str(w.message) for w in caught if issubclass(w.category, RobotDescriptionWarning)]
    return Robot(model, path, said)


def own(text: str, kind: type, what: str) -> Any:
    """The value of ``FILE.py:NAME``, or None if the text has another form.

    Ends the command with a clear line if there is no such file or name, or if the value is not of
    the kind that the command takes.

    Args:
        text: what the user typed.
        kind: the class that the value has to have. what: its name in a message.
    """
    file, colon, name = text.rpartition(":")
    if not colon or not file.endswith(".py"):
        return None
    path = Path(file).expanduser()
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if not path.is_file() or spec is None or spec.loader is None:
        fail(f"no file {file}")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    value = getattr(module, name, None)
    if inspect.isfunction(value):
        value = value()
    if not isinstance(value, kind):
        there = "nothing" if value is None else f"a {type(value).__name__}"
        fail(f"{text}: expected {what}, found {there} of this name")
    return value


def can_float(robot: str) -> bool:
    """Whether :func:`load` can give the robot a floating base."""
    if not robot.startswith("sample:"):
        return True
    return "floating_base" in inspect.signature(_builder(robot.split(":")[1])).parameters


def _builder(name: str):
    if name not in SAMPLES:
        fail(f"no sample {name!r}; there are: {', '.join(SAMPLES)}")
    return getattr(samples, name)


def _sample(robot: str, floating_base: bool, dtype) -> Model:
    _, name, *numbers = robot.split(":")
    build = _builder(name)
    parameters = inspect.signature(build).parameters
    options = {"dtype": dtype}
    if floating_base and "floating_base" in parameters:
        options["floating_base"] = True
    first = next(iter(parameters.values()))
    if first.default is inspect.Parameter.empty and not numbers:
        numbers = ["6"]
    if not all(n.isdigit() for n in numbers):
        fail(f"{robot!r}: expected whole numbers after the sample's name, as in sample:chain:7")
    takes = [p.name for p in takewhile(lambda p: p.annotation in (int, float), parameters.values())]
    if len(numbers) > len(takes):
        these = f"the whole numbers {':'.join(takes)}" if takes else "no numbers"
        fail(f"{robot!r}: sample {name!r} takes {these}")
    try:
        model = build(*map(int, numbers), **options)
    except ZeroDivisionError:
        fail(f"{robot!r}: sample {name!r} cannot be built with a 0 here; give {':'.join(takes)}")
    if floating_base and "free" not in model.topology.kinds:
        fail(f"sample {name!r} has no floating base")
    return model


def _find(robot: str) -> Path:
    path = Path(robot).expanduser()
    if path.is_file():
        return path
    if path.suffix or len(path.parts) > 1 and robot not in example_robots():
        fail(f"no file {robot}")
    try:
        return example_robot(robot)
    except FileNotFoundError as error:
        if robot.endswith("_description"):
            fail(str(error))
        fail(f'no file {robot}, and no example robots: run pip install "rbd-jax[robots]"')
    except KeyError as error:
        fail(f"{error.args[0]}; or give a file, or sample:NAME")


def is_example(robot: str) -> bool:
    """Whether there is an example robot of this name."""
    try:
        return example_robot(robot).is_file()
    except (FileNotFoundError, KeyError):
        return False


def writable(*paths: Path | None) -> None:
    """End the command if the folder of a file to be written does not exist."""
    for path in paths:
        if path is not None and not path.parent.is_dir():
            fail(f"no folder {path.parent} to write {path.name} into")


def results(output: Path, picture: Path | None) -> tuple[Path, Path | None]:
    """Where arrays and a plot are really written: NumPy and Matplotlib complete the names."""
    writable(output, picture)
    if output.suffix != ".npz":
        output = output.with_name(f"{output.name}.npz")
    if picture is not None and not picture.suffix:
        picture = picture.with_suffix(".png")
    return output, picture
