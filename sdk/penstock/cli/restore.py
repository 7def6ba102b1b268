"""`penstock restore`: let restored tables go on behind every offset that was ever given."""

import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import click

from penstock.cli.options.settings import YES, confirm
from penstock.cli.service import CommandError, show_table
from penstock_core.errors import PenstockError
from penstock_core.text import escaped


@click.command()
@click.option("--topics-table", metavar="TABLE", help="The restored topics table; by default the stage's.")
@click.option("--log-table", metavar="TABLE", help="The restored log table; by default the stage's.")
@click.option("--harmed-log-table", metavar="TABLE", help="The log table that was harmed; by default the stage's.")
@click.option("--harmed-lost", is_flag=True, help="The harmed log table is gone: jump 2^30 offsets instead.")
@click.option("--dry-run", is_flag=True, help="Show the jumps, and change nothing.")
@click.option("--region", metavar="REGION", help="The AWS region of the stage.")
@YES
@click.option("--json", "as_json", is_flag=True, help="Print JSON, for programs.")
def restore(
    *, harmed_lost: bool, dry_run: bool, region: str | None, yes: bool, as_json: bool, **tables: str | None
) -> None:
    """Let the partitions of restored tables go on behind every offset that was ever given.

    Run it after DynamoDB has restored the tables, and before writers begin. It finds the stage by PENSTOCK_STACK, else
    by the local stack of this directory or a parent, and calls DynamoDB and S3 with your AWS credentials. If it ends
    early, run it again: it goes on where it was.
    """
    from penstock.transports.restoring import RestoredTables, jump_topics, open_restore  # which load the service

    if harmed_lost and tables["harmed_log_table"]:
        raise click.UsageError("give --harmed-log-table or --harmed-lost, not both")
    try:
        instance, plan = open_restore(RestoredTables(is_harmed_lost=harmed_lost, **tables), region, is_dry_run=dry_run)
        if not dry_run:
            confirm("Are all writers stopped? Set the next offsets of all partitions?", yes=yes)
        found = [*jump_topics(instance, plan, lambda line: click.echo(escaped(line), err=True))]
    except PenstockError as error:
        raise CommandError(error, as_json=as_json) from error
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
            raise CommandError(each.outcome, as_json=as_json)


def _row(jumps: Sequence[Any]) -> tuple[int, int, int, int]:
    return (
        len(jumps),
        sum(each.was_done for each in jumps),
        sum(each.is_lost for each in jumps),
        max((each.end for each in jumps), default=0),
    )
