"""`penstock restore`: bring a stage back to an earlier second, or only let tables go on that you have restored."""

import json
import os
import subprocess
import textwrap
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from penstock.cli.jobs import DEFAULT_STACK
from penstock.cli.options.settings import YES, confirm
from penstock.cli.options.times import TIME
from penstock.cli.service import CommandError
from penstock.cli.tables import show_table
from penstock.system import wall_clock_ms
from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.text import escaped

if TYPE_CHECKING:
    from penstock.restore.heads import RestoredHeads
    from penstock.restore.progress import StepState
    from penstock.restore.stage_restore import StageRestore

_COLUMNS = 80
_STDERR = 2


@click.command()
@click.option("--to", "to_ms", type=TIME, metavar="TIME", help="Bring the whole stage back to this second.")
@click.option("--undo", is_flag=True, help="Give up the restore that is under way, before its deployment.")
@click.option("--deploy", is_flag=True, help="With --to: run the deployment, too, in the folder of cdk.json.")
@click.option("-c", "--context", "contexts", multiple=True, metavar="NAME=VALUE", help="A `-c` of your deployments.")
@click.option("--sweep", is_flag=True, help="With --to: start the sweep in the end. You are sure of the restore.")
@click.option(
    "--stack", metavar="STACK", help="With --to or --undo: the stack; by default PENSTOCK_STACK, else Penstock."
)
@click.option("--topics-table", metavar="TABLE", help="The restored topics table; by default the stage's.")
@click.option("--log-table", metavar="TABLE", help="The restored log table; by default the stage's.")
@click.option("--harmed-log-table", metavar="TABLE", help="The log table that was harmed; by default the stage's.")
@click.option("--harmed-lost", is_flag=True, help="The harmed log table is gone: jump 2^30 offsets instead.")
@click.option("--dry-run", is_flag=True, help="Show what would change, and change nothing.")
@click.option("--region", metavar="REGION", help="The AWS region of the stage.")
@YES
@click.option("--json", "as_json", is_flag=True, help="Print JSON, for programs.")
def restore(
    *,
    to_ms: int | None,
    undo: bool,
    harmed_lost: bool,
    dry_run: bool,
    region: str | None,
    yes: bool,
    as_json: bool,
    stack: str | None,
    contexts: tuple[str, ...],
    deploy: bool,
    sweep: bool,
    **tables: str | None,
) -> None:
    """Bring a stage back to an earlier second, by tables that DynamoDB restores.

    With --to it stops what writes, restores the three tables, and lets each partition go on behind every offset that
    was ever given. Then you deploy, and run it again: it puts back what it has stopped. If it ends early, the same
    command goes on. --undo gives up.

    Without --to it lets the partitions of tables go on that you have restored yourself. It finds the stage by
    PENSTOCK_STACK, else by the local stack of this directory or a parent. It calls AWS with your credentials.

    For example: penstock restore --to 2026-11-30T12:00Z --dry-run
    """
    of_stage = to_ms is not None or undo
    if of_stage and (harmed_lost or any(tables.values())):
        raise click.UsageError("--to and --undo know the tables by themselves: give none")
    if to_ms is not None and undo:
        raise click.UsageError("give --to or --undo, not both")
    if stack and not of_stage:
        raise click.UsageError("--stack goes with --to and --undo: without them set PENSTOCK_STACK")
    if (deploy or sweep or contexts) and to_ms is None:
        raise click.UsageError("--deploy, --sweep and --context go with --to")
    if harmed_lost and tables["harmed_log_table"]:
        raise click.UsageError("give --harmed-log-table or --harmed-lost, not both")
    try:
        if of_stage:
            how = _How(yes=yes, as_json=as_json, dry_run=dry_run, deploys=deploy, sweeps=sweep, contexts=contexts)
            name = stack or os.environ.get("PENSTOCK_STACK") or DEFAULT_STACK
            _restore_stage(name, region, None if to_ms is None else to_ms // 1_000, how)
        else:
            _jump(harmed_lost, dry_run, region, yes=yes, as_json=as_json, **tables)
    except PenstockError as error:
        raise CommandError(error, as_json=as_json) from error


@dataclass(frozen=True, slots=True, kw_only=True)
class _How:
    yes: bool
    as_json: bool
    dry_run: bool
    deploys: bool
    sweeps: bool
    contexts: tuple[str, ...]


def _restore_stage(name: str, region: str | None, to_s: int | None, how: _How) -> None:
    from penstock.deployed.aws import aws_of  # which load botocore and the service
    from penstock.deployed.stack import read_stack
    from penstock.restore.heads import RestoredHeads
    from penstock.restore.opening import open_restore
    from penstock.restore.stage_restore import Pace

    aws, heads = aws_of(region), RestoredHeads(region)
    pace = Pace(now_ms=wall_clock_ms, sleep_ms=_sleep_ms, tell=_tell)
    found = open_restore(aws, read_stack(aws, name), to_s, pace, heads)
    if to_s is None:
        _undo(found, how)
        return
    if not found.has_begun:
        found.check()
    found.contexts = how.contexts
    if not how.as_json or how.dry_run:
        _show_plan(found, how)
    _check_folder(found)
    if how.dry_run:
        return
    if not found.has_begun:
        confirm(f"Stop all that writes to stack {name}, and restore its tables?", yes=how.yes)
        found.begin()
    end = _go_on(found, heads, how)
    if how.as_json:
        click.echo(json.dumps(_document(found, end)))
    else:
        click.echo("\n".join(map(escaped, end.splitlines())))


def _check_folder(found: "StageRestore") -> None:
    """Raises INVALID_CONFIG if the app of this folder would change more than the tables. It synthesizes the app."""
    from penstock.deployed.synthesis import synthesized
    from penstock.restore.deployment import check_alike

    if _has_app(found) and not found.is_deployed:
        check_alike(found.stack, synthesized(found.stack, found.contexts))


def _has_app(found: "StageRestore") -> bool:
    """This folder has an app.py whose template can be compared.

    An app of yours changes by hand between two runs. The local stack has been synthesized without an account.
    """
    is_local = found.stack.settings.get("storage_profile") == "local"
    return Path("cdk.json").exists() and not found.stack.is_of_your_app and not is_local


def _compared(found: "StageRestore") -> str:
    if _has_app(found):
        return ""
    return (
        "Nothing here has compared this deployment with the stack. Look at `npx cdk diff` first: it may show tables, "
        "what names them, a reserved concurrency of 0 and no canary, and nothing else.\n"
    )


def _go_on(found: "StageRestore", heads: "RestoredHeads", how: _How) -> str:
    """Does what is left, step by step. Returns what is to do next."""
    for step, act in (
        ("stop", found.stop),
        ("restore", found.restore),
        ("settings", found.settle),
        ("jump", found.jump),
        ("expiry", found.expire),
    ):
        if found.left(step):
            _tell(f"step {step}")
            act()
    if found.left("deploy"):
        if not how.deploys:
            return f"{_compared(found)}Deploy now, then run the same command again:\n{found.deployment().text()}"
        _deploy(found, yes=how.yes)
    if found.left("release"):
        found.check_quiet()
        _look(found, heads, how)
        found.release()
    if found.left("sweep"):
        if not how.sweeps and (how.yes or not click.confirm("Start the sweep? Are you sure of the restore?", err=True)):
            return (
                "The stage runs, and its sweep is off. Once you are sure of the restore, run the same command with "
                f"--sweep: it removes what was appended later.\n{_advice(found, heads)}"
            )
        found.start_sweep()
    advice = _advice(found, heads)
    found.end()
    return f"The restore is done.\n{advice}"


def _look(found: "StageRestore", heads: "RestoredHeads", how: _How) -> None:
    """Shows whether the newest record of each partition can be read, and asks before the writers come back."""
    looks = [*heads.look(found.stack, found.note)]
    for each in looks:
        failed_too = f", {each.failed} FAIL" if each.failed else ""
        _tell(f"topic {each.topic}: the newest record of {each.readable} of {each.partitions} reads{failed_too}")
    failed = [each for each in looks if each.error]
    if failed and how.yes:
        raise PenstockError(
            ErrorCode.INVALID_REQUEST,
            f"newest records in {len(failed)} topics cannot be read, {failed[0].topic} first: {failed[0].error}. "
            "The writers are still stopped: look at it, then run this without --yes and answer yes",
        )
    confirm("Let the writers go?" if not failed else "Let the writers go, though records are lost?", yes=how.yes)


def _deploy(found: "StageRestore", *, yes: bool) -> None:
    if found.stack.is_of_your_app:
        raise PenstockError(ErrorCode.INVALID_REQUEST, f"--deploy cannot change your app: {found.deployment().text()}")
    if not Path("cdk.json").exists():
        raise PenstockError(
            ErrorCode.INVALID_CONFIG,
            f"{Path.cwd()} has no cdk.json: run this in the checkout of the release that is deployed, or there: "
            f"{found.deployment().text()}",
        )
    _check_folder(found)
    command = [*found.deployment().command(), *(["--require-approval", "never"] if yes else [])]
    try:
        done = subprocess.run(command, stdout=_STDERR, check=False)  # noqa: S603 - the command of the plan
    except OSError as error:
        raise PenstockError(ErrorCode.INVALID_CONFIG, f"npx did not start ({error}): install Node.js") from error
    if done.returncode:
        message = (
            f"the deployment failed with exit code {done.returncode}. Its rollback starts the writers, and what they "
            "append to the harmed tables is lost. Once it has ended, run the same command at once: it stops them and "
            "lets the log jump anew"
        )
        raise PenstockError(ErrorCode.INVALID_CONFIG, message)
    found.after_deployment()


def _undo(found: "StageRestore", how: _How) -> None:
    if how.dry_run:
        raise click.UsageError("--undo has no dry run: it asks before it changes anything")
    confirm("Put back all that the restore has stopped, and give it up?", yes=how.yes)
    tables = found.undo()
    if how.as_json:
        click.echo(json.dumps({"undone": True, "tables_left": tables}))
        return
    click.echo("The restore is given up, and everything is as it was.")
    for table in tables:
        click.echo(f"Delete the table {table} yourself: it costs, and another restore to this second needs its name.")
        click.echo(f"aws dynamodb update-table --table-name {table} --no-deletion-protection-enabled")
        click.echo(f"aws dynamodb delete-table --table-name {table}")


def _advice(found: "StageRestore", heads: "RestoredHeads") -> str:
    zones = heads.zones(found.stack, found.note)
    old = ", ".join(each.harmed for each in found.note.tables.values())
    lines = [
        "Leave reserved_concurrency out of the next deployment, and keep restored_tables in each.",
        "Restart consumers with checkpoints of their own, and producers.",
        *(f"penstock zones in {zone} --reason restore" for zone in zones if len(zones) > 1),
        f"The old tables stay, and cost: {old}",
    ]
    return "\n".join(lines)


def _show_plan(found: "StageRestore", how: _How) -> None:
    from penstock.restore.note import second_text

    if how.as_json:
        click.echo(json.dumps(_document(found, "")))
        return
    state = "under way" if found.has_begun else "not begun"
    click.echo(escaped(f"restore of {found.stack.name} to {second_text(found.note.to_s)}, {state}"))
    for each in found.plan():
        click.echo(f"{each.step:<9} {'done' if each.is_done else 'to do'}")
        for line in each.changes:
            shown = escaped(line)
            click.echo(shown if each.step == "deploy" else textwrap.fill(shown, _COLUMNS, **_INDENT))
    click.echo(
        f"AWS bills ${found.restore_usd:.2f} for it. DynamoDB takes minutes to hours. What runs when it\n"
        f"is stopped may write for {found.longest_run_s} s, which the restore waits for."
    )


_INDENT: dict[str, Any] = {
    "initial_indent": "  ",
    "subsequent_indent": "    ",
    "break_long_words": False,
    "break_on_hyphens": False,
}


def _document(found: "StageRestore", end: str) -> dict[str, Any]:
    from penstock.restore.note import second_text

    return {
        "to": second_text(found.note.to_s),
        "stage": found.stack.name,
        "is_under_way": found.has_begun,
        "tables": {name: asdict(each) for name, each in found.note.tables.items()},
        "steps": [_step(each) for each in found.plan()],
        "usd": round(found.restore_usd, 2),
        "seconds_until_quiet": found.longest_run_s,
        "next": end,
    }


def _step(state: "StepState") -> dict[str, Any]:
    return {"step": state.step, "state": "done" if state.is_done else "to do", "changes": list(state.changes)}


def _sleep_ms(wait_ms: int) -> None:
    time.sleep(wait_ms / 1_000)


def _tell(line: str) -> None:
    click.echo(escaped(line), err=True)


def _jump(
    harmed_lost: bool, dry_run: bool, region: str | None, *, yes: bool, as_json: bool, **tables: str | None
) -> None:
    from penstock.transports.restoring import RestoredTables, jump_topics, open_restore  # which load the service

    instance, plan = open_restore(RestoredTables(is_harmed_lost=harmed_lost, **tables), region, is_dry_run=dry_run)
    if not dry_run:
        confirm("Are all writers stopped? Set the next offsets of all partitions?", yes=yes)
    found = [*jump_topics(instance, plan, _tell)]
    done = {each.topic: each.outcome for each in found if not isinstance(each.outcome, PenstockError)}
    if as_json:
        jumps: dict[str, Any] = {topic: [asdict(each) for each in outcome] for topic, outcome in done.items()}
        click.echo(json.dumps({"restore_id": plan.restore_id, "dry_run": dry_run, "topics": jumps}))
    else:
        show_table(
            "jumps of the restore" + (" (dry run)" if dry_run else ""),
            ("topic", "partitions", "done before", "no harmed head", "offsets up to"),
            [(topic, *_row(outcome)) for topic, outcome in done.items()],
        )
    for each in found:
        if isinstance(each.outcome, PenstockError):
            raise each.outcome


def _row(jumps: Sequence[Any]) -> tuple[int, int, int, int]:
    return (
        len(jumps),
        sum(each.was_done for each in jumps),
        sum(each.is_lost for each in jumps),
        max((each.end for each in jumps), default=0),
    )
