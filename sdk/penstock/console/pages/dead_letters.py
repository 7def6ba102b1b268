"""Dead letters: which topics hold some, why each record is there, redrive and purge; and what to do with one of them.

A list, or why there is none: a page with one right missing still shows the rest.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, TypeVar

from penstock.admin.partition_change import records_of
from penstock.console.background import ServiceDownError
from penstock.console.browsing import newest
from penstock.console.decoding import whole
from penstock.console.page import Asked, Moved, Page, Route, Shown, path_of
from penstock.console.pages.produce import NewRecord, stored
from penstock.console.pages.records import Row, record_of, record_path, row_of, whole_number
from penstock.console.paging import paged
from penstock.console.parsing import bytes_of, headers_json, headers_of_json, typed_form
from penstock.dead_letters.headers import Death, death_of
from penstock.errors import InvalidError
from penstock.model import ConsumerRecord, TopicPartition
from penstock.model.share import PartitionLetters
from penstock_core.errors import ErrorCode, PenstockError, shown
from penstock_core.limits import (
    CONSOLE_CELL_CHARACTERS_MAX,
    CONSOLE_HEADERS_MAX,
    CONSOLE_RECORDS_MAX,
    CONSOLE_TOP_ROWS,
    CONSOLE_VALUE_CHARACTERS_MAX,
    REQUEST_PARTITIONS_MAX,
)
from penstock_core.share.dead_letter import own_headers
from penstock_core.text import counted

_CALLS_MAX = 10  # of one click on redrive, 500 records each
_CALL_RECORDS_MAX = 500
Value = TypeVar("Value")


_NOT_MOVED = {
    "no_topic": "its headers name no topic, or that is gone, or you may not write it: give another topic",
    "undecodable": "it is a batch that cannot be decoded",
    "too_large": "it is too large, or only names its record",
    "unreadable": "no zone can read it now: try again later",
    "no_room": "too many letters before it have moved and stayed in turns: redrive without choosing",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetter:
    """A record of a dead-letter topic, and why it is there. `is_open` is None if that is not known."""

    row: Row
    death: Death
    is_open: bool | None

    @property
    def path(self) -> str:
        """The path of the letter's own page."""
        return _letter_path(self.row.record.topic, self.row.record.partition, self.row.record.offset)


def show_list(asked: Asked) -> Shown:
    """The dead-letter topics of share groups and subscriptions: two lists.

    The open letters of the first `CONSOLE_TOP_ROWS` topics on the page take a request each. The others' are on their
    own pages.
    """
    admin = asked.admin
    readers: dict[str, list[tuple[str, str]]] = {}
    lists = {
        "share-groups": tried(lambda: [(each.group, each.config) for each in admin.list_share_groups()]),
        "subscriptions": tried(lambda: [(each.name, each.config) for each in admin.list_subscriptions()]),
    }
    for kind, found in lists.items():
        for name, topic in _targets(found.value or ()):
            readers.setdefault(topic, []).append((kind, name))
    rows = paged(sorted(readers.items()), asked)
    counts = {topic: tried(partial(admin.describe_dead_letters, topic)) for topic, _ in rows.rows[:CONSOLE_TOP_ROWS]}
    return Shown(
        template="dead_letters.html",
        title="Dead letters",
        facts={
            "topics": rows,
            "counts": {topic: each.value for topic, each in counts.items()},
            "errors": [each.error for each in lists.values() if each.error is not None],
        },
    )


def show(asked: Asked) -> Shown:
    """The newest open letters of one topic, or all: one request for its offsets, one for the open ones, one fetch."""
    described = asked.admin.describe_topic(asked.path["topic"])
    name = described.topic.name
    counted = tried(lambda: asked.admin.describe_dead_letters(name))
    counts = {each.partition: each for each in counted.value.partitions} if counted.value else {}
    shows_all = bool(asked.word("all")) or counted.value is None
    starts = []
    for each in described.offsets:
        letters = counts.get(each.partition)
        begin: int | None = each.high_watermark - CONSOLE_RECORDS_MAX
        if not shows_all:
            begin = _open_start(letters) if letters else None
        if begin is not None and each.high_watermark > each.log_start_offset:
            starts.append((TopicPartition(name, each.partition), max(each.log_start_offset, begin)))
    records = newest(asked.prompt, starts[:REQUEST_PARTITIONS_MAX]) if starts else []
    found = [
        DeadLetter(row=row_of(each), death=death_of(each.headers), is_open=_is_open(counts, each)) for each in records
    ]
    return Shown(
        template="dead_letter_topic.html",
        title=f"Dead letters in {name}",
        facts={
            "topic": described.topic,
            "letters": [each for each in found if shows_all or each.is_open][:CONSOLE_RECORDS_MAX],
            "held": sum(map(records_of, described.offsets)),
            "counts": counted.value,
            "error": counted.error,
            "shows_all": shows_all,
            "cut": CONSOLE_CELL_CHARACTERS_MAX,
            "calls": _CALLS_MAX * _CALL_RECORDS_MAX,
        },
    )


