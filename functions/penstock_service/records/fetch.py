"""Fetch the batches of many partitions from their offsets on. A fetch waits for the first of them if you ask it to.

Each entry goes through the same stages: its partition is looked up, its refs are chosen within the budget, the ranges
of all entries are read together, and the answer is cut from them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING

from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.ids import Offset, PartitionKey, TopicId
from penstock_core.limits import (
    FETCH_REFS_MAX,
    INDEX_FETCH_PAGES,
    REQUEST_PARTITIONS_MAX,
)
from penstock_core.log.index import Head, check_position
from penstock_core.log.read_plan import choose, cut
from penstock_core.log.ref import LocatedRef
from penstock_core.log.topic import MoveState, Topic, check_own
from penstock_core.outcomes import Outcomes
from penstock_core.records.record_batch import stamp
from penstock_service.index.reader import pages_forward
from penstock_service.instance.instance import Instance
from penstock_service.ports.log import LogIndex
from penstock_service.quotas.wait import Wait
from penstock_service.records.count_traffic import count_sent
from penstock_service.segments.read_range import MAY_BE_REMOVED
from penstock_service.segments.read_refs import RefContents, read_refs_again, with_gaps

if TYPE_CHECKING:
    from penstock_core.filters.filter import Filter


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchEntry:
    """One topic-partition to read: from `offset` on, `max_bytes` at most.

    `topic_id` is the topic that the offset belongs to, None if the reader does not say. Then the offset may lie in a
    topic that was made anew under the name. With a `filter`, only the records that match are read.
    """

    topic: str
    partition: int
    offset: int
    max_bytes: int
    topic_id: str | None = None
    filter: Filter | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchResult:
    """Whole batches with true base offsets, of the topic with this id.

    The first batch may start below the offset asked for. With a filter, the batches hold the records that match, and
    `next_offset` lies behind those that do not. There may be no data, and yet more to read. `is_armed`: the next append
    to the partition sends a wake-up. `topic_partitions` is the number of the topic's partitions, as the topic cache
    knows it. `again_ms`: the stage has cut the wait short, and the caller should come again after that time.
    `spent_bytes` count for quotas: those of the answer, or of the batches that the filter has read, if these are more.
    """

    topic_id: TopicId
    log_start_offset: Offset
    high_watermark: Offset
    next_offset: Offset
    data: bytearray
    topic_partitions: int
    spent_bytes: int
    is_armed: bool = False
    again_ms: int | None = None


@dataclass(slots=True, kw_only=True, eq=False)
class _PartitionFetch:
    """One entry whose partition was found: its head, then the refs chosen for it, then its batches or its error."""

    entry: FetchEntry
    key: PartitionKey
    head: Head
    topic_partitions: int
    refs: Sequence[LocatedRef] = ()
    next_offset: Offset
    data: bytearray = field(default_factory=bytearray)
    scanned_bytes: int = 0
    error: PenstockError | None = None
    is_armed: bool = False
    again_ms: int | None = None

    @property
    def is_at_end(self) -> bool:
        """The reader has no record, and none is left for it."""
        return not self.data and self.error is None and self.next_offset >= self.head.next_offset

    def available_bytes(self) -> int:
        """Bytes in the tail from the entry's offset on."""
        tail = self.head.located_tail()
        return sum(located.ref.length for located in tail if located.end_offset > self.entry.offset)

    def assemble(self, contents: RefContents, max_bytes: int) -> None:
        """Take whole batches from the entry's offset on, stamped. Stop before a ref that cannot be read."""
        max_bytes = min(max_bytes, self.entry.max_bytes)
        for located in self.refs:
            content = contents[located]
            if isinstance(content, PenstockError):
                self.error = None if self.data else content
                return
            budget = max_bytes - len(self.data)
            start, end, end_offset = cut(content, located.base_offset, self.next_offset, budget, is_first=not self.data)
            if start == end:
                return
            if start == 0:  # as in most reads: the bytes are copied once
                place = len(self.data)
                self.data += content[:end]
                with memoryview(self.data) as data, data[place:] as added:
                    stamp(added, located.base_offset)
            else:
                stamped = bytearray(content)
                stamp(stamped, located.base_offset)
                self.data += memoryview(stamped)[start:end]
            self.next_offset = end_offset
            if end < len(content):
                return

    def result(self) -> FetchResult:
        """The answer to the entry. Raises its error."""
        if self.error is not None:
            raise self.error
        return FetchResult(
            topic_id=self.key.topic_id,
            log_start_offset=self.head.log_start_offset,
            # Since the head was read, a merge may have joined pages with refs that were appended after that.
            high_watermark=max(self.head.high_watermark, self.next_offset),
            next_offset=self.next_offset,
            data=self.data,
            topic_partitions=self.topic_partitions,
            spent_bytes=max(len(self.data), self.scanned_bytes),
            is_armed=self.is_armed,
            again_ms=self.again_ms,
        )


