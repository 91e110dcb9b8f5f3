"""Which files a call of the library visits, in order, as the page ``docs/walks.md`` tells it.

``PYTHONPATH=.:tests python tests/support/walks.py`` writes the page anew, or another file.
"""

import ast
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp

import rbd_jax as rbd

PACKAGE = Path(rbd.__file__).parent
PAGE = Path(__file__).resolve().parents[2] / "docs" / "walks.md"
SCENE = """<mujoco><worldbody><geom type="plane" size="1 1 1"/><body pos="0 0 .2"><freejoint/>
<geom size=".1" mass="1"/></body></worldbody></mujoco>"""
HEAD = """# Five walks

What happens between a public function and the arithmetic? These lists follow q through five calls:
each file of the library, in the order in which the call first enters it, with the first sentence of
the file. Everything here happens while JAX traces; the compiled program only computes. The calls
were traced with the forms for CPUs. How `lanes` compiles a batch of them is told in its README.

A test compares this page with the code. `PYTHONPATH=.:tests python tests/support/walks.py` writes
it anew.
"""


class Walk(NamedTuple):
    """The files that a call enters, in order, and how often it goes from one file to another."""

    files: list[str]
    calls: int


def walk(call: Callable) -> Walk:
    """The walk of a call."""
    root, files, calls = f"{PACKAGE}/", [], 0

    def look(frame, event, arg):
        nonlocal calls
        name = frame.f_code.co_filename
        if event != "call" or not name.startswith(root):
            return
        if name == f"{root}__init__.py":  # it only looks up where a public name is
            return
        before = frame.f_back
        while before is not None and not before.f_code.co_filename.startswith(root):
            before = before.f_back
        calls += before is not None and before.f_code.co_filename != name
        if name not in files:
            files.append(name)

    sys.setprofile(look)
    try:
        call()
    finally:
        sys.setprofile(None)
    return Walk([name.removeprefix(root) for name in files], calls)


def walks() -> dict[str, Walk]:
    """The five walks by their names."""
    m = rbd.samples.quadruped()
    q, v = rbd.neutral(m), jnp.zeros(m.nv)
    scene = rbd.load_mjcf(SCENE)
    task = rbd.tasks.cart_pole()
    problem, u = task.problem, jnp.zeros((task.problem.steps, task.problem.controls))
    steps = jnp.zeros((3, m.nv))

    def solve(q):
        return rbd.optimize.ilqr(problem, q, task.v0, u, throw=False).u

    calls = {
        "`rbd.inverse_dynamics(model, q, v, a)`": (lambda q: rbd.inverse_dynamics(m, q, v, v), q),
        "`rbd.forward_dynamics(model, q, v, tau)`": (lambda q: rbd.forward_dynamics(m, q, v, v), q),
        "`rbd.contact.scene_step(scene, q, v, controls)`": (
            lambda q: rbd.contact.scene_step(scene, q, jnp.zeros(6), jnp.zeros(0)).q,
            scene.q0,
        ),
        "`rbd.rollout(model, q, v, controls, dt)`": (
            lambda q: rbd.rollout(m, q, v, steps, 0.01).q,
            q,
        ),
        "`rbd.optimize.ilqr(problem, q, v, u)`": (solve, task.q0),
    }
    with rbd.algorithms.formulations.formulation("lanes"):
        return {name: walk(lambda f=f, x=x: jax.make_jaxpr(f)(x)) for name, (f, x) in calls.items()}


def page() -> str:
    """The page."""
    parts = [HEAD]
    for name, found in walks().items():
        parts.append(f"## {name}\n\n{len(found.files)} files.\n")
        for k, file in enumerate(found.files, 1):
            text = ast.get_docstring(ast.parse((PACKAGE / file).read_text())) or ""
            first = re.sub(r":[a-z]+:`([^`]*)`", r"`\1`", text.partition("\n")[0])
            parts.append(f"{k}. `{file}`: {first}")
        parts.append("")
    return "\n".join(parts)


if __name__ == "__main__":
    (Path(sys.argv[1]) if sys.argv[1:] else PAGE).write_text(page())
