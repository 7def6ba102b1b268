"""`python -m localstack up|down|status|deploy`, run at the root of a checkout. `penstock local` calls it.

Exit codes: 0 done, 1 failed, 2 wrong usage. A failed command says why in one line on stderr. `status` exits with 0 if
the stack runs, else with 1.
"""

import json
import sys
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from localstack.clients import forget_aws_environment, set_rules
from localstack.errors import LocalStackError
from localstack.like_aws.rules import RULE_NAMES, parse_rules
from localstack.places import DEFAULT_STATE_DIR, Places
from localstack.progress import Progress
from localstack.stack import deploy_to, down, status, up
from penstock_cdk.storage_profile import PROFILES, Profile


def _state_dir_option(command: Callable[..., Any]) -> Callable[..., Any]:
    return click.option(
        "--state-dir",
        type=click.Path(file_okay=False, path_type=Path),
        default=DEFAULT_STATE_DIR,
        show_default=True,
        help="The directory of the stack's state. One stack per directory.",
    )(command)


def _places(state_dir: Path) -> Places:
    state_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    state_dir.chmod(0o700)  # it holds secrets of the emulator, and clients trust no file in it that others may write
    return Places(state_dir.resolve())


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def main() -> None:
    """Run Penstock on this machine, without AWS and without Docker."""
    forget_aws_environment()


@main.command("up")
@click.option("--port", type=click.IntRange(1, 65535), help="The port to listen on, at 127.0.0.1.  [default: 4566]")
@click.option(
    "--like-aws",
    is_flag=False,
    flag_value="all",
    metavar="[RULES]",
    help="Behave like AWS where the emulator does not: all, none, or rules and settings with commas "
    "(docs/how-to/local-stack.md). They hold until the stack stops.",
)
@click.option("--profile", type=click.Choice(PROFILES), help="The storage profile of a new stack.  [default: local]")
@_state_dir_option
def up_command(port: int | None, profile: Profile | None, like_aws: str | None, state_dir: Path) -> None:
    """Start the stack, or bring a running one up to date with the sources."""
    places = _places(state_dir)
    if like_aws is not None:
        _check_rules(like_aws)
    has_changed = up(places, port=port, profile=profile, progress=Progress())
    found = status(places)
    if like_aws is not None and found.port is not None:
        held = set_rules(found.port, like_aws)["rules"]
        on = [name for name in RULE_NAMES if held[name]["is_on"]]
        click.echo(f"Rules of AWS that hold: {', '.join(on) or 'none'}")
    click.echo(f"Penstock {'runs' if has_changed else 'already runs, unchanged,'} at {found.url}")
    click.echo(f"For other programs: set -a; . {places.env_file}; set +a")


def _check_rules(text: str) -> None:
    try:
        parse_rules(text)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--like-aws") from error


@main.command("down")
@_state_dir_option
def down_command(state_dir: Path) -> None:
    """Stop the stack and keep its state."""
    stopped = down(_places(state_dir), progress=Progress())
    if stopped is None:
        click.echo("Penstock does not run here.")
    else:
        click.echo(f"Stopped (pid {stopped.pid}, port {stopped.port}). Its state is kept in {state_dir}.")


@main.command("status")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@_state_dir_option
def status_command(as_json: bool, state_dir: Path) -> None:
    """Say whether the stack runs, and where."""
    found = status(_places(state_dir))
    if as_json:
        click.echo(json.dumps(asdict(found)))
    elif found.is_running:
        click.echo(f"Penstock runs at {found.url or '(nothing deployed yet)'}")
        click.echo(f"emulator  pid {found.pid}, {found.endpoint_url}, log {found.log}")
        click.echo(f"keys      {found.env_file}")
        if not found.is_current:
            click.echo("The sources have changed since: `penstock local up` deploys them.")
    else:
        click.echo("Penstock does not run here: `penstock local up` starts it.")
    sys.exit(0 if found.is_running else 1)


@main.command("deploy")
@click.option(
    "--port", type=click.IntRange(1, 65535), required=True, help="The port that the emulator listens on, at 127.0.0.1."
)
@_state_dir_option
def deploy_command(port: int, state_dir: Path) -> None:
    """Deploy to an emulator that already runs, such as LocalStack in Docker."""
    deploy_to(_places(state_dir), port=port, progress=Progress())


if __name__ == "__main__":
    try:
        main()
    except LocalStackError as error:
        click.echo(f"Error: {error}", err=True)
        sys.exit(1)
