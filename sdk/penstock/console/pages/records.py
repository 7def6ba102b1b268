"""Records of a topic: the newest, those from an offset or a time on, those with a key or matching a filter."""

from collections.abc import Sequence
from dataclasses import dataclass

from penstock.api import calls
from penstock.console.browsing import RecordPage, Wanted, browse, newest
from penstock.console.decoding import VIEWS, Decoded, cell, view_of, whole
from penstock.console.page import Asked, Page, Route, Shown, path_of, url
from penstock.console.pages.topic import views_of
from penstock.console.parsing import bytes_of, typed_ms
from penstock.errors import InvalidError, NotFoundError
from penstock.http.client import Client
from penstock.model import ConsumerRecord, Topic, TopicPartition
from penstock_core.errors import ErrorCode
from penstock_core.limits import (
    CONSOLE_CELL_CHARACTERS_MAX,
    CONSOLE_CELL_HEADERS_MAX,
    CONSOLE_HEADERS_MAX,
    CONSOLE_RECORDS_MAX,
    CONSOLE_SCAN_RECORDS_MAX,
    REQUEST_PARTITIONS_MAX,
)
from penstock_core.records.partitioner import partition_for_key
from penstock_core.share.dead_letter import burials_of

_ALL = "all"
_EACH_MIN = 5  # records of each partition, of which the newest are shown


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A record as the table shows it."""

    record: ConsumerRecord
    path: str
    key: Decoded
    value: Decoded
    headers: Sequence[tuple[str, Decoded]]
    more_headers: int


def row_of(record: ConsumerRecord, view: str = "auto") -> Row:
    """The record with its parts decoded."""
    chosen = view_of(view)
    return Row(
        record=record,
        path=record_path(record.topic, record.partition, record.offset),
        key=cell(record.key, chosen),
        value=cell(record.value, chosen),
        headers=[
            (name[:CONSOLE_CELL_CHARACTERS_MAX], cell(value, chosen))
            for name, value in record.headers[:CONSOLE_CELL_HEADERS_MAX]
        ],
        more_headers=max(0, len(record.headers) - CONSOLE_CELL_HEADERS_MAX),
    )


def record_path(topic: str, partition: int, offset: int) -> str:
    """The path of one record's own page."""
    return path_of("topics", topic, "records", partition, offset)


def show(asked: Asked) -> Shown:
    """One page of records: three requests, and three fetches at most."""
    topic = Client(asked.prompt).call(calls.topic_metadata(asked.path["topic"]))
    key = _key(asked)
    partition = _partition(asked, topic, key)
    filter_text = asked.word("filter") or None
    facts: dict[str, object] = {
        "topic": topic,
        "views": views_of(topic.name),
        "asked": asked,
        "partition": _ALL if partition is None else str(partition),
        "view": view_of(asked.word("view")),
        "all_views": VIEWS,
        "page": None,
        "older": None,
        "newer": None,
        "left_out": max(0, topic.partitions - REQUEST_PARTITIONS_MAX),
    }
    if partition is None:
        records = _newest(asked, topic, filter_text)
    else:
        page = browse(asked.prompt, _wanted(asked, TopicPartition(topic.name, partition), key, filter_text))
        records = [*page.records]
        facts |= {"page": page, **_links(asked, page, partition, has_key=key is not None)}
    facts["rows"] = [row_of(record, asked.word("view")) for record in records]
    return Shown(template="records.html", title=topic.name, facts=facts)


