"""The typer application with all commands."""

import typer

from .check import check
from .demo import demo
from .identify import identify
from .info import info
from .optimize import optimize
from .rollout import rollout
from .train import train
from .view import view

app = typer.Typer(
    help="rbd_jax: differentiable rigid-body dynamics for JAX.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
for command in (demo, info, check, rollout, optimize, identify, train, view):
    app.command()(command)
