"""What `groups reset` and `share-groups reset` have in common: where to go, and what happened to each partition."""

from collections.abc import Mapping
from dataclasses import asdict

import click

from penstock.cli.options.times import TIME
from penstock.cli.service import Service
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
