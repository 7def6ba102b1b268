"""`penstock apply`: bring a stage to what a file says, or write the file of a stage."""

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

import click

from penstock.admin.admin import Admin
from penstock.admin.caller_rights import loses_alter, visible_topic_users
from penstock.apply.document import DocumentError, to_yaml
from penstock.apply.dump import dump
from penstock.apply.plan import ChangeAction, StagePlan, plan
from penstock.apply.run import ApplyOutcome, apply_changes, read_stage
from penstock.apply.schema import stage_schema
from penstock.apply.stage import Noun, Ownership, Stage
from penstock.apply.stage_file import StageFile, mistakes_in, patterns_of_names, patterns_of_principals, read_stage_file
from penstock.cli.options.settings import YES, confirm
from penstock.cli.service import CommandError, Service, service_command
from penstock_core.errors import PenstockError
from penstock_core.text import escaped

_FAILED = 1
_LOSS = (
    "these changes take your own right to alter the service, so you can neither take them back nor change other rules"
)
_PART = (
    "you may not describe the service: the file has no quotas, and of the access rules only those about you. Do not "
    "prune with it as somebody else"
)


@click.command("apply")
@click.option("-f", "--file", type=click.Path(path_type=Path), help="The file: YAML, or JSON if it ends in .json.")
@click.option("--dry-run", is_flag=True, help="Show what would change, and change nothing.")
@click.option("--prune", is_flag=True, help="Also delete what the file owns and does not have.")
@click.option(
    "--force",
    is_flag=True,
    help="Delete topics although you may not see who uses them, and take your own right to alter the service.",
)
@click.option("--send-secrets", is_flag=True, help="Send the secrets of endpoints again: no answer shows the old ones.")
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
    force: bool,
    send_secrets: bool,
    yes: bool,
    from_stage: bool,
    owns: tuple[str, ...],
    schema: bool,
) -> None:
    r"""Bring topics, groups, subscriptions, schedules, access rules and quotas to what a file says.

    It shows the changes first. It asks before something goes by them: a thing, records by a lower retention or another
    cleanup policy, dead letters, or partitions, which drain. A setting that the file leaves out stays as it is, and
    null brings its default back. A second run changes nothing.

    \b
    For example:
      penstock apply -f shop.yaml --dry-run
      penstock apply -f shop.yaml --prune --yes
      penstock apply --from-stage --owns 'shop.*' > shop.yaml
      penstock apply --schema > stage.schema.json
    """
    is_run = dry_run or prune or force or send_secrets or yes
    _check_options(file, is_run=is_run, from_stage=from_stage, owns=owns, schema=schema)
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
    present = _present(admin, wanted, prune=prune)
    found = plan(wanted, present, prune=prune, send_secrets=send_secrets)
    if found.mistakes:
        _refuse(service, mistakes_in(found.mistakes))
    for change in found.changes if not service.as_json else ():
        click.echo(escaped(change.text()))
    _check_users(service, admin, found, may_go_on=force or dry_run)
    loses_right = _loses_alter(admin, found, present)
    if loses_right:
        click.echo(_LOSS, err=True)
    if dry_run or not found.changes:
        _tell(service, found, None)
        return
    confirm(f"Make these {len(found.changes)} changes, for ever?", yes=yes or not found.is_destructive)
    confirm("Give up your own right to alter the service?", yes=force or not loses_right)
    outcome = apply_changes(admin, found.changes)
    _tell(service, found, outcome)
    if outcome.failed:
        sys.exit(_FAILED)


def _check_options(file: Path | None, *, is_run: bool, from_stage: bool, owns: Sequence[str], schema: bool) -> None:
    if [file is not None, from_stage, schema].count(True) != 1:
        raise click.UsageError("give one of -f FILE, --from-stage and --schema")
    if owns and not from_stage:
        raise click.UsageError("--owns is for --from-stage: a file says itself what it owns")
    if is_run and file is None:
        raise click.UsageError("--dry-run, --prune, --force, --send-secrets and --yes are for -f FILE")


def _read(service: Service, file: Path) -> StageFile:
    try:
        return read_stage_file(file)
    except PenstockError as error:
        _refuse(service, error)


def _present(admin: Admin, wanted: StageFile, *, prune: bool) -> Stage:
    """The parts of the stage that the plan must know."""
    nouns = {*wanted.stage.things}
    uses_topics = nouns & {Noun.SHARE_GROUP, Noun.SUBSCRIPTION}
    if uses_topics or (prune and Noun.TOPIC in nouns):
        nouns |= {Noun.TOPIC, *((Noun.SHARE_GROUP, Noun.SUBSCRIPTION) if prune else ())}
    return read_stage(admin, nouns, has_rules=wanted.stage.rules is not None)


def _check_users(service: Service, admin: Admin, found: StagePlan, *, may_go_on: bool) -> None:
    """Refuses to delete topics whose users the caller may not see. With `may_go_on`, it says so on stderr."""
    topics = found.deleted_topics
    _, told = visible_topic_users(admin, topics)
    if told and not may_go_on:
        way_out = "let somebody prune who may see them, or give --force"
        _refuse(service, mistakes_in([*told, f"{len(topics)} topics would go with all their records: {way_out}"]))
    for line in told if not service.as_json else ():
        click.echo(escaped(" ".join(line.split())), err=True)


def _loses_alter(admin: Admin, found: StagePlan, present: Stage) -> bool:
    """True if the plan takes the caller's own right to alter the service. One request if rules change, else none."""
    if all(each.rule is None for each in found.changes):
        return False
    return loses_alter(admin.check_acl("alter", "service"), found.rules_after(present))


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
        "secrets_not_sent": found.secrets,
        "errors": [{"what": each.what, "name": each.name, "error": error.to_json()} for each, error in failed],
    }
    counts = {action: sum(each.action is action for each in found.changes) for action in ChangeAction}
    words = ("to create", "to change", "to delete") if outcome is None else ("created", "changed", "deleted")
    if failed:
        summary = f"{document['made']} of {len(found.changes)} changes were made: run it again to go on"
    else:
        said = ", ".join(f"{count:,} {word}" for count, word in zip(counts.values(), words, strict=True) if count)
        summary = f"{said or 'nothing to change'}; {found.unchanged:,} as the file says"
        if found.secrets:
            summary += f"; secrets that were not compared: {found.secrets:,} (--send-secrets sends them)"
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
    nouns = [*Noun]
    if not admin.check_acl("describe", "service").is_allowed:
        nouns.remove(Noun.QUOTA)
        click.echo(_PART, err=True)
    document = dump(read_stage(admin, nouns, has_rules=True), owned)
    if service.as_json:
        click.echo(json.dumps(document, indent=2))
        return
    try:
        click.echo(to_yaml(document), nl=False)
    except DocumentError as error:
        raise click.ClickException(error.message) from error
