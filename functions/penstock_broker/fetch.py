"""Fetch: the batches of many partitions from their offsets on, waiting for the first if asked to."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from penstock_broker.broker import Broker
from penstock_broker.read_range import MAY_BE_REMOVED, read_range
from penstock_broker.walk_pages import walk_pages
from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.ids import Offset
from penstock_core.index import Head
from penstock_core.keys import PartitionKey
from penstock_core.limits import FETCH_REFS_MAX, REQUEST_PARTITIONS_MAX
from penstock_core.read_plan import SegmentRange, choose, join_ranges
from penstock_core.record_batch import stamp, walk
from penstock_core.ref import LocatedRef

_POLL_MS_MIN = 10.0
_POLL_MS_MAX = 200.0
_POLL_GROWTH = 1.5
_PAGES_PER_QUERY = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchEntry:
    """Where to read one topic-partition from, and how much of it at most."""

    topic: str
    partition: int
    offset: int
    max_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Fetched:
    """Whole batches with true base offsets; the first may start below the offset asked for."""

    log_start_offset: Offset
    high_watermark: Offset
    next_offset: Offset
    data: bytearray


@dataclass(frozen=True, slots=True, kw_only=True)
class _Reading:
    """A partition that has something to read, as its head was."""

    entry: FetchEntry
    key: PartitionKey
    head: Head


@dataclass(frozen=True, slots=True, kw_only=True)
class _Plan:
    """The refs to read of a partition, in order."""

    reading: _Reading
    refs: Sequence[LocatedRef]


def fetch(
    broker: Broker, entries: Sequence[FetchEntry], *, max_bytes: int, min_bytes: int, wait_ms: int
) -> list[Fetched | PenstockError]:
    """One result per entry, in order.

    `max_bytes` is kept, except that the first batch of the first partition with data is always there. At the tail it
    costs one read of all heads and the ranged gets, and while it waits one such read at growing intervals up to 200 ms;
    below the tail one query more per partition. OFFSET_OUT_OF_RANGE carries the bounds.
    """
    if not entries or len(entries) > REQUEST_PARTITIONS_MAX:
        raise PenstockError(
            ErrorCode.INVALID_REQUEST,
            f"{len(entries)} topic-partitions in one fetch: ask for 1 to {REQUEST_PARTITIONS_MAX}",
        )
    readings = _wait(broker, entries, min(min_bytes, max_bytes), wait_ms)
    plans = _choose(broker, readings, max_bytes)
    contents = _read(broker, [located for plan in plans if isinstance(plan, _Plan) for located in plan.refs])
    results: list[Fetched | PenstockError] = []
    for plan in plans:
        if isinstance(plan, PenstockError):
            results.append(plan)
            continue
        result = _assemble(plan, contents, min(max_bytes, plan.reading.entry.max_bytes))
        if isinstance(result, Fetched):
            max_bytes = max(0, max_bytes - len(result.data))
        results.append(result)
    return _explain(broker, readings, results)


def _wait(
    broker: Broker, entries: Sequence[FetchEntry], min_bytes: int, wait_ms: int
) -> list[_Reading | PenstockError]:
    """Reads the heads until `min_bytes` are there, a partition has an error, or the time is up."""
    deadline_ms = broker.clock.monotonic_ms() + wait_ms
    pause_ms = _POLL_MS_MIN
    while True:
        readings = _look(broker, entries)
        remaining_ms = deadline_ms - broker.clock.monotonic_ms()
        if remaining_ms <= 0 or _is_enough(readings, min_bytes):
            return readings
        broker.clock.sleep_ms(min(pause_ms, remaining_ms))
        pause_ms = min(pause_ms * _POLL_GROWTH, _POLL_MS_MAX)


def _look(broker: Broker, entries: Sequence[FetchEntry]) -> list[_Reading | PenstockError]:
    found = [_find(broker, entry) for entry in entries]
    heads = broker.log.heads(list(dict.fromkeys(key for key in found if isinstance(key, PartitionKey))))
    missing = [index for index, key in enumerate(found) if isinstance(key, PartitionKey) and key not in heads]
    if missing:
        # Deleted, and perhaps created again, since the topic was looked up: ask once more what the name means.
        for index in missing:
            broker.directory.forget(entries[index].topic)
        for index in missing:
            found[index] = _find(broker, entries[index])
        heads = {**heads, **broker.log.heads([key for key in found if isinstance(key, PartitionKey)])}
    return [_reading(entry, key, heads) for entry, key in zip(entries, found, strict=True)]


def _find(broker: Broker, entry: FetchEntry) -> PartitionKey | PenstockError:
    try:
        return broker.directory.find_partition(entry.topic, entry.partition)[1]
    except PenstockError as error:
        return error


def _reading(
    entry: FetchEntry, key: PartitionKey | PenstockError, heads: Mapping[PartitionKey, Head]
) -> _Reading | PenstockError:
    if isinstance(key, PenstockError):
        return key
    head = heads.get(key)
    if head is None:
        return PenstockError(ErrorCode.UNKNOWN_TOPIC, f"topic {entry.topic!r} is being deleted")
    if not head.log_start_offset <= entry.offset <= head.high_watermark:
        return PenstockError(
            ErrorCode.OFFSET_OUT_OF_RANGE,
            f"offset {entry.offset} of partition {entry.partition} of topic {entry.topic!r} is out of range: "
            f"it holds [{head.log_start_offset}, {head.high_watermark})",
            log_start_offset=head.log_start_offset,
            high_watermark=head.high_watermark,
        )
    return _Reading(entry=entry, key=key, head=head)


def _is_enough(readings: Sequence[_Reading | PenstockError], min_bytes: int) -> bool:
    available = 0
    for reading in readings:
        if isinstance(reading, PenstockError) or reading.entry.offset < reading.head.tail_base:
            return True
        available += sum(
            located.ref.length for located in reading.head.located_tail() if located.end_offset > reading.entry.offset
        )
    return available >= min_bytes


def _choose(
    broker: Broker, readings: Sequence[_Reading | PenstockError], max_bytes: int
) -> list[_Plan | PenstockError]:
    """What to read for each partition, in order, within the budget of bytes and of gets."""
    refs_left = FETCH_REFS_MAX
    is_first = True
    plans: list[_Plan | PenstockError] = []
    for reading in readings:
        if isinstance(reading, PenstockError):
            plans.append(reading)
            continue
        refs: list[LocatedRef] = []
        if refs_left and (max_bytes > 0 or is_first):
            budget = min(max_bytes, reading.entry.max_bytes)
            try:
                candidates = _candidates(broker, reading, budget, refs_left)
            except PenstockError as error:
                plans.append(error)
                continue
            refs = choose(candidates, reading.entry.offset, budget, refs_left, is_first=is_first)
        max_bytes -= sum(located.ref.length for located in refs)
        refs_left -= len(refs)
        is_first = is_first and not refs
        plans.append(_Plan(reading=reading, refs=refs))
    return plans


def _candidates(broker: Broker, reading: _Reading, max_bytes: int, max_refs: int) -> list[LocatedRef]:
    """Refs from the entry's offset on: from pages as far as they are needed, then from the tail."""
    refs: list[LocatedRef] = []
    offset = Offset(reading.entry.offset)
    for page in walk_pages(broker.log, reading.key, reading.head, offset, _PAGES_PER_QUERY):
        refs += [located for located in page.located() if offset < located.end_offset]
        if len(refs) >= max_refs or sum(located.ref.length for located in refs) > max_bytes:
            return refs
    return refs + list(reading.head.located_tail())


