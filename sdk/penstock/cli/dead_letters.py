"""`penstock dead-letters`: list and show dead-letter records, redrive them, and purge their topic."""

import json
import sys
import threading
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any, NamedTuple

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TimeRemainingColumn

from penstock.admin.admin import Admin
from penstock.cli.completion import complete_topics
from penstock.cli.options.settings import YES, confirm
from penstock.cli.records.json_lines import json_line
from penstock.cli.service import Service, service_command, time_text
from penstock.cli.share_groups import FILTER
from penstock.consumer.consumer import Consumer
from penstock.dead_letters.headers import Death, death_of
from penstock.errors import InvalidError, OffsetOutOfRangeError, UnknownTopicError
from penstock.model import ConsumerRecord, TopicPartition
from penstock.model.share import DeadLetterCounts, RedriveOptions
from penstock.system import monotonic_ms
from penstock.workers.signals import stopped_by_signals
from penstock_core.errors import ErrorCode
from penstock_core.text import counted

CALL_RECORDS_MAX = 500  # of one redrive call
_REASONS = {
    "not_matching": "did not match",
    "no_topic": "have no topic to go to",
    "undecodable": "are batches that cannot be decoded",
    "too_large": "are too large, or only name their record",
    "unreadable": "cannot be read now",
    "no_room": "are too many between records that moved before (redrive without a filter)",
}
_READ_MS = 10_000  # for records that the topic has


@click.group("dead-letters")
def dead_letters() -> None:
    """Look at records that no consumer could handle, send them back, or remove them."""


@dead_letters.command("list")
@click.argument("topic", required=False, shell_complete=complete_topics)
@click.option("--last", type=click.IntRange(1, 10_000), default=100, show_default=True, help="The newest N records.")
@click.option("--all", "has_done", is_flag=True, help="Also letters that a redrive has moved or dropped.")
@service_command
def list_dead_letters(service: Service, topic: str | None, last: int, has_done: bool) -> None:
    """List the newest open records of the dead-letter topic TOPIC; without TOPIC, the dead-letter topics.

    For example: penstock dead-letters list orders.dead
    """
    if topic is None:
        _list_topics(service)
        return
    counts = Admin(transport=service.transport).describe_dead_letters(topic)
    partitions = {each.partition: each for each in counts.partitions}
    newest = ((each, partitions[each.partition].is_open(each.offset)) for each in _newest(service, topic, last))
    shown = [(each, death_of(each.headers), is_open) for each, is_open in newest if has_done or is_open is not False]
    found = [(record, death, is_open) for record, death, is_open in shown if death.topic]
    others = f", {len(shown) - len(found):,} of them no letters" if len(found) < len(shown) else ""
    states = f"{counts.open:,} open, {counts.records - counts.open:,} done"
    service.show(
        [{**_row(record, death), "open": is_open} for record, death, is_open in found],
        title=f"{topic}: {states}; of the newest {last:,} records{others}",
        columns=("letter", "state", "from", "by", "tries", "time", "reason"),
        rows=[
            (
                f"{record.partition} {record.offset}",
                {True: "open", False: "done", None: None}[is_open],
                f"{death.topic}[{death.partition}] {death.offset}" if death.topic else None,
                death.group or death.subscription or None,
                death.deliveries if death.deliveries >= 0 else None,
                f"{time_text(death.time_ms)[:19]}Z" if death.time_ms >= 0 else None,
                death.reason or None,
            )
            for record, death, is_open in found
        ],
    )


@dead_letters.command()
@click.argument("topic", shell_complete=complete_topics)
@click.argument("partition", type=click.IntRange(min=0))
@click.argument("offset", type=click.IntRange(min=0))
@service_command
def show(service: Service, topic: str, partition: int, offset: int) -> None:
    """Show one record of the dead-letter topic TOPIC, and why it is there.

    For example: penstock dead-letters show orders.dead 0 17
    """
    record = _record_at(service, TopicPartition(topic, partition), offset)
    death = death_of(record.headers)
    line = json_line(record).decode().strip()
    if service.as_json:
        click.echo(json.dumps({"record": json.loads(line), "death": asdict(death)}))
        return
    reader = f"subscription {death.subscription}" if death.subscription else f"group {death.group}"
    service.say(None, f"{death.topic}[{death.partition}] offset {death.offset}, {reader}")
    service.say(None, f"after {death.deliveries} deliveries: {death.reason or 'no reason'}")
    click.echo(line)


