"""`penstock topics rebalance`: tell which partitions are hot now, by which key, and what helps."""

from dataclasses import asdict
from typing import Any

import click

from penstock.admin.admin import Admin
from penstock.cli.completion import complete_topics
from penstock.cli.options.duration import DURATION
from penstock.cli.service import Service, service_command
from penstock.durations import duration_text
from penstock.heat_model import HotPartition


@click.command()
@click.argument("name", shell_complete=complete_topics)
@click.option("--since", type=DURATION, default="5m", show_default=True, help="Count the records of this last time.")
@service_command
def rebalance(service: Service, name: str, since: int) -> None:
    """Look at the newest records of the topic NAME, and advise: add partitions, spread a key, or nothing.

    It changes nothing.
    """
    heat = Admin(transport=service.transport).topic_heat(name, since)
    by_number = {each.partition: each for each in heat.hot}
    service.show(
        {
            "topic": name,
            "since_ms": since,
            "partitions": [{"partition": each, "records": count} for each, count in heat.records.items()],
            "hot": [_document(each) for each in heat.hot],
            "advice": heat.advice,
        },
        title=f"{name}, the last {duration_text(since)}: {heat.advice}",
        columns=("partition", "records", "a second", "hot key", "its share"),
        rows=[_row(number, count, since, by_number.get(number)) for number, count in heat.records.items()],
    )


def _document(hot: HotPartition) -> dict[str, Any]:
    return {**asdict(hot), "key": None if hot.key is None else hot.key.decode(errors="replace")}


def _row(number: int, count: int, since_ms: int, hot: HotPartition | None) -> tuple[object, ...]:
    if hot is None or hot.key is None:
        return number, count, round(1_000 * count / max(1, since_ms), 1), None, None
    key = hot.key.decode(errors="replace")
    return number, count, round(1_000 * count / max(1, since_ms), 1), key, f"{hot.key_records / hot.sampled:.0%}"