def _read(broker: Broker, refs: Sequence[LocatedRef]) -> dict[LocatedRef, memoryview | PenstockError]:
    """The bytes of every ref, or why they cannot be had."""
    contents = _read_ranges(broker, join_ranges(refs))
    # No zone had the whole range right; that does not mean that one of them has not this ref's part of it.
    torn = [
        located
        for located, content in contents.items()
        if isinstance(content, PenstockError) and content.code is ErrorCode.CORRUPT_SEGMENT
    ]
    return contents | _read_ranges(broker, [single for located in torn for single in join_ranges([located])])


def _read_ranges(broker: Broker, ranges: Sequence[SegmentRange]) -> dict[LocatedRef, memoryview | PenstockError]:
    contents: dict[LocatedRef, memoryview | PenstockError] = {}
    if ranges:
        broker.zone_directory.find_for_reading()  # here, once, for all the reads that go by what is remembered
    results = broker.parallel.map(lambda wanted: read_range(broker, wanted), ranges)
    for wanted, data in zip(ranges, results, strict=True):
        for located in wanted.refs:
            start = located.ref.position - wanted.position
            contents[located] = (
                data if isinstance(data, PenstockError) else memoryview(data)[start : start + located.ref.length]
            )
    return contents


def _explain(
    broker: Broker, readings: Sequence[_Reading | PenstockError], results: list[Fetched | PenstockError]
) -> list[Fetched | PenstockError]:
    """What could not be read because retention, truncation or the deletion of its topic removed it, told as that.

    Costs a further read of heads, only where something failed.
    """
    failed = {
        index: reading
        for index, (reading, result) in enumerate(zip(readings, results, strict=True))
        if isinstance(reading, _Reading) and isinstance(result, PenstockError) and result.code in MAY_BE_REMOVED
    }
    if failed:
        try:
            heads = broker.log.heads([reading.key for reading in failed.values()])
        except PenstockError:
            return results
        for index, reading in failed.items():
            now = _reading(reading.entry, reading.key, heads)
            results[index] = now if isinstance(now, PenstockError) else results[index]
    return results


def _assemble(
    plan: _Plan,
    contents: Mapping[LocatedRef, memoryview | PenstockError],
    max_bytes: int,
) -> Fetched | PenstockError:
    """Whole batches from the entry's offset on, stamped; stops before a ref that cannot be read."""
    data = bytearray()
    reading = plan.reading
    next_offset = Offset(reading.entry.offset)
    for located in plan.refs:
        content = contents[located]
        if isinstance(content, PenstockError):
            if not data:
                return content
            break
        start, end, end_offset = _cut(located, content, next_offset, max_bytes - len(data), is_first=not data)
        if start == end:
            break
        stamped = bytearray(content)
        stamp(stamped, located.base_offset)
        data += memoryview(stamped)[start:end]
        next_offset = end_offset
        if end < len(content):
            break
    return Fetched(
        log_start_offset=reading.head.log_start_offset,
        high_watermark=reading.head.high_watermark,
        next_offset=next_offset,
        data=data,
    )


def _cut(
    located: LocatedRef, content: memoryview, offset: int, max_bytes: int, *, is_first: bool
) -> tuple[int, int, Offset]:
    """The part `[start, end)` of a ref's bytes from the batch with `offset` on, within `max_bytes`, and the offset
    behind it; one batch at least when `is_first`."""
    start: int | None = None
    end, end_offset = 0, Offset(offset)
    base = located.base_offset
    for position, header in walk(content):
        base = Offset(base + header.last_offset_delta + 1)
        if base <= offset:
            continue
        start = position if start is None else start
        batch_end = position + header.length
        if batch_end - start > max_bytes and not (is_first and end == 0):
            break
        end, end_offset = batch_end, base
    return (start or 0, end, end_offset) if end else (0, 0, end_offset)