@dead_letters.command()
@click.argument("topic", shell_complete=complete_topics)
@click.option("--to", metavar="TOPIC", help="Send the records there; by default to where each came from.")
@FILTER
@click.option("--rate", type=click.IntRange(min=1), metavar="N", help="Move at most N records a second.")
@click.option(
    "--records-max",
    type=click.IntRange(min=1),
    metavar="N",
    help="Stop after N records; more may move where an answer was lost.",
)
@click.option("--record", nargs=2, type=click.IntRange(min=0), metavar="PARTITION OFFSET", help="Only this record.")
@service_command
def redrive(
    service: Service,
    topic: str,
    to: str | None,
    policy: dict[str, Any] | None,
    rate: int | None,
    records_max: int | None,
    record: tuple[int, int] | None,
) -> None:
    """Send the records of the dead-letter topic TOPIC back to where they came from.

    Each record moves once, also if you stop the command and run it again: it goes on where it ended.

    For example: penstock dead-letters redrive orders.dead --record 0 17
    """
    done = _walk(service, topic, Pace(rate, records_max), {"to": to, "filter": policy, "record": record})
    service.say(
        {
            "moved": done.moved,
            "skipped": done.skipped.total(),
            "remaining": done.remaining,
            "skipped_by": dict(done.skipped),
        },
        f"moved {counted(done.moved, 'record')}; {done.remaining:,} remain"
        f"{_why(done.skipped) if done.is_complete and done.remaining else ''}",
    )


@dead_letters.command()
@click.argument("topic", shell_complete=complete_topics)
@FILTER
@click.option("--record", nargs=2, type=click.IntRange(min=0), metavar="PARTITION OFFSET", help="Only this record.")
@YES
@service_command
def drop(
    service: Service, topic: str, policy: dict[str, Any] | None, record: tuple[int, int] | None, yes: bool
) -> None:
    """Let records of the dead-letter topic TOPIC be done without a redrive.

    They stay readable until retention removes them. To send one changed, show it with --json, edit it, produce it, and
    drop the letter.

    For example: penstock dead-letters drop orders.dead --record 0 17 --yes
    """
    what = f"letter {record[0]} {record[1]}" if record else "all letters that match" if policy else "all letters"
    confirm(f"Drop {what} of {topic}, so that no redrive moves them?", yes=yes)
    done = _walk(service, topic, Pace(None, None), {"filter": policy, "record": record, "drop": True})
    service.say(
        {"dropped": done.moved, "remaining": done.remaining},
        f"dropped {counted(done.moved, 'record')}; {done.remaining:,} remain",
    )


class _Walked(NamedTuple):
    """The work of all calls. `is_complete`: they came to the end of the topic."""

    moved: int
    remaining: int
    skipped: Counter[str]
    is_complete: bool


def _walk(service: Service, topic: str, pace: "Pace", wish: RedriveOptions) -> _Walked:
    """Redrive until the end, a bound or a signal."""
    stop = threading.Event()
    moved = remaining = 0
    skipped: Counter[str] = Counter()
    is_complete = False
    admin = Admin(transport=service.transport)
    with stopped_by_signals(stop.set), _progress(is_shown=not service.as_json) as (progress, task):
        while not (is_complete or stop.is_set()) and (wanted := pace.next_call(moved)):
            wish["records_max"] = wanted
            done = admin.redrive(topic, **wish)
            moved, remaining, wish["cursor"] = moved + done.moved, done.remaining, done.cursor
            skipped.update(done.skipped_by)
            progress.update(task, completed=moved, total=moved + remaining)
            is_complete = done.cursor is None or not remaining
            if not is_complete:
                stop.wait(pace.pause_ms(moved) / 1_000)
    return _Walked(moved, remaining, skipped, is_complete)


def _why(skipped: Counter[str]) -> str:
    """The reasons why records stay, with their numbers: all that a redrive has passed over from the first one on."""
    told = [f"{count} {_REASONS.get(reason, reason)}" for reason, count in skipped.most_common()]
    return f": {', '.join(told)}" if told else ""


@dead_letters.command()
@click.argument("topic", shell_complete=complete_topics)
@YES
@service_command
def purge(service: Service, topic: str, yes: bool) -> None:
    """Remove all records that TOPIC holds now, for ever.

    For example: penstock dead-letters purge orders.dead
    """
    admin = Admin(transport=service.transport)
    ends = {partition: offset or 0 for partition, offset in admin.list_offsets(topic, "latest").items()}
    starts = admin.list_offsets(topic, "earliest")
    count = sum(end - (starts.get(partition) or 0) for partition, end in ends.items())
    confirm(f"Remove {counted(count, 'record')} of {topic}?", yes=yes)
    admin.truncate(topic, ends)
    service.say({"topic": topic, "purged": count}, f"removed {counted(count, 'record')} of {topic}")


