"""`penstock scheduled`: delayed records that wait."""

import click

from penstock.admin.admin import Admin
from penstock.cli.completion import complete_topics
from penstock.cli.service import Service, service_command, time_text
from penstock_core.text import counted


@click.group()
def scheduled() -> None:
    """List and cancel delayed records."""


@scheduled.command("list")
@click.argument("topic", shell_complete=complete_topics)
@click.option("--partition", type=click.IntRange(min=0), help="Only this partition.")
@service_command
def list_scheduled(service: Service, topic: str, partition: int | None) -> None:
    """List the delayed records of TOPIC that wait.

    For example: penstock scheduled list orders
    """
    found = Admin(transport=service.transport).list_scheduled(topic, partition)
    service.show(
        [each._asdict() for each in found],
        title=f"{topic}: scheduled",
        columns=("id", "partition", "comes at", "records", "bytes"),
        rows=[
            (each.scheduled_id, each.partition, time_text(each.deliver_at_ms), each.records, each.bytes)
            for each in found
        ],
    )


@scheduled.command()
@click.argument("topic", shell_complete=complete_topics)
@click.argument("scheduled_id")
@service_command
def cancel(service: Service, topic: str, scheduled_id: str) -> None:
    """Cancel what waits under SCHEDULED_ID in TOPIC: its records never come.

    For example: penstock scheduled cancel orders SCHEDULED_ID
    """
    cancelled = Admin(transport=service.transport).cancel_scheduled(topic, scheduled_id)
    records = counted(cancelled.records, "record")
    service.say(cancelled._asdict(), f"cancelled in {topic}[{cancelled.partition}]: {records}")
