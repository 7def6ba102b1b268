"""`penstock local`: the local stack of a checkout, run by that checkout's own `python -m localstack`.

The SDK is installed without the local stack's code, so this finds the checkout and runs its program.
"""

import subprocess
import sys
from pathlib import Path

import click


@click.group()
def local() -> None:
    """Run Penstock on this machine, from a checkout of its sources."""


@local.command()
@click.option("--port", type=click.IntRange(1, 65535), help="The port on 127.0.0.1.  [default: 4566]")
@click.option(
    "--like-aws",
    is_flag=False,
    flag_value="all",
    metavar="[RULES]",
    help="Behave like AWS where the emulator does not: all, none, or rules and settings with commas.",
)
@click.option(
    "--profile",
    type=click.Choice(("express3", "express2", "standard1", "local")),
    help="The zones of a new stack. Ordinary buckets stand in for directory buckets.  [default: local]",
)
@click.option("--state-dir", type=click.Path(file_okay=False, path_type=Path), help="The folder of the stack's state.")
def up(port: int | None, like_aws: str | None, profile: str | None, state_dir: Path | None) -> None:
    """Start the stack, or bring a running one up to date with the sources.

    For example: penstock local up
    """
    options = {"--port": port, "--like-aws": like_aws, "--profile": profile}
    _run("up", state_dir, *(f"{name}={value}" for name, value in options.items() if value is not None))


@local.command()
@click.option("--state-dir", type=click.Path(file_okay=False, path_type=Path), help="The folder of the stack's state.")
def down(state_dir: Path | None) -> None:
    """Stop the stack and keep its state.

    For example: penstock local down
    """
    _run("down", state_dir)


@local.command()
@click.option("--json", "as_json", is_flag=True, help="Print JSON, for programs.")
@click.option("--state-dir", type=click.Path(file_okay=False, path_type=Path), help="The folder of the stack's state.")
def status(as_json: bool, state_dir: Path | None) -> None:
    """Show which parts of the stack run, and where. The exit code is 1 if none runs.

    For example: penstock local status
    """
    _run("status", state_dir, *(("--json",) if as_json else ()))


def _run(command: str, state_dir: Path | None, *options: str) -> None:
    """Run the command in the checkout and exit with its code. By default its state is in the checkout."""
    checkout = find_checkout()
    if state_dir is not None:
        options = (*options, "--state-dir", str(state_dir.resolve()))
    own_python = checkout / ".venv" / "bin" / "python"
    python = str(own_python) if own_python.exists() else sys.executable
    done = subprocess.run([python, "-m", "localstack", command, *options], cwd=checkout, check=False)  # noqa: S603  # our own module
    sys.exit(done.returncode)


def find_checkout() -> Path:
    """The checkout that this package runs from, or the one around the working directory."""
    here = Path.cwd()
    for folder in (here, *here.parents, *Path(__file__).resolve().parents):
        if (folder / "localstack" / "__main__.py").is_file() and (folder / "app.py").is_file():
            return folder
    raise click.ClickException(
        f"{here} is not in a checkout of Penstock, which the local stack is deployed from. Run `penstock dev` for a "
        "service without a checkout. Or clone the repository, run `make setup`, and call `.venv/bin/penstock local up`"
    )