def fetch(
    instance: Instance,
    entries: Sequence[FetchEntry],
    *,
    max_bytes: int,
    min_bytes: int,
    wait_ms: int,
    must_arm: bool = False,
) -> Outcomes[FetchResult]:
    """One result per entry, in order.

    The results hold `max_bytes` at most, except that the first batch of the first partition with data is always there.
    At the tail a fetch costs one read of all heads and the ranged gets of what this instance has not just
    read. While it waits, it repeats that read at
    intervals that grow up to 1 s, while `Wait` lets it. Below the tail it costs one query more per partition.
    Raises INVALID_REQUEST for no entries or too many of them. OFFSET_OUT_OF_RANGE carries the bounds, and
    within a jump `to` (`check_position`). UNKNOWN_TOPIC_ID carries the topic's id.

    With `must_arm`, a fetch that finds no records arms its partitions (`_arm`): one update for each without a waiter.

    Entries with a filter cost what `scan` costs. They wait only where they begin at the high watermark. Where a record
    is there that does not match, the fetch answers at once, with `next_offset` behind it.
    """
    if not entries or len(entries) > REQUEST_PARTITIONS_MAX:
        raise PenstockError(
            ErrorCode.INVALID_REQUEST,
            f"{len(entries)} topic-partitions in one fetch: ask for 1 to {REQUEST_PARTITIONS_MAX}",
        )
    found = _wait(instance, entries, min(min_bytes, max_bytes), wait_ms)
    partitions = found.ok
    plain = [each for each in partitions if each.entry.filter is None]
    if must_arm and len(plain) == len(partitions):
        _arm(instance, partitions)
    _choose_refs(instance.stores.log, plain, max_bytes)
    contents = read_refs_again(instance, [located for partition in plain for located in partition.refs])
    contents = with_gaps(instance, contents, [(each.key, each.refs) for each in plain])
    for partition in plain:
        if partition.error is None:
            partition.assemble(contents, max_bytes)
            max_bytes = max(0, max_bytes - len(partition.data))
    if len(plain) < len(partitions):
        _scan(instance, [each for each in partitions if each.entry.filter is not None], max_bytes)
        if must_arm:
            _arm(instance, partitions)
    _explain(instance.stores.log, partitions)
    results = found.map_ok(_PartitionFetch.result)
    for entry, result in zip(entries, results, strict=True):
        instance.traffic.add_error(entry.topic, result)
        if not isinstance(result, PenstockError):
            count_sent(instance, entry.topic, result.data)
    return results


def _scan(instance: Instance, partitions: Sequence[_PartitionFetch], max_bytes: int) -> None:
    """Read what matches the filters of these partitions, of `max_bytes` at most, but one batch at least."""
    from penstock_service.records.scan import Scan, scan  # which most readers do not need

    scans = [
        Scan(
            key=each.key,
            head=each.head,
            wanted=each.entry.filter,
            max_bytes=each.entry.max_bytes,
            next_offset=each.next_offset,
        )
        for each in partitions
        if each.entry.filter is not None
    ]
    scan(instance, scans, max_bytes)
    for partition, done in zip(partitions, scans, strict=True):
        partition.data, partition.next_offset = done.data, done.next_offset
        partition.scanned_bytes = done.scanned_bytes
        partition.error = None if done.data or done.has_moved else done.error


def _wait(instance: Instance, entries: Sequence[FetchEntry], min_bytes: int, wait_ms: int) -> Outcomes[_PartitionFetch]:
    """Read the heads until `min_bytes` are there, a partition has an error, or the wait ends."""
    with Wait(instance, wait_ms) as wait:
        found = _look(instance, entries)
        while not _is_enough(found, min_bytes) and wait.pause():
            found = _look(instance, entries)
    for each in found.ok:
        each.again_ms = wait.again_ms
    return found


def _arm(instance: Instance, partitions: Sequence[_PartitionFetch]) -> None:
    """Set the waiter of each head, if all readers are at the ends of their partitions and the stage has wake-ups.

    A reader with records of one partition does not wait, so it arms no other: busy partitions would pay for it. A
    reader with a filter is at the end where its position is, behind what did not match. If an append has come between,
    the reader sees the head after it, and reads its records, now or with its next fetch. A failure is the partition's
    error.
    """
    if instance.stores.wake_ups.place is None or not all(each.is_at_end for each in partitions):
        return
    for each in partitions:
        each.is_armed = each.head.waiter_ms is not None
    unarmed = [each for each in partitions if not each.is_armed]
    now_ms = instance.clock.now_ms()
    results = instance.executor.map(
        lambda each: instance.stores.log.arm(each.key, each.head.next_offset, now_ms), unarmed
    )
    for each, result in zip(unarmed, results, strict=True):
        if isinstance(result, PenstockError):
            each.error = result
            continue
        each.is_armed, head = result
        try:
            each.head = _readable_head(each.entry, each.key, {} if head is None else {each.key: head})
        except PenstockError as error:
            each.error = error


