"""`penstock local`: the local stack of a checkout, by that checkout's own `python -m localstack`.

The SDK is installed without the local stack's code, so this finds the checkout and runs it as a program of its own.
"""

import subprocess
import sys
from pathlib import Path

import click


@click.group()
def local() -> None:
    """Run Penstock on this machine, from a checkout of its sources."""


@local.command()
@click.option("--port", type=click.IntRange(1, 65535), help="Where to listen on 127.0.0.1.  [default: 4566]")
@click.option("--state-dir", type=click.Path(file_okay=False, path_type=Path), help="Where the stack keeps its state.")
def up(port: int | None, state_dir: Path | None) -> None:
    """Start the stack, or bring a running one up to date with the sources."""
    _run("up", state_dir, *(("--port", str(port)) if port is not None else ()))


@local.command()
@click.option("--state-dir", type=click.Path(file_okay=False, path_type=Path), help="Where the stack keeps its state.")
def down(state_dir: Path | None) -> None:
    """Stop the stack and keep its state."""
    _run("down", state_dir)


@local.command()
@click.option("--json", "as_json", is_flag=True, help="Answer one JSON object.")
@click.option("--state-dir", type=click.Path(file_okay=False, path_type=Path), help="Where the stack keeps its state.")
def status(as_json: bool, state_dir: Path | None) -> None:
    """Say what runs where. The exit code is 1 if nothing does."""
    _run("status", state_dir, *(("--json",) if as_json else ()))


def _run(command: str, state_dir: Path | None, *options: str) -> None:
    """Runs the command in the checkout and exits as it does. Its state is in the checkout unless told otherwise."""
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
        f"{here} is not in a checkout of Penstock, which the local stack is deployed from: clone the repository, run "
        "`make setup` there, and call `.venv/bin/penstock local up` in it"
    )
