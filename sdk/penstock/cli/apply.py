"""`penstock apply`: bring a stage to what a file says, or write the file of a stage."""

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

import click

from penstock.admin.admin import Admin
from penstock.apply.document import DocumentError, to_yaml
from penstock.apply.dump import dump
from penstock.apply.plan import ChangeAction, StagePlan, plan
from penstock.apply.run import ApplyOutcome, apply_changes, read_stage
from penstock.apply.schema import stage_schema
from penstock.apply.stage import Noun, Ownership
from penstock.apply.stage_file import StageFile, mistakes_in, patterns_of_names, patterns_of_principals, read_stage_file
from penstock.cli.options.settings import YES, confirm
from penstock.cli.service import CommandError, Service, service_command
from penstock_core.errors import PenstockError
from penstock_core.text import escaped

_FAILED = 1


@click.command("apply")
@click.option("-f", "--file", type=click.Path(path_type=Path), help="The file: YAML, or JSON if it ends in .json.")
@click.option("--dry-run", is_flag=True, help="Show what would change, and change nothing.")
@click.option("--prune", is_flag=True, help="Also delete what the file owns and does not have.")
@YES
@click.option("--from-stage", is_flag=True, help="Write the file of the stage as it is to standard output.")
@click.option(
    "--owns",
    multiple=True,
    metavar="PATTERN",
    help="With --from-stage: only names that match, such as 'shop.*', or principals (arn:…); you may repeat this.",
)
@click.option("--schema", is_flag=True, help="Write the JSON Schema of the file, for your editor.")
@service_command
def apply(
    service: Service,
    file: Path | None,
    dry_run: bool,
    prune: bool,
    yes: bool,
    from_stage: bool,
    owns: tuple[str, ...],
    schema: bool,
) -> None:
    r"""Bring topics, groups, share groups, subscriptions, access rules and quotas to what a file says.

    It shows the changes first. Before it deletes something, or lets partitions drain, it asks. A second run changes
    nothing.

    \b
    For example:
      penstock apply -f shop.yaml --dry-run
      penstock apply -f shop.yaml --prune --yes
      penstock apply --from-stage --owns 'shop.*' > shop.yaml
      penstock apply --schema > stage.schema.json
    """
    _check_options(file, dry_run=dry_run or prune or yes, from_stage=from_stage, owns=owns, schema=schema)
    if schema:
        click.echo(json.dumps(stage_schema(), indent=2))
        return
    admin = Admin(transport=service.transport)
    if file is None:
        _write(service, admin, owns)
        return
    wanted = _read(service, file)
    if prune and wanted.owned is None:
        raise click.UsageError(f"--prune deletes what the file owns: add owns, such as {{names: [shop.*]}}, to {file}")
    found = _plan(service, admin, wanted, prune=prune)
    for change in found.changes if not service.as_json else ():
        click.echo(escaped(change.text()))
    if dry_run or not found.changes:
        _tell(service, found, None)
        return
    if found.is_destructive:
        confirm(f"Make these {len(found.changes)} changes, for ever?", yes=yes)
    outcome = apply_changes(admin, found.changes)
    _tell(service, found, outcome)
    if outcome.failed:
        sys.exit(_FAILED)


def _check_options(file: Path | None, *, dry_run: bool, from_stage: bool, owns: Sequence[str], schema: bool) -> None:
    if [file is not None, from_stage, schema].count(True) != 1:
        raise click.UsageError("give one of -f FILE, --from-stage and --schema")
    if owns and not from_stage:
        raise click.UsageError("--owns is for --from-stage: a file says itself what it owns")
    if dry_run and file is None:
        raise click.UsageError("--dry-run, --prune and --yes are for -f FILE")


def _read(service: Service, file: Path) -> StageFile:
    try:
        return read_stage_file(file)
    except PenstockError as error:
        _refuse(service, error)


def _plan(service: Service, admin: Admin, wanted: StageFile, *, prune: bool) -> StagePlan:
    nouns = {*wanted.stage.things}
    uses_topics = nouns & {Noun.SHARE_GROUP, Noun.SUBSCRIPTION}
    if uses_topics or (prune and Noun.TOPIC in nouns):
        nouns |= {Noun.TOPIC, *((Noun.SHARE_GROUP, Noun.SUBSCRIPTION) if prune else ())}
    present = read_stage(admin, nouns, has_rules=wanted.stage.rules is not None)
    found = plan(wanted, present, prune=prune)
    if found.mistakes:
        _refuse(service, mistakes_in(found.mistakes))
    return found


def _refuse(service: Service, error: PenstockError) -> NoReturn:
    """Ends with a line for each mistake; with --json with the error's object."""
    if service.as_json:
        raise CommandError(error, as_json=True) from error
    for line in error.facts["mistakes"]:
        click.echo(escaped(f"error: {line}"), err=True)
    sys.exit(_FAILED)


def _tell(service: Service, found: StagePlan, outcome: ApplyOutcome | None) -> None:
    failed = () if outcome is None else outcome.failed
    document = {
        "changes": [each.to_json() for each in found.changes],
        "unchanged": found.unchanged,
        "made": 0 if outcome is None else len(outcome.made),
        "errors": [{"what": each.what, "name": each.name, "error": error.to_json()} for each, error in failed],
    }
    counts = {action: sum(each.action is action for each in found.changes) for action in ChangeAction}
    words = ("to create", "to change", "to delete") if outcome is None else ("created", "changed", "deleted")
    if failed:
        summary = f"{document['made']} of {len(found.changes)} changes were made: run it again to go on"
    else:
        said = ", ".join(f"{count:,} {word}" for count, word in zip(counts.values(), words, strict=True) if count)
        summary = f"{said or 'nothing to change'}; {found.unchanged:,} as the file says"
    for each, error in failed:
        click.echo(escaped(f"error: {each.what} {each.name}: {' '.join(str(error).split())}"), err=True)
    service.say(document, summary)


def _write(service: Service, admin: Admin, owns: Sequence[str]) -> None:
    owned = None
    if owns:
        principals = [each for each in owns if each.startswith(("arn:", "jwt:"))]
        owned = Ownership(
            names=patterns_of_names([each for each in owns if each not in principals]),
            principals=patterns_of_principals(principals),
        )
    document = dump(read_stage(admin, [*Noun], has_rules=True), owned)
    if service.as_json:
        click.echo(json.dumps(document, indent=2))
        return
    try:
        click.echo(to_yaml(document), nl=False)
    except DocumentError as error:
        raise click.ClickException(error.message) from error