def _look(instance: Instance, entries: Sequence[FetchEntry]) -> Outcomes[_PartitionFetch]:
    """Look up each entry's partition and its head. One read of all heads, and one more if some are missing.

    One read of each topic at the end of which a moved log is read.
    """
    log, topic_cache = instance.stores.log, instance.topic_cache
    topic_now = cache(topic_cache.read_through)

    def find(entry: FetchEntry) -> tuple[FetchEntry, PartitionKey, int]:
        topic, key = topic_cache.get_partition(entry.topic, entry.partition, entry.topic_id)
        return entry, key, topic.partitions

    def open_partition(entry: FetchEntry, key: PartitionKey, topic_partitions: int) -> _PartitionFetch:
        head = _readable_head(entry, key, heads)
        if head.move and entry.offset >= head.next_offset:
            _check_moved(topic_now(entry.topic))
        offset = Offset(entry.offset)
        return _PartitionFetch(entry=entry, key=key, head=head, topic_partitions=topic_partitions, next_offset=offset)

    found = Outcomes.collect(find, entries)
    heads = log.heads(list(dict.fromkeys(key for _, key, _ in found.ok)))
    missing = {key: entry.topic for entry, key, _ in found.ok if key not in heads}
    if missing:
        # The topic was deleted, and perhaps created again, since it was looked up: ask once more what the name means.
        for topic in missing.values():
            topic_cache.forget(topic)
        found = found.map_ok(lambda each: find(each[0]) if each[1] in missing else each)
        heads = {**heads, **log.heads([key for _, key, _ in found.ok])}
    return found.map_ok(lambda each: open_partition(*each))


def _check_moved(topic: Topic) -> None:
    """Raises MOVED at the end of a log that goes on elsewhere: no record comes here."""
    if topic.move is not None and topic.move.state is MoveState.MOVED:
        check_own(topic)


def _readable_head(entry: FetchEntry, key: PartitionKey, heads: Mapping[PartitionKey, Head]) -> Head:
    """The partition's head, if the entry's offset lies in the log. Raises UNKNOWN_TOPIC and OFFSET_OUT_OF_RANGE."""
    head = heads.get(key)
    if head is None:
        raise PenstockError(ErrorCode.UNKNOWN_TOPIC, f"topic {entry.topic!r} is being deleted")
    if not head.log_start_offset <= entry.offset <= head.high_watermark:
        raise PenstockError(
            ErrorCode.OFFSET_OUT_OF_RANGE,
            f"offset {entry.offset} of partition {entry.partition} of topic {entry.topic!r} is out of range: "
            f"it holds [{head.log_start_offset}, {head.high_watermark})",
            log_start_offset=head.log_start_offset,
            high_watermark=head.high_watermark,
            topic_id=key.topic_id,
        )
    check_position(head, entry.partition, entry.offset)
    return head


def _is_enough(found: Outcomes[_PartitionFetch], min_bytes: int) -> bool:
    partitions = found.ok
    if len(partitions) < len(found) or any(each.entry.offset < each.head.tail_base for each in partitions):
        return True
    return sum(each.available_bytes() for each in partitions) >= min_bytes


def _choose_refs(log: LogIndex, partitions: Sequence[_PartitionFetch], max_bytes: int) -> None:
    """Choose the refs to read for each partition, in order, within the budget of bytes and of gets."""
    refs_left = FETCH_REFS_MAX
    is_first = True
    for partition in partitions:
        if not refs_left or not (max_bytes > 0 or is_first):
            return
        budget = min(max_bytes, partition.entry.max_bytes)
        try:
            candidates = _candidates(log, partition, budget, refs_left)
        except PenstockError as error:
            partition.error = error
            continue
        partition.refs = choose(candidates, partition.entry.offset, budget, refs_left, is_first=is_first)
        max_bytes -= sum(located.ref.length for located in partition.refs)
        refs_left -= len(partition.refs)
        is_first = is_first and not partition.refs


def _candidates(log: LogIndex, partition: _PartitionFetch, max_bytes: int, max_refs: int) -> list[LocatedRef]:
    """Refs from the entry's offset on: from the pages that are needed, then from the tail."""
    refs: list[LocatedRef] = []
    offset = Offset(partition.entry.offset)
    for page in pages_forward(log, partition.key, partition.head, offset, INDEX_FETCH_PAGES):
        refs += [located for located in page.located() if offset < located.end_offset]
        if len(refs) >= max_refs or sum(located.ref.length for located in refs) > max_bytes:
            return refs
    return refs + list(partition.head.located_tail())


def _explain(log: LogIndex, partitions: Iterable[_PartitionFetch]) -> None:
    """Replace the error of a read whose records were removed meanwhile: by retention, truncation or a deletion.

    Costs one further read of heads, only where a read failed. If that fails too, the first errors stay.
    """
    failed = [each for each in partitions if each.error is not None and each.error.code in MAY_BE_REMOVED]
    if not failed:
        return
    try:
        heads = log.heads([each.key for each in failed])
    except PenstockError:
        return
    for each in failed:
        try:
            _readable_head(each.entry, each.key, heads)
        except PenstockError as error:
            each.error = error
