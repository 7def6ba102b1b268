"""`penstock offsets` and `penstock groups`: where topics begin and end, and where groups are."""

import time
from dataclasses import asdict

import click

from penstock.admin import Admin
from penstock.cli.service import Service, parse_offsets, parse_time_ms, service_command, time_text
from penstock.model import TopicPartition


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


@click.group()
def groups() -> None:
    """Look at and move the offsets of groups."""


@groups.command("offsets")
@click.argument("group")
@click.option("--topic", metavar="TOPIC", help="Of this topic only.")
@service_command
def group_offsets(service: Service, group: str, topic: str | None) -> None:
    """Show what GROUP has committed, and how far that is behind."""
    admin = Admin(transport=service.transport)
    found = admin.group_offsets(group, topic)
    ends = {name: admin.list_offsets(name) for name in dict.fromkeys(each.topic for each in found)}
    lags = [(ends[each.topic].get(each.partition) or each.offset) - each.offset for each in found]
    service.show(
        [{**asdict(each), "lag": lag} for each, lag in zip(found, lags, strict=True)],
        title=group,
        columns=("topic", "partition", "offset", "lag", "committed at", "metadata"),
        rows=[
            (each.topic, each.partition, each.offset, lag, time_text(each.committed_at_ms), each.metadata)
            for each, lag in zip(found, lags, strict=True)
        ],
    )


@groups.command("commit")
@click.argument("group")
@click.argument("topic")
@click.argument("offsets", nargs=-1, required=True, metavar="PARTITION=OFFSET...")
@service_command
def group_commit(service: Service, group: str, topic: str, offsets: tuple[str, ...]) -> None:
    """Set the offsets of GROUP in TOPIC: of the next record to read. Running consumers do not notice."""
    wanted = {TopicPartition(topic, number): offset for number, offset in parse_offsets(offsets).items()}
    Admin(transport=service.transport).commit_group_offsets(
        group, wanted, metadata=f"penstock groups commit {time_text(time.time_ns() // 1_000_000)}"
    )
    service.say(
        [{"topic": topic, "partition": each.partition, "offset": offset} for each, offset in wanted.items()],
        f"committed {len(wanted)} offsets of {topic} for {group}",
    )
