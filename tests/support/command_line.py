"""The command line, called in this process."""

from typer.testing import CliRunner


def run(*args: str):
    from rbd_jax.cli._app import application

    return CliRunner().invoke(application(args[0]), [str(a) for a in args])
