"""`penstock offsets`: the first and the last offset of each partition."""

from dataclasses import asdict

import click

from penstock.admin.admin import Admin
from penstock.cli.completion import complete_topics
from penstock.cli.options.times import TIME
from penstock.cli.service import Service, service_command, time_text
from penstock.model.times import TIME_FORMS


@click.command()
@click.argument("topic", shell_complete=complete_topics)
@click.option(
    "--at", "at_ms", type=TIME, metavar="TIME", help=f"Also the first record at or after this time: {TIME_FORMS}."
)
@service_command
def offsets(service: Service, topic: str, at_ms: int | None) -> None:
    """Show the first and the last offset of each partition of TOPIC."""
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
