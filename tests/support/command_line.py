"""The command line, called in this process."""

from typer.testing import CliRunner


def run(*args: str):
    from rbd_jax.cli._app import app

    return CliRunner().invoke(app, [str(a) for a in args])
