"""Dead letters: which topics hold some, why each record is there, redrive and purge.

A list, or why there is none: a page with one right missing still shows the rest.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from penstock.console.browsing import newest
from penstock.console.page import Asked, Moved, Page, Route, Shown, path_of
from penstock.console.pages.records import Row, row_of
from penstock.console.paging import paged
from penstock.dead_letters.headers import Death, death_of
from penstock.model import TopicPartition
from penstock_core.errors import PenstockError
from penstock_core.limits import CONSOLE_CELL_CHARACTERS_MAX, CONSOLE_RECORDS_MAX, REQUEST_PARTITIONS_MAX

_CALLS_MAX = 10  # of one click on redrive, 500 records each
_CALL_RECORDS_MAX = 500
Value = TypeVar("Value")


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetter:
    """A record of a dead-letter topic, and why it is there."""

    row: Row
    death: Death


def show_list(asked: Asked) -> Shown:
    """The dead-letter topics of share groups and subscriptions. Counts are on each topic's page."""
    admin = asked.admin
    readers: dict[str, list[tuple[str, str]]] = {}
    lists = {
        "share-groups": tried(lambda: [(each.group, each.config) for each in admin.list_share_groups()]),
        "subscriptions": tried(lambda: [(each.name, each.config) for each in admin.list_subscriptions()]),
    }
    for kind, found in lists.items():
        for name, topic in _targets(found.value or ()):
            readers.setdefault(topic, []).append((kind, name))
    return Shown(
        template="dead_letters.html",
        title="Dead letters",
        facts={
            "topics": paged(sorted(readers.items()), asked),
            "errors": [each.error for each in lists.values() if each.error is not None],
        },
    )


def show(asked: Asked) -> Shown:
    """The newest records of one dead-letter topic: one request for its offsets, and one fetch."""
    described = asked.admin.describe_topic(asked.path["topic"])
    name = described.topic.name
    places = [each for each in described.offsets if each.high_watermark > each.log_start_offset]
    starts = [
        (TopicPartition(name, each.partition), max(each.log_start_offset, each.high_watermark - CONSOLE_RECORDS_MAX))
        for each in places[:REQUEST_PARTITIONS_MAX]
    ]
    records = newest(asked.prompt, starts)[:CONSOLE_RECORDS_MAX] if starts else []
    letters = [DeadLetter(row=row_of(each), death=death_of(each.headers)) for each in records]
    return Shown(
        template="dead_letter_topic.html",
        title=f"Dead letters in {name}",
        facts={
            "topic": described.topic,
            "letters": letters,
            "held": sum(each.high_watermark - each.log_start_offset for each in places),
            "cut": CONSOLE_CELL_CHARACTERS_MAX,
            "calls": _CALLS_MAX * _CALL_RECORDS_MAX,
        },
    )


def redrive(asked: Asked) -> Moved:
    """Send records back, up to `_CALLS_MAX` calls: a person waits. The next click goes on."""
    topic = asked.path["topic"]
    asked.check_name(topic)
    admin, to = asked.admin, asked.word("to") or None
    moved = remaining = 0
    cursor: str | None = None
    for _ in range(_CALLS_MAX):
        done = admin.redrive(topic, to=to, records_max=_CALL_RECORDS_MAX, cursor=cursor)
        moved, remaining, cursor = moved + done.moved, done.remaining, done.cursor
        if cursor is None or not remaining:
            break
    return Moved(to=path_of("dead-letters", topic), said=f"Moved {moved:,} records; {remaining:,} remain.")


def purge(asked: Asked) -> Moved:
    """Remove the records that the topic holds now."""
    topic = asked.path["topic"]
    asked.check_name(topic)
    ends = {partition: offset or 0 for partition, offset in asked.admin.list_offsets(topic, "latest").items()}
    asked.admin.truncate(topic, ends)
    return Moved(to=path_of("dead-letters", topic), said=f"Removed all records that {topic} held.")


def _targets(configs: Iterable[tuple[str, Mapping[str, Any]]]) -> Iterator[tuple[str, str]]:
    for name, config in configs:
        topic = config.get("dead_letter_topic")
        if topic:
            yield name, str(topic)


PAGE = Page(
    menu="Dead letters",
    path="/dead-letters",
    routes=(
        Route(method="GET", path="/dead-letters", answer=show_list),
        Route(method="GET", path="/dead-letters/{topic}", answer=show),
        Route(method="POST", path="/dead-letters/{topic}/redrive", answer=redrive),
        Route(method="POST", path="/dead-letters/{topic}/purge", answer=purge),
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tried(Generic[Value]):
    """A value, or the error for the reader in its place."""

    value: Value | None
    error: str | None


def tried(call: Callable[[], Value]) -> Tried[Value]:
    """What the call answers, or what it failed with."""
    try:
        return Tried(value=call(), error=None)
    except PenstockError as error:
        return Tried(value=None, error=f"{error.code.name}: {error.message}")
