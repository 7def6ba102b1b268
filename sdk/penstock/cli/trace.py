"""`penstock trace`: what happened to one record."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any, NamedTuple

import click

from penstock.admin.admin import Admin
from penstock.api.record_trace import (
    CONSUMERS_MAX,
    RecordTrace,
    TracedByGroup,
    TracedBySubscription,
    trace_record,
)
from penstock.cli.completion import complete_topics
from penstock.cli.service import Service, service_command, time_text
from penstock.consumer.consumer import Consumer
from penstock.dead_letters.headers import Death, death_of
from penstock.errors import AccessDeniedError, UnknownTopicError
from penstock.http.client import Client
from penstock.model import TopicPartition
from penstock_core.share.dead_letter import HEADER_PREFIX
from penstock_core.text import counted

_PLACE = re.compile(r"(?P<topic>.+)/(?P<partition>[0-9]{1,5})/(?P<offset>[0-9]{1,19})", re.ASCII)
_SHOWN = 48  # characters of a key, and of a header's name and value
_HEADERS_SHOWN = 10
_KINDS = {
    "zonal": "object",
    "archive": "object of the archive",
    "inline": "item of DynamoDB",
    "expiring": "item of DynamoDB with a TTL",
}


class Letter(NamedTuple):
    """A dead letter of the record. `is_open` is None if the service does not tell."""

    topic: str
    partition: int
    offset: int
    is_open: bool | None
    death: Death


@click.command()
@click.argument("place", nargs=-1, required=True, metavar="TOPIC/PARTITION/OFFSET", shell_complete=complete_topics)
@click.option(
    "--letters",
    type=click.IntRange(0, 1_000_000),
    default=10_000,
    show_default=True,
    metavar="N",
    help="Search the newest N offsets of each partition of the dead-letter topics.",
)
@click.option("--dead-letters", "extra", multiple=True, metavar="TOPIC", help="Search this topic for a letter, too.")
@service_command
def trace(service: Service, place: tuple[str, ...], letters: int, extra: tuple[str, ...]) -> None:
    """Tell where one record lies, who has handled it, and who has not. You may also give TOPIC PARTITION OFFSET.

    For example: penstock trace orders/0/17
    """
    topic, partition, offset = parse_place(place)
    found = Client(service.transport).call(trace_record(topic, partition, offset, consumers_max=CONSUMERS_MAX))
    searched = sorted({*found.dead_letter_topics, *extra} - {topic})
    hits = [each for name in searched for each in _letters(service, found, name, letters)]
    if service.as_json:
        document = {**asdict(found), "letters": [{**each._asdict(), "death": asdict(each.death)} for each in hits]}
        service.say(document, "")
        return
    service.say(None, *_heading(found))
    _show_consumers(service, found)
    for each in hits:
        state = {True: "open", False: "done", None: "a"}[each.is_open]
        reader = f"subscription {each.death.subscription}" if each.death.subscription else f"group {each.death.group}"
        service.say(
            None,
            f"{state} dead letter {each.topic}/{each.partition}/{each.offset}",
            f"  by {reader} after {each.death.deliveries} deliveries: {each.death.reason or 'no reason'}",
        )
    if not hits:
        where = f"the newest {letters:,} offsets of {', '.join(searched)}" if searched else "no dead-letter topic"
        service.say(None, f"no dead letter: searched {where}")


def parse_place(place: tuple[str, ...]) -> tuple[str, int, int]:
    """Topic, partition and offset of `orders/0/17`, or of three words. Raises BadParameter for other text."""
    text = "/".join(place)
    match = _PLACE.fullmatch(text) if len(place) in (1, 3) else None
    if match is None:
        given = " ".join(place)
        raise click.BadParameter(
            f"{given!r:.100}: give TOPIC/PARTITION/OFFSET, such as orders/0/17", param_hint="PLACE"
        )
    return match["topic"], int(match["partition"]), int(match["offset"])


def _heading(found: RecordTrace) -> Iterator[str]:
    place = found.place
    yield f"{found.topic}[{found.partition}] offset {found.offset}"
    yield f"appended   {time_text(place.appended_ms)}"
    yield f"append     {_append_text(found)}"
    yield f"lies in    {_KINDS.get(place.kind, place.kind)} {place.segment}"
    zones = f"; zones {' '.join(place.zones)} at the append" if place.zones else ""
    yield f"           {place.length:,} bytes from byte {place.position:,}{zones}"
    if found.record is None:
        yield f"record     {found.unread or 'compaction has removed it'}"
        return
    record = found.record
    yield f"timestamp  {_time(record['timestamp_ms'])}"
    yield f"key        {_content(record, 'key')}"
    headers = record["headers"]
    for name, value in headers[:_HEADERS_SHOWN]:
        text = value if isinstance(value, str) else "null" if value is None else "bytes"
        yield f"header     {_short(name)}: {_short(text)}"
    if len(headers) > _HEADERS_SHOWN:
        yield f"           and {len(headers) - _HEADERS_SHOWN} more headers"
    yield f"value      {_value_size(record)}"


def _append_text(found: RecordTrace) -> str:
    """The offsets that came together, and their producer. A ref of compaction covers several appends."""
    place = found.place
    if place.producer_id is None:
        return f"offsets {place.start_offset} to {place.end_offset - 1}, from no idempotent producer"
    return (
        f"offsets {place.start_offset} to {place.end_offset - 1}, producer {place.producer_id} "
        f"epoch {place.producer_epoch}"
    )


def _show_consumers(service: Service, found: RecordTrace) -> None:
    """A table for each kind of consumer, or a line that there is none."""
    for kind, none, columns, rows in _consumers(found):
        if rows:
            service.show(None, title=kind, columns=columns, rows=rows)
        else:
            service.say(None, f"{kind}: {none}")
    if found.left_out:
        service.say(None, f"{found.left_out:,} consumers are left out: a trace asks for {CONSUMERS_MAX} at most")


def _consumers(found: RecordTrace) -> Iterator[tuple[str, str, Sequence[str], Sequence[Sequence[object]]]]:
    groups = [(g.group, _passed(g), g.offset, g.lag, _time(g.committed_at_ms)) for g in found.groups]
    yield "groups", "none has committed here", ("group", "state", "offset", "lag", "committed at"), groups
    share_groups = [
        (
            each.group,
            f"{each.state}, to dead letters" if each.is_dead else each.state,
            each.deliveries,
            None if each.consumer is None else each.consumer or "(no name)",
            None if each.until_ms is None else _time(each.until_ms),
            each.reason or None,
        )
        for each in found.share_groups
    ]
    yield "share groups", "none reads the topic", ("group", "state", "tries", "by", "until", "reason"), share_groups
    subscriptions = [
        (
            each.subscription,
            _passed(each) + (", paused" if each.state == "paused" else ""),
            each.offset,
            each.lag,
            each.last_result if each.last_error is None else f"{each.last_result}: {each.last_error}",
        )
        for each in found.subscriptions
    ]
    yield "subscriptions", "none reads the topic", ("subscription", "state", "offset", "lag", "result"), subscriptions


def _letters(service: Service, found: RecordTrace, name: str, newest: int) -> Iterator[Letter]:
    """The letters of the record among the newest offsets of a topic. None of a topic that was deleted, or is hidden."""
    policy = {
        f"{HEADER_PREFIX}topic": [found.topic],
        f"{HEADER_PREFIX}partition": [str(found.partition)],
        f"{HEADER_PREFIX}offset": [str(found.offset)],
    }
    admin = Admin(transport=service.transport)
    try:
        counts = {each.partition: each for each in admin.describe_dead_letters(name).partitions}
        with Consumer(transport=service.transport, wait="poll", filter=policy) as consumer:
            partitions = admin.partitions([name])
            starts, ends = consumer.beginning_offsets(partitions), consumer.end_offsets(partitions)
            wanted = {each: max(starts[each], ends[each] - newest) for each in partitions}
            wanted = {each: start for each, start in wanted.items() if start < ends[each]}
            consumer.assign(wanted)
            for partition, start in wanted.items():
                consumer.seek(partition, start)
            while _is_below(consumer, wanted, ends):
                for each in consumer.poll():
                    counted = counts.get(each.partition)
                    is_open = None if counted is None else counted.is_open(each.offset)
                    yield Letter(name, each.partition, each.offset, is_open, death_of(each.headers))
    except (AccessDeniedError, UnknownTopicError) as error:
        click.echo(f"{name} was not searched: {error}", err=True)


def _is_below(consumer: Consumer, wanted: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]) -> bool:
    return any(consumer.position(each) < ends[each] for each in wanted)


def _passed(consumer: TracedByGroup | TracedBySubscription) -> str:
    return "passed" if consumer.has_passed else "to come"


def _time(timestamp_ms: int) -> str:
    """The time to the second, for tables of 80 columns."""
    return f"{time_text(timestamp_ms)[:19]}Z" if timestamp_ms >= 0 else "none"


def _content(record: Mapping[str, Any], name: str) -> str:
    if f"{name}_base64" in record:
        return f"base64 {_short(record[f'{name}_base64'])}"
    return "none" if record[name] is None else _short(record[name])


def _value_size(record: Mapping[str, Any]) -> str:
    if "value_base64" in record:
        text = record["value_base64"]
        return counted(len(text) * 3 // 4 - text[-2:].count("="), "byte")
    return "none: a tombstone" if record["value"] is None else counted(len(record["value"].encode()), "byte")


def _short(text: str) -> str:
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}… ({len(text):,} characters)"
