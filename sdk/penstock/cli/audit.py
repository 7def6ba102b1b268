"""`penstock audit`: who changed what, from the topic `_audit`."""

import json
from collections.abc import Iterator, Sequence
from typing import Any

import click

from penstock.cli.service import Service, service_command, time_text
from penstock.consumer.consumer import Consumer
from penstock.errors import NotFoundError
from penstock.model import ConsumerRecord, TopicPartition
from penstock_core.ids import AUDIT_TOPIC
from penstock_core.text import escaped

_PARTITION = TopicPartition(AUDIT_TOPIC, 0)
_LAST = 20
_POLL_MS = 5_000


@click.group()
def audit() -> None:
    """Look at the audit trail: who created, altered, deleted, reset or redrove what."""


@audit.command("list")
@click.option("--last", type=click.IntRange(1, 10_000), default=_LAST, show_default=True, help="So many changes.")
@click.option("--name", metavar="NAME", help="Only changes of resources with this name, among these.")
@service_command
def list_changes(service: Service, last: int, name: str | None) -> None:
    """Show the last changes, the newest first. A change appears about five minutes after it was made.

    For example: penstock audit list --last 20
    """
    found = [change for change in _newest(service, last) if name is None or _resource(change)[1] == name]
    service.show(
        found,
        title="changes",
        columns=("time", "principal", "address", "action", "resource", "result"),
        rows=[_row(change) for change in found],
    )


@audit.command()
@service_command
def tail(service: Service) -> None:
    """Write each change as a line of JSON when it appears, until you interrupt it.

    For example: penstock audit tail --json
    """
    with Consumer(transport=service.transport, wait="poll", auto_offset_reset="latest") as consumer:
        consumer.assign([_PARTITION])
        while True:
            for record in consumer.poll(timeout_ms=_POLL_MS):
                click.echo(escaped(json.dumps(_change(record))))


def _newest(service: Service, last: int) -> Sequence[dict[str, Any]]:
    """The last changes, the newest first; none where nothing was ever changed."""
    try:
        return [*reversed([*_read(service, last)])]
    except NotFoundError:
        return []


def _read(service: Service, last: int) -> Iterator[dict[str, Any]]:
    with Consumer(transport=service.transport, wait="poll", auto_offset_reset="earliest") as consumer:
        start, end = consumer.beginning_offsets([_PARTITION]), consumer.end_offsets([_PARTITION])
        consumer.assign([_PARTITION])
        consumer.seek(_PARTITION, max(start[_PARTITION], end[_PARTITION] - last))
        while consumer.position(_PARTITION) < end[_PARTITION]:
            yield from map(_change, consumer.poll())


def _change(record: ConsumerRecord) -> dict[str, Any]:
    found = json.loads(record.value or b"{}")
    return dict(found)


def _resource(change: dict[str, Any]) -> tuple[str, str]:
    resource = change.get("resource", {})
    return str(resource.get("kind", "")), str(resource.get("name", ""))


def _row(change: dict[str, Any]) -> tuple[object, ...]:
    return (
        time_text(change.get("time_ms", 0)),
        change.get("principal"),
        change.get("address"),
        change.get("action"),
        "/".join(_resource(change)),
        change.get("result"),
    )