class Pace:
    """The size of the next call, and the wait after it. No rate is no wait."""

    def __init__(self, rate: int | None, records_max: int | None) -> None:
        self._rate = rate
        self._records_max = records_max
        self._began_ms = monotonic_ms()

    def next_call(self, moved: int) -> int:
        """The records of the next call; 0 if enough have moved."""
        most = CALL_RECORDS_MAX if self._rate is None else min(CALL_RECORDS_MAX, self._rate)
        return most if self._records_max is None else min(most, self._records_max - moved)

    def pause_ms(self, moved: int) -> int:
        """The time until so many records are within the rate."""
        if self._rate is None:
            return 0
        return max(0, self._began_ms + moved * 1_000 // self._rate - monotonic_ms())


@contextmanager
def _progress(*, is_shown: bool) -> Iterator[tuple[Progress, TaskID]]:
    columns = ("redriven", BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    console = Console(stderr=True)
    with Progress(*columns, console=console, disable=not (is_shown and sys.stderr.isatty())) as progress:
        yield progress, progress.add_task("redriven", total=None)


def _list_topics(service: Service) -> None:
    admin = Admin(transport=service.transport)
    groups = _by_dead_letter_topic((each.group, each.config) for each in admin.list_share_groups())
    subscriptions = _by_dead_letter_topic((each.name, each.config) for each in admin.list_subscriptions())
    topics = sorted({*groups, *subscriptions})
    counts = {topic: _count(admin, topic) for topic in topics}
    service.show(
        [
            {
                "topic": topic,
                "groups": groups.get(topic, []),
                "subscriptions": subscriptions.get(topic, []),
                **_counted(counts[topic]),
            }
            for topic in topics
        ],
        title="dead-letter topics of share groups and subscriptions",
        columns=("topic", "group", "subscription", "records", "open", "done"),
        rows=[
            (
                topic,
                " ".join(groups.get(topic, ())) or None,
                " ".join(subscriptions.get(topic, ())) or None,
                *_counted(counts[topic]).values(),
            )
            for topic in topics
        ],
    )


def _by_dead_letter_topic(configs: Iterable[tuple[str, Mapping[str, Any]]]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for name, config in configs:
        topic = config.get("dead_letter_topic")
        if topic:
            found.setdefault(topic, []).append(name)
    return found


def _count(admin: Admin, topic: str) -> DeadLetterCounts | None:
    """The letters of the topic. None if it was deleted."""
    try:
        return admin.describe_dead_letters(topic)
    except UnknownTopicError:
        return None


def _counted(counts: DeadLetterCounts | None) -> dict[str, int | None]:
    if counts is None:
        return {"records": None, "open": None, "done": None}
    return {"records": counts.records, "open": counts.open, "done": counts.records - counts.open}


def _newest(service: Service, topic: str, last: int) -> list[ConsumerRecord]:
    with Consumer(transport=service.transport, wait="poll") as consumer:
        partitions = Admin(transport=service.transport).partitions([topic])
        starts, ends = consumer.beginning_offsets(partitions), consumer.end_offsets(partitions)
        wanted = {each: max(starts[each], ends[each] - last) for each in partitions if starts[each] < ends[each]}
        consumer.assign(wanted)
        for partition, offset in wanted.items():
            consumer.seek(partition, offset)
        found: list[ConsumerRecord] = []
        while any(consumer.position(each) < ends[each] for each in wanted):
            found += consumer.poll()
    return sorted(found, key=lambda each: (_time_ms(each), each.partition, each.offset), reverse=True)[:last]


def _record_at(service: Service, partition: TopicPartition, offset: int) -> ConsumerRecord:
    with Consumer(transport=service.transport, wait="poll", auto_offset_reset="none") as consumer:
        starts, ends = consumer.beginning_offsets([partition]), consumer.end_offsets([partition])
        if partition not in ends:
            raise InvalidError(ErrorCode.UNKNOWN_PARTITION, f"topic {partition.topic!r} has no such partition")
        place = f"{partition.topic}[{partition.partition}]"
        if not starts[partition] <= offset < ends[partition]:
            raise OffsetOutOfRangeError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"offset {offset}: {place} holds [{starts[partition]}, {ends[partition]})",
            )
        consumer.assign([partition])
        consumer.seek(partition, offset)
        found = consumer.poll(1, timeout_ms=_READ_MS)
    if not found or found[0].offset != offset:
        raise OffsetOutOfRangeError(ErrorCode.OFFSET_OUT_OF_RANGE, f"{place} has no record at offset {offset} any more")
    return found[0]


def _time_ms(record: ConsumerRecord) -> int:
    time_ms = death_of(record.headers).time_ms
    return record.timestamp_ms if time_ms < 0 else time_ms


def _row(record: ConsumerRecord, death: Death) -> dict[str, Any]:
    return {"partition": record.partition, "offset": record.offset, "death": asdict(death)}
