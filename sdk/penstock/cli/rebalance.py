"""`penstock topics rebalance`: tell which partitions are hot now, by which key, and what helps."""

from dataclasses import asdict
from typing import Any

import click

from penstock.admin.admin import Admin
from penstock.cli.completion import complete_topics
from penstock.cli.options.duration import DURATION
from penstock.cli.options.hot_partitions import HotPartition, advice, hot_partitions, judged
from penstock.cli.service import Service, service_command
from penstock.consumer.consumer import Consumer
from penstock.durations import duration_text
from penstock.model import TopicDescription, TopicPartition
from penstock.system import wall_clock_ms
from penstock_core.limits import HOT_SAMPLE_RECORDS_MAX, HOT_SAMPLED_PARTITIONS_MAX


@click.command()
@click.argument("name", shell_complete=complete_topics)
@click.option("--since", type=DURATION, default="5m", show_default=True, help="Count the records of this last time.")
@service_command
def rebalance(service: Service, name: str, since: int) -> None:
    """Look at the newest records of the topic NAME, and advise: add partitions, spread a key, or nothing.

    It changes nothing.
    """
    described = Admin(transport=service.transport).describe_topic(name)
    counts = _counts(service, described, since)
    hot = [
        judged(partition, counts[partition], _newest_keys(service, described, partition))
        for partition in hot_partitions(counts)[:HOT_SAMPLED_PARTITIONS_MAX]
    ]
    advised = advice(name, described.topic.writable_partitions, hot)
    by_number = {each.partition: each for each in hot}
    service.show(
        {
            "topic": name,
            "since_ms": since,
            "partitions": [{"partition": each, "records": count} for each, count in counts.items()],
            "hot": [_document(each) for each in hot],
            "advice": advised,
        },
        title=f"{name}, the last {duration_text(since)}: {advised}",
        columns=("partition", "records", "a second", "hot key", "its share"),
        rows=[_row(number, count, since, by_number.get(number)) for number, count in counts.items()],
    )


def _counts(service: Service, described: TopicDescription, since_ms: int) -> dict[int, int]:
    """The records of each writable partition since then. One call."""
    active = [each for each in described.offsets if each.state == "active"]
    name, time_ms = described.topic.name, max(0, wall_clock_ms() - since_ms)
    found = Admin(transport=service.transport).offsets_for_times(
        {TopicPartition(name, each.partition): time_ms for each in active}
    )
    firsts = {partition.partition: first for partition, first in found.items()}
    return {
        each.partition: 0 if (first := firsts.get(each.partition)) is None else each.high_watermark - first.offset
        for each in active
    }


def _newest_keys(service: Service, described: TopicDescription, partition: int) -> list[bytes | None]:
    """The keys of the newest records of the partition, `HOT_SAMPLE_RECORDS_MAX` at most."""
    bounds = described.offsets[partition]
    place = TopicPartition(described.topic.name, partition)
    keys: list[bytes | None] = []
    with Consumer(transport=service.transport, wait="poll") as consumer:
        consumer.assign([place])
        consumer.seek(place, max(bounds.log_start_offset, bounds.high_watermark - HOT_SAMPLE_RECORDS_MAX))
        while len(keys) < HOT_SAMPLE_RECORDS_MAX and consumer.position(place) < bounds.high_watermark:
            keys += [each.key for each in consumer.poll(HOT_SAMPLE_RECORDS_MAX - len(keys))]
    return keys


def _document(hot: HotPartition) -> dict[str, Any]:
    return {**asdict(hot), "key": None if hot.key is None else hot.key.decode(errors="replace")}


def _row(number: int, count: int, since_ms: int, hot: HotPartition | None) -> tuple[object, ...]:
    if hot is None or hot.key is None:
        return number, count, round(1_000 * count / max(1, since_ms), 1), None, None
    key = hot.key.decode(errors="replace")
    return number, count, round(1_000 * count / max(1, since_ms), 1), key, f"{hot.key_records / hot.sampled:.0%}"