def show_record(asked: Asked) -> Shown:
    """One record: one fetch."""
    record, page = record_of(asked)
    place, offset = TopicPartition(record.topic, record.partition), record.offset
    view = view_of(asked.word("view"))
    return Shown(
        template="record.html",
        title=f"{place.topic} [{place.partition}] at {offset:,}",
        facts={
            "record": record,
            "key": whole(record.key, view),
            "value": whole(record.value, view),
            "headers": [
                (name[:CONSOLE_CELL_CHARACTERS_MAX], cell(value, view))
                for name, value in record.headers[:CONSOLE_HEADERS_MAX]
            ],
            "view": view,
            "all_views": VIEWS,
            "asked": asked,
            "path": record_path(*place, offset),
            "letter": path_of("dead-letters", *place, offset) if burials_of(record.headers) else None,
            "previous": record_path(*place, offset - 1) if offset > page.log_start_offset else None,
            "next": record_path(*place, page.next_offset) if page.next_offset < page.high_watermark else None,
            "around": url(
                path_of("topics", place.topic) + "/records",
                partition=place.partition,
                at="offset",
                offset=max(0, offset - CONSOLE_RECORDS_MAX // 2),
            ),
        },
    )


def record_of(asked: Asked) -> tuple[ConsumerRecord, RecordPage]:
    """The record that the path names, and the page that it was read with: one fetch. Raises NotFoundError."""
    place = TopicPartition(asked.path["topic"], whole_number(asked.path["partition"]))
    offset = whole_number(asked.path["offset"])
    page = browse(asked.prompt, Wanted(place=place, offset=offset, records_max=1))
    record = next((each for each in page.records if each.offset == offset), None)
    if record is None:
        raise NotFoundError(
            ErrorCode.OFFSET_OUT_OF_RANGE,
            f"partition {place.partition} of {place.topic} has no record at offset {offset}: it holds "
            f"[{page.log_start_offset}, {page.high_watermark}), and compaction may have removed records in between",
        )
    return record, page


def _key(asked: Asked) -> bytes | None:
    text = asked.query.get("key", "")
    return bytes_of(text, asked.word("key_form"), "key") if text else None


def _partition(asked: Asked, topic: Topic, key: bytes | None) -> int | None:
    """The partition that is asked for; that of the key, if a key is; else None for all."""
    text = asked.word("partition")
    if text not in ("", _ALL):
        return whole_number(text)
    if key is not None:
        return topic.first_writable_partition + partition_for_key(key, topic.writable_partitions)
    return 0 if topic.partitions == 1 or asked.word("at") in ("oldest", "offset", "time") else None


def _wanted(asked: Asked, place: TopicPartition, key: bytes | None, filter_text: str | None) -> Wanted:
    return Wanted(place=place, offset=_start(asked, place, has_key=key is not None), filter=filter_text, key=key)


def _start(asked: Asked, place: TopicPartition, *, has_key: bool) -> int:
    """The offset to begin at: one request unless it is given."""
    at = asked.word("at")
    if at == "offset":
        return asked.number("offset", 0)
    if at == "oldest":
        return 0
    client = Client(asked.prompt)
    if at == "time":
        timestamp_ms = typed_ms(asked.word("time"), asked.now_ms)
        first = client.call(calls.list_offsets(place.topic, timestamp_ms, place.partition)).get(place.partition)
        if first is not None:
            return first.offset
    end = client.call(calls.list_offsets(place.topic, "latest", place.partition)).get(place.partition)
    if end is None:
        return 0
    return (
        end.offset
        if at == "time"
        else max(0, end.offset - (CONSOLE_SCAN_RECORDS_MAX if has_key else CONSOLE_RECORDS_MAX))
    )


def _newest(asked: Asked, topic: Topic, filter_text: str | None) -> list[ConsumerRecord]:
    """The newest records of all partitions: one request for their ends, and one fetch."""
    described = asked.admin.describe_topic(topic.name)
    each_max = max(_EACH_MIN, -(-CONSOLE_RECORDS_MAX // max(1, len(described.offsets))))
    starts = [
        (TopicPartition(topic.name, each.partition), max(each.log_start_offset, each.high_watermark - each_max))
        for each in described.offsets[:REQUEST_PARTITIONS_MAX]
        if each.high_watermark > each.log_start_offset
    ]
    return newest(asked.prompt, starts, filter_text)[:CONSOLE_RECORDS_MAX] if starts else []


def _links(asked: Asked, page: RecordPage, partition: int, *, has_key: bool) -> dict[str, str | None]:
    """The pages before and behind this one."""
    step = CONSOLE_SCAN_RECORDS_MAX if has_key else CONSOLE_RECORDS_MAX

    def at(offset: int) -> str:
        return asked.url(partition=partition, at="offset", offset=offset, time=None)

    older = (
        at(max(page.log_start_offset, page.start_offset - step)) if page.start_offset > page.log_start_offset else None
    )
    return {"older": older, "newer": None if page.is_at_end else at(page.next_offset)}


def whole_number(text: str) -> int:
    """The number of a part of a path. Raises InvalidError."""
    if not (text.isascii() and text.isdigit() and len(text) < 20):
        raise InvalidError(ErrorCode.INVALID_REQUEST, f"{text!r:.60} is no whole number from 0")
    return int(text)


PAGE = Page(
    menu=None,
    path="/topics",
    routes=(
        Route(method="GET", path="/topics/{topic}/records", answer=show),
        Route(method="GET", path="/topics/{topic}/records/{partition}/{offset}", answer=show_record),
    ),
)
