"""`penstock offsets`: the first and the last offset of each partition.

What `groups reset` and `share-groups reset` have in common: where to go, and what happened to each partition.
"""

from collections.abc import Mapping
from dataclasses import asdict

import click

from penstock.admin.admin import Admin
from penstock.cli.completion import complete_topics
from penstock.cli.options.times import TIME
from penstock.cli.service import Service, service_command, time_text
from penstock.model.groups import ResetOffset
from penstock.model.times import TIME_FORMS

TO = click.option("--to", type=click.Choice(["earliest", "latest"]), help="To this end of the partition.")
AT = click.option(
    "--at", "at_ms", type=TIME, metavar="TIME", help=f"To the first record at or after this time: {TIME_FORMS}."
)
PARTITIONS = click.option(
    "--partition", "partitions", type=int, multiple=True, help="Only this partition; you may repeat this."
)
DRY_RUN = click.option("--dry-run", is_flag=True, help="Show the new offsets, and change nothing.")


@click.command()
@click.argument("topic", shell_complete=complete_topics)
@click.option(
    "--at", "at_ms", type=TIME, metavar="TIME", help=f"Also the first record at or after this time: {TIME_FORMS}."
)
@service_command
def offsets(service: Service, topic: str, at_ms: int | None) -> None:
    """Show the first and the last offset of each partition of TOPIC.

    For example: penstock offsets orders --at yesterday
    """
    admin = Admin(transport=service.transport)
    found = admin.describe_topic(topic).offsets
    at_time = {} if at_ms is None else admin.list_offsets(topic, at_ms)
    documents = [
        {**asdict(each), **({} if at_ms is None else {"offset_at_time": at_time.get(each.partition)})} for each in found
    ]
    service.show(
        documents,
        title=topic,
        columns=(
            "partition",
            "log start",
            "high watermark",
            "records",
            *(() if at_ms is None else (f"at {time_text(at_ms)}",)),
        ),
        rows=[
            (
                each.partition,
                each.log_start_offset,
                each.high_watermark,
                each.high_watermark - each.log_start_offset,
                *(() if at_ms is None else (at_time.get(each.partition),)),
            )
            for each in found
        ],
    )


def reset_title(group: str, *, dry_run: bool) -> str:
    """The line above the offsets."""
    return f"{group} would be set, nothing was changed" if dry_run else f"{group} was set"


def show_resets(service: Service, done: Mapping[int, ResetOffset], *, title: str, what: str) -> None:
    """Print `what`, such as the offset, of each partition before the reset and after it."""
    service.show(
        [{"partition": partition, **asdict(each)} for partition, each in done.items()],
        title=title,
        columns=("partition", f"old {what}", f"new {what}"),
        rows=[(partition, each.old_offset, each.new_offset) for partition, each in done.items()],
    )
