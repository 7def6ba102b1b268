"""`penstock offsets`: where topics begin and end."""

from dataclasses import asdict

import click

from penstock.admin import Admin
from penstock.cli.service import Service, parse_time_ms, service_command


@click.command()
@click.argument("topic")
@click.option("--at", metavar="TIME", help="Also the first record at or after this time (ISO 8601).")
@service_command
def offsets(service: Service, topic: str, at: str | None) -> None:
    """Show where each partition of TOPIC begins and ends."""
    at_ms = None if at is None else parse_time_ms(at)
    admin = Admin(transport=service.transport)
    found = admin.describe_topic(topic).offsets
    at_time = {} if at_ms is None else admin.list_offsets(topic, at_ms)
    documents = [
        {**asdict(each), **({} if at_ms is None else {"offset_at_time": at_time.get(each.partition)})} for each in found
    ]
    service.show(
        documents,
        title=topic,
        columns=("partition", "log start", "high watermark", "records", *(() if at is None else (f"at {at}",))),
        rows=[
            (
                each.partition,
                each.log_start_offset,
                each.high_watermark,
                each.high_watermark - each.log_start_offset,
                *(() if at is None else (at_time.get(each.partition),)),
            )
            for each in found
        ],
    )
