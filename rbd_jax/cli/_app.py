"""The typer application with all commands, or with one of them."""

from importlib import import_module

import typer

COMMANDS = (
    "demo", "info", "check", "rollout", "reach", "optimize", "mpc", "identify", "train", "view",
)  # fmt: skip


def application(*commands: str) -> typer.Typer:
    """The application with some commands. Only what these need is imported."""
    app = typer.Typer(
        help="rbd_jax: differentiable rigid-body dynamics for JAX.",
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
    )
    app.callback()(_commands)  # else typer would take a single command for the whole application
    for name in commands:
        app.command()(getattr(import_module(f".{name}", __package__), name))
    return app


def _commands() -> None:
    """rbd_jax: differentiable rigid-body dynamics for JAX."""