def show_letter(asked: Asked) -> Shown:
    """One letter with its record, and what can be done with it: one fetch, and one request for its state."""
    record, _ = record_of(asked)
    counted = tried(lambda: asked.admin.describe_dead_letters(record.topic))
    counts = {each.partition: each for each in counted.value.partitions} if counted.value else {}
    headers = tuple(own_headers(record.headers))
    size = sum(len(part or b"") for part in (record.key, record.value)) + sum(
        len(name) + len(value or b"") for name, value in headers
    )
    key, key_form = typed_form(record.key, is_line=True) if record.key is not None else ("", "none")
    value, value_form = typed_form(record.value or b"")
    return Shown(
        template="letter.html",
        title=f"Dead letter {record.partition} / {record.offset:,} in {record.topic}",
        facts={
            "letter": DeadLetter(row=row_of(record), death=death_of(record.headers), is_open=_is_open(counts, record)),
            "error": counted.error,
            "key": whole(record.key),
            "value": whole(record.value),
            "cut": CONSOLE_CELL_CHARACTERS_MAX,
            "may_edit": size <= CONSOLE_VALUE_CHARACTERS_MAX and len(headers) <= CONSOLE_HEADERS_MAX,
            "typed": {
                "key": key,
                "key_form": key_form,
                "value": value,
                "value_form": value_form,
                "is_null": record.value is None,
                "headers": headers_json(headers),
            },
        },
    )


def redrive_letter(asked: Asked) -> Moved:
    """Send one letter back."""
    topic, letter = _confirmed_letter(asked)
    done = asked.admin.redrive(topic, to=asked.word("to") or None, record=letter)
    if not done.moved:
        reason = next((_NOT_MOVED.get(each, each) for each in done.skipped_by), "it was done before")
        raise InvalidError(ErrorCode.INVALID_REQUEST, f"the letter did not move: {reason}")
    return Moved(to=_letter_path(topic, *letter), said="Sent it back. The letter is done.")


def drop_letter(asked: Asked) -> Moved:
    """Let one letter be done."""
    topic, letter = _confirmed_letter(asked)
    if not asked.admin.redrive(topic, record=letter, drop=True).moved:
        raise InvalidError(ErrorCode.INVALID_REQUEST, "the letter was done before: nothing was changed")
    return Moved(to=_letter_path(topic, *letter), said="Dropped it. The letter is done.")


def send_changed(asked: Asked) -> Moved:
    """Send the record of the form, and drop the letter once it is stored. A letter that is done is not sent again."""
    topic, letter = _confirmed_letter(asked)
    counts = {each.partition: each for each in asked.admin.describe_dead_letters(topic).partitions}
    partition = counts.get(letter[0])
    if partition is None or partition.is_open(letter[1]) is False:
        raise InvalidError(ErrorCode.INVALID_REQUEST, "the letter was done before: nothing was sent")
    form, to = asked.form, asked.word("to")
    if to in ("", topic):
        raise InvalidError(ErrorCode.INVALID_REQUEST, f"to={shown(to)}: name the topic that the record goes to")
    record = NewRecord(
        value=None if form.get("is_null") else bytes_of(form.get("value", ""), form.get("value_form", ""), "value"),
        key=None if form.get("key_form") == "none" else bytes_of(form.get("key", ""), form.get("key_form", ""), "key"),
        headers=headers_of_json(form.get("headers", "")),
    )
    metadata = stored(asked, to, record)
    place = f"{to}[{metadata.partition}] at offset {metadata.offset:,}"
    try:
        is_dropped = asked.admin.redrive(topic, record=letter, drop=True).moved > 0
    except (PenstockError, ServiceDownError) as failure:
        error = failure.error if isinstance(failure, ServiceDownError) else failure
        raise PenstockError(
            error.code, f"the record is stored in {place}, but the letter was not dropped: {error.message}. Drop it"
        ) from failure
    done = "The letter is done."
    if not is_dropped:
        done = "But somebody else handled the letter meanwhile, so its record may be there twice: look for another one."
    return Moved(to=record_path(to, metadata.partition, metadata.offset), said=f"Stored in {place}. {done}")


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
    return Moved(to=path_of("dead-letters", topic), said=f"Moved {counted(moved, 'record')}; {remaining:,} remain.")


def purge(asked: Asked) -> Moved:
    """Remove the records that the topic holds now."""
    topic = asked.path["topic"]
    asked.check_name(topic)
    ends = {partition: offset or 0 for partition, offset in asked.admin.list_offsets(topic, "latest").items()}
    asked.admin.truncate(topic, ends)
    return Moved(to=path_of("dead-letters", topic), said=f"Removed all records that {topic} held.")


def _confirmed_letter(asked: Asked) -> tuple[str, tuple[int, int]]:
    """The topic, and the partition and offset of the letter. Raises InvalidError unless the user has typed the name."""
    topic = asked.path["topic"]
    asked.check_name(topic)
    return topic, (whole_number(asked.path["partition"]), whole_number(asked.path["offset"]))


def _is_open(counts: Mapping[int, PartitionLetters], record: ConsumerRecord) -> bool | None:
    partition = counts.get(record.partition)
    return None if partition is None else partition.is_open(record.offset)


def _open_start(letters: PartitionLetters) -> int | None:
    """The offset from which on the newest `CONSOLE_RECORDS_MAX` open letters are. None without open ones."""
    left, start = CONSOLE_RECORDS_MAX, None
    for start, end in reversed(letters.open_ranges):
        if end - start >= left:
            return end - left
        left -= end - start
    return start


def _letter_path(topic: str, partition: int, offset: int) -> str:
    return path_of("dead-letters", topic, partition, offset)


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
        Route(method="GET", path="/dead-letters/{topic}/{partition}/{offset}", answer=show_letter),
        Route(method="POST", path="/dead-letters/{topic}/{partition}/{offset}/redrive", answer=redrive_letter),
        Route(method="POST", path="/dead-letters/{topic}/{partition}/{offset}/drop", answer=drop_letter),
        Route(method="POST", path="/dead-letters/{topic}/{partition}/{offset}/send", answer=send_changed),
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
