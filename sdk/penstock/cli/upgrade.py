"""`penstock upgrade`: whether a release may be deployed over a stage, and the removal of old versions."""

import json
import os
import sys
import textwrap
from dataclasses import asdict
from pathlib import Path

import click

from penstock.cli.jobs import DEFAULT_STACK
from penstock.cli.options.settings import YES, confirm
from penstock.cli.service import CommandError
from penstock.cli.tables import show_table
from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.text import escaped

_COLUMNS, _INDENT = 80, 19
_MB = 1_000_000


@click.command()
@click.option("--check", is_flag=True, help="Tell what a deployment would change, and whether it may be made.")
@click.option("--clean", is_flag=True, help="Remove old versions of the stage's functions.")
@click.option("--keep", type=click.IntRange(min=1), default=3, show_default=True, help="Versions that --clean keeps.")
@click.option("-c", "--context", "contexts", multiple=True, metavar="NAME=VALUE", help="A `-c` of your deployments.")
@click.option("--stack", metavar="STACK", help="The deployed stack; by default PENSTOCK_STACK, else Penstock.")
@click.option("--dry-run", is_flag=True, help="With --clean: show what would go, and remove nothing.")
@click.option("--region", metavar="REGION", help="The AWS region of the stage.")
@YES
@click.option("--json", "as_json", is_flag=True, help="Print JSON, for programs.")
def upgrade(
    *,
    check: bool,
    clean: bool,
    keep: int,
    contexts: tuple[str, ...],
    stack: str | None,
    dry_run: bool,
    region: str | None,
    yes: bool,
    as_json: bool,
) -> None:
    """Tell whether a release may be deployed over a stage, or remove old versions of functions.

    --check compares the stack with the app of this folder (cdk.json), else with this package. The exit code is 1 if
    the release may not be deployed. --clean keeps the newest versions, those that an alias names, and the one before
    each of these, so that you can still go back.

    For example: penstock upgrade --check
    """
    if check == clean:
        raise click.UsageError("give --check or --clean")
    if contexts and clean:
        raise click.UsageError("--context goes with --check")
    if dry_run and check:
        raise click.UsageError("--check changes nothing anyway: --dry-run goes with --clean")
    name = stack or os.environ.get("PENSTOCK_STACK") or DEFAULT_STACK
    try:
        if check:
            _check(name, region, contexts, as_json=as_json)
        else:
            _clean(name, region, keep, dry_run=dry_run, yes=yes, as_json=as_json)
    except PenstockError as error:
        raise CommandError(error, as_json=as_json) from error


def _check(name: str, region: str | None, contexts: tuple[str, ...], *, as_json: bool) -> None:
    from penstock.deployed.aws import aws_of  # which load botocore
    from penstock.deployed.stack import read_stack
    from penstock.deployed.synthesis import synthesized
    from penstock.doctor.finding import Verdict
    from penstock.upgrade.check import Upgrade, check_upgrade

    aws = aws_of(region)
    stack = read_stack(aws, name)
    has_app = Path("cdk.json").exists()
    template = synthesized(stack, contexts) if has_app else None
    why = "" if has_app else "this folder has no cdk.json, and a package alone does not know your settings"
    found = check_upgrade(Upgrade(aws=aws, stack=stack, template=template, why_no_template=why))
    may_deploy = not any(each.verdict is Verdict.MEND for each in found)
    if as_json:
        findings = [asdict(each) | {"verdict": each.verdict.value} for each in found]
        click.echo(json.dumps({"stack": name, "may_deploy": may_deploy, "findings": findings}))
    else:
        for each in found:
            text = f"{each.check:<17} {each.verdict.value}: {each.fact}"
            for line in (text, *([f"{'':<17} {each.remedy}"] if each.remedy else [])):
                click.echo(_wrapped(line))
        click.echo("may be deployed" if may_deploy else "may not be deployed")
    if not may_deploy:
        sys.exit(1)


def _wrapped(line: str) -> str:
    return textwrap.fill(
        escaped(line), _COLUMNS, subsequent_indent=" " * _INDENT, break_long_words=False, break_on_hyphens=False
    )


def _clean(name: str, region: str | None, keep: int, *, dry_run: bool, yes: bool, as_json: bool) -> None:
    from penstock.deployed.aws import aws_of  # which load botocore
    from penstock.deployed.stack import read_stack
    from penstock.upgrade.resources import find_versions, remove

    aws = aws_of(region)
    stack = read_stack(aws, name)
    if not stack.is_deployable:
        message = f"stack {name} is {stack.status}: wait until its deployment has ended, or it may lose its way back"
        raise PenstockError(ErrorCode.INVALID_CONFIG, message)
    found = find_versions(aws, stack, keep)
    freed = sum(each.code_bytes for each in found.removable)
    if not dry_run and found.removable:
        confirm(f"Remove {len(found.removable)} of {len(found.all)} versions, {freed / _MB:,.0f} MB?", yes=yes)
        for each in found.removable:
            remove(aws, each)
            click.echo(f"removed {each.function}:{each.version}", err=True)
    if as_json:
        removed = [asdict(each) for each in found.removable]
        click.echo(
            json.dumps({"dry_run": dry_run, "removed": removed, "bytes": freed, "kept": len(found.all) - len(removed)})
        )
        return
    rows: dict[str, list[int]] = {}
    for each in found.removable:
        rows.setdefault(each.function, []).append(each.version)
    done = "to remove" if dry_run else "removed"
    title = f"{done}: {len(found.removable)} of {len(found.all)} versions, {freed / _MB:,.0f} MB"
    if not rows:
        click.echo(title)
        return
    show_table(
        title,
        ("function", "versions", "from", "to"),
        [(function, len(versions), versions[0], versions[-1]) for function, versions in rows.items()],
    )
