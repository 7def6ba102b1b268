"""Push the next batches of a partition to the stage that mirrors it, as they are stored.

The delivery's state says from where. The mirror's answer says where its log ends, and the state follows it, forward or
back. So a lost answer costs one push that appends nothing.

A mirror that has begun anew lacks the records of idle partitions, too. So each version of the subscription asks each
partition's mirror once, by a push without batches if there is no record. A resume makes a version. So does the first
partition that meets another mirrored topic, or a log that went back, before it goes on.

A push has whole batches: `MIRROR_PUSH_BYTES` of them, or one that is larger, of `MIRROR_PUSH_REFS` refs and
`MIRROR_PUSH_PRODUCERS` producers at most. It costs what the reads of these refs cost, one request, and one write of the
state; for a producer that has left the head, a read.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.ids import Offset, PartitionKey, TopicId, TopicName
from penstock_core.limits import (
    BATCH_BYTES_MAX,
    BATCH_DECODED_BYTES_MAX,
    INDEX_FETCH_PAGES,
    JUMP_OFFSETS_MAX,
    MIRROR_DIVERGED_MS,
    MIRROR_PUSH_BYTES,
    MIRROR_PUSH_PRODUCERS,
    MIRROR_PUSH_REFS,
    PUSH_ERROR_LENGTH_MAX,
    PUSH_TARGET_MS,
)
from penstock_core.log.index import Head, count_between
from penstock_core.log.read_plan import choose
from penstock_core.log.ref import LocatedRef, Ref
from penstock_core.log.retention import searched_ms, written_ms
from penstock_core.log.timer import TimerPlace
from penstock_core.mirror.push import LOG_ID_BYTES, MirrorPush, PushAnswer, PushPart, SourceTopic, source_topic
from penstock_core.push.attempt import Try, fail
from penstock_core.push.batch import Failed, Failure
from penstock_core.push.delivery import DeliveryKey, DeliveryState, changed, commit
from penstock_core.push.targets.target import StageTarget
from penstock_core.records.producer_state import NO_OWNER, ProducerSequence, ProducerState
from penstock_core.records.record_batch import BytesLike, parse_header, stamp, walk
from penstock_service.index.reader import pages_forward
from penstock_service.instance.instance import Instance
from penstock_service.push.lane_work import LaneWork
from penstock_service.push.subscriptions import ask_again
from penstock_service.segments.read_refs import read_refs_singly, with_gaps

if TYPE_CHECKING:
    from penstock_core.records.codec import Record

_PROMOTED = (ErrorCode.MIRROR_ENDED, ErrorCode.TOPIC_EXISTS)


def push_log(work: LaneWork, place: tuple[TopicName, DeliveryKey], head: Head, state: DeliveryState) -> DeliveryState:
    """The state after one push, to be stored. A mirror that is away, or of another log, is tried again later.

    Raises what the reads raise, and UNKNOWN_TOPIC for a topic that was deleted.
    """
    instance, target, key = work.instance, work.subscription.target, place[1].partition_key
    assert isinstance(target, StageTarget)
    head = _named(instance, key, head)
    gathered = _gathered(instance, key, head, state.offset)
    push = MirrorPush(
        mirror=work.subscription.name,
        source=target.source,
        topic=told_topic(instance, place[0], key.topic_id, target.prefix),
        partition=key.partition,
        log_id=head.log_id,
        base_offset=state.offset,
        parts=gathered.parts,
        producers=gathered.producers,
        data=b"".join(gathered.data),
    )
    began_ms = instance.clock.now_ms()
    if not work.has_time():  # the reads took long: another delivery may be at work
        return state
    answer = instance.stores.targets.mirror(target, push, PUSH_TARGET_MS)
    if isinstance(answer, Failed):
        if head.move and not push.parts and any(code.name in answer.error for code in _PROMOTED):
            return _asked(work, changed(state, trouble=None, next_try_ms=0))
        return _failed(work, place, state, push, answer.error)
    if answer.diverged:
        return _diverged(work, place, state, push, answer.diverged)
    _note_mirror(work, key, state, answer)
    if answer.next_offset == push.next_offset and not push.parts:
        return _asked(work, changed(state, trouble=None, next_try_ms=0))
    if answer.next_offset == push.next_offset:
        if gathered.missed and state.offset:
            instance.telemetry.log("mirror_missed", **_facts(work, place, state), records=gathered.missed)
            instance.telemetry.count("records_missed", gathered.missed)
        instance.telemetry.count("records_mirrored", sum(part.record_count for part in push.parts))
        return _asked(work, commit(state, push.next_offset, began_ms, instance.clock.now_ms()))
    return _followed(work, place, state, push, answer)


@dataclass(slots=True, kw_only=True)
class _Gathered:
    """The parts of a push from `offset` on, their bytes, and their producers. `missed` records were removed before."""

    offset: Offset
    parts: list[PushPart] = field(default_factory=list)
    data: list[BytesLike] = field(default_factory=list)
    producers: dict[int, ProducerState] = field(default_factory=dict)
    missed: int = 0

    def add(self, part: PushPart, data: BytesLike) -> None:
        """Adds the part, which begins where the last one ends."""
        self.parts.append(part)
        self.data.append(data)
        self.offset = Offset(self.offset + part.offset_span)


def _named(instance: Instance, key: PartitionKey, head: Head) -> Head:
    """The head, whose log has a name. One update for a log that never had one."""
    if head.log_id:
        return head
    named = instance.stores.log.name_log(key, instance.entropy.random_bytes(LOG_ID_BYTES).hex())
    if named is None:
        raise PenstockError(ErrorCode.UNKNOWN_TOPIC, f"partition {key} was deleted")
    return replace(head, log_id=named.log_id)


def told_topic(instance: Instance, name: TopicName, topic_id: TopicId, prefix: str) -> SourceTopic:
    """The topic as pushes tell it. Raises UNKNOWN_TOPIC if it was made anew."""
    read = instance.topic_cache.read_moment(name)  # first: the read of the topic is not before it
    topic = instance.topic_cache.get(name)
    if topic.topic_id != topic_id:
        raise PenstockError(ErrorCode.UNKNOWN_TOPIC, f"topic {name!r} was deleted, and made anew")
    return source_topic(topic, prefix, read.wall_ms)


def _gathered(instance: Instance, key: PartitionKey, head: Head, offset: Offset) -> _Gathered:
    """The parts from the offset on: an empty one over what was removed, or those of the next refs."""
    found = _Gathered(offset=offset)
    if offset < head.log_start_offset:
        span = min(head.log_start_offset - offset, JUMP_OFFSETS_MAX)
        found.missed = count_between(head.jumps, offset, offset + span)
        _add_empty(found, span, instance.clock.now_ms())
        return found
    refs = choose(_refs(instance, key, head, offset), offset, MIRROR_PUSH_BYTES, MIRROR_PUSH_REFS, is_first=True)
    contents = with_gaps(instance, read_refs_singly(instance, refs), [(key, refs)])
    waited = _waited(instance, key, refs)
    for located in refs:
        content = contents[located]
        if isinstance(content, PenstockError):
            if found.parts:
                break
            raise content
        sequence = located.ref.sequence
        if sequence is not None and len({*found.producers, sequence.producer_id}) > MIRROR_PUSH_PRODUCERS:
            break
        before = found.offset
        checksum = _take(found, located, content, waited.get(located.ref))
        if found.offset == before:
            break  # it has no room
        if sequence is not None and found.parts[-1].sequence is not None:
            found.producers[sequence.producer_id] = _entry(instance, key, head, found.parts[-1], checksum)
        if found.offset < located.end_offset:
            break
    return found


def _waited(instance: Instance, key: PartitionKey, refs: Sequence[LocatedRef]) -> Mapping[Ref, TimerPlace]:
    """The places where the delayed refs have waited, if the mirror may have copies. One read if there are such refs.

    The refs were in the index before this read. So it has the note of each timer that is told after that.
    """
    delayed = [each.ref for each in refs if each.ref.is_delayed]
    found = instance.stores.timers.find_told(key, delayed) if delayed else {}
    return {ref: found[ref] for ref in delayed if ref in found}


def _refs(instance: Instance, key: PartitionKey, head: Head, offset: Offset) -> Iterator[LocatedRef]:
    for page in pages_forward(instance.stores.log, key, head, offset, INDEX_FETCH_PAGES):
        yield from page.located()
    yield from head.located_tail()


def _add_empty(found: _Gathered, span: int, now_ms: int) -> None:
    from penstock_core.records.codec import empty_batch  # the codec, which most deliveries of a mirror do not need

    data = empty_batch(span)
    part = PushPart(
        length=len(data), offset_span=span, record_count=0, max_timestamp_ms=-1, appended_ms=now_ms, tag_filter=0
    )
    found.add(part, data)


def _take(found: _Gathered, located: LocatedRef, content: memoryview, timer: TimerPlace | None) -> int:
    """Adds the batches of the ref from the offset on, within the budget, and one at the least.

    The result is the CRC of the last one. If they have waited as a `timer`, one push has them all.
    """
    if timer is not None and found.parts and sum(map(len, found.data)) + len(content) > MIRROR_PUSH_BYTES:
        return 0
    ref, base, start_offset = located.ref, located.base_offset, found.offset
    chunks: list[BytesLike] = []
    size, records, newest_ms, budget = 0, 0, -1, MIRROR_PUSH_BYTES - sum(map(len, found.data))
    crc, has_cut = 0, False
    for position, header in walk(content):
        begin, base = base, Offset(base + header.offset_span)
        if base <= start_offset:
            continue
        batch: BytesLike = content[position : position + header.length]
        end = base
        if begin < start_offset:
            batch, end = _behind(batch, begin, start_offset)
            has_cut = True
        if size + len(batch) > budget and (chunks or found.parts):
            break
        told = parse_header(batch)
        chunks.append(batch)
        size, records, crc = size + len(batch), records + told.record_count, told.crc
        newest_ms, start_offset = max(newest_ms, told.max_timestamp_ms), end
        if end < base:
            break  # the rest of this batch comes before the next one
    if not chunks:
        return crc
    is_whole = (located.base_offset, located.end_offset) == (found.offset, start_offset) and records == ref.record_count
    span = start_offset - found.offset
    part = PushPart(
        length=size,
        offset_span=span,
        record_count=records,
        max_timestamp_ms=searched_ms(ref) if is_whole else newest_ms,
        appended_ms=written_ms(ref),
        tag_filter=ref.tag_filter if records else 0,
        sequence=None if has_cut or records < span else _sequence_of(located, found.offset, span),
        may_expire=ref.may_expire,
        timer=timer if (span, size) == (ref.offset_span, len(content)) else None,
    )
    found.add(part, chunks[0] if len(chunks) == 1 else b"".join(chunks))
    return crc


def _sequence_of(located: LocatedRef, offset: int, span: int) -> ProducerSequence | None:
    """The numbers of the ref's records `[offset, offset + span)`: a ref may be larger than a push."""
    sequence = located.ref.sequence
    if sequence is None:
        return None
    first = sequence.first_sequence + offset - located.base_offset
    return replace(sequence, first_sequence=first, last_sequence=first + span - 1)


def _behind(batch: BytesLike, base: int, offset: int) -> tuple[BytesLike, Offset]:
    """The records of a batch from the offset on, as a batch that begins there, and its end.

    Compaction has merged the batch since the mirror got the records before. The end lies before that of the batch if
    one batch would be too large. Raises as `decode`, and RECORD_TOO_LARGE for a record that fits into no batch.
    """
    from penstock_core.filters.filtered_batch import fitting_batch
    from penstock_core.records.codec import empty_batch
    from penstock_core.records.record_check import DecodeBudget

    stamped = bytearray(batch)
    stamp(stamped, base)
    header = parse_header(stamped)
    kept: list[Record] = []
    budget, end = DecodeBudget(BATCH_DECODED_BYTES_MAX), header.next_offset
    for record in budget.decode(stamped, header):
        if record.offset < offset:
            continue
        if kept and budget.is_spent:
            end = record.offset
            break
        kept.append(record)
        budget.keep(record)
    if not kept:
        return empty_batch(end - offset), Offset(end)
    cut = fitting_batch(replace(header, base_offset=offset), kept, end)
    if cut is None or cut.data is None:
        why = f"the record at offset {kept[0].offset} fits into no batch of {BATCH_BYTES_MAX} bytes"
        raise PenstockError(ErrorCode.RECORD_TOO_LARGE, why)
    return cut.data, Offset(cut.next_offset)


def _entry(instance: Instance, key: PartitionKey, head: Head, part: PushPart, checksum: int) -> ProducerState:
    """The entry of the producer after this part. One read for the owner if the producer has left the head."""
    sequence = part.sequence
    assert sequence is not None
    known = head.producers.get(sequence.producer_id)
    if known is None:
        known = instance.stores.log.evicted_producer(key, sequence.producer_id)
    return ProducerState(
        epoch=sequence.epoch,
        last_sequence=sequence.last_sequence,
        written_ms=part.appended_ms,
        checksum=checksum,
        owner=NO_OWNER if known is None else known.owner,
    )


def _followed(
    work: LaneWork,
    place: tuple[TopicName, DeliveryKey],
    state: DeliveryState,
    push: MirrorPush,
    answer: PushAnswer,
) -> DeliveryState:
    """The state at the mirror's end: forward after a repeat, back where the mirror lacks records.

    The head is read again. No mirror of this log can be ahead of what that read shows.
    """
    key = place[1].partition_key
    fresh = work.instance.stores.log.heads([key]).get(key)
    if fresh is None:
        raise PenstockError(ErrorCode.UNKNOWN_TOPIC, f"partition {key} was deleted")
    if answer.next_offset > fresh.next_offset or fresh.log_id != push.log_id:
        why = (
            f"the mirror holds log {push.log_id} up to {answer.next_offset}, the source up to {fresh.next_offset}: "
            "the source was restored without its jump. Begin the topic anew by `penstock mirrors resync`"
        )
        return _diverged(work, place, state, push, why)
    if answer.next_offset == state.offset:
        return _failed(work, place, state, push, "the mirror did not take the push, and does not say why")
    return _asked(work, changed(state, offset=answer.next_offset, next_try_ms=0, trouble=None))


def _note_mirror(work: LaneWork, key: PartitionKey, state: DeliveryState, answer: PushAnswer) -> None:
    subscription, met = work.subscription, answer.topic_id
    is_known = met in ("", subscription.mirrored.get(key.topic_id), *work.asked_mirrors)
    went_back = answer.next_offset < state.offset and state.asked_version == subscription.version
    if went_back or not is_known:
        ask_again(work.instance, subscription, key.topic_id, met)
        work.asked_mirrors.add(met)


def _asked(work: LaneWork, state: DeliveryState) -> DeliveryState:
    return replace(state, asked_version=work.subscription.version)


def _failed(
    work: LaneWork, place: tuple[TopicName, DeliveryKey], state: DeliveryState, push: MirrorPush, why: str
) -> DeliveryState:
    """The state that rests. A refusal of the mirror tells nothing of the records: they are tried for ever."""
    work.instance.telemetry.log("push_failed", **_facts(work, place, state), kind=Failure.AWAY.value, error=why)
    tried = Try(state=state, end=Offset(max(push.next_offset, state.offset + 1)), is_alone=True)
    failed = Failed(failure=Failure.AWAY, error=why[:PUSH_ERROR_LENGTH_MAX])
    return fail(state, work.subscription.config, tried, failed, work.instance.clock.now_ms())


def _diverged(
    work: LaneWork, place: tuple[TopicName, DeliveryKey], state: DeliveryState, push: MirrorPush, why: str
) -> DeliveryState:
    """The partition stops, but for one try each minute. The log line rings an alarm."""
    work.instance.telemetry.log("mirror_diverged", **_facts(work, place, state), error=why)
    rests = _failed(work, place, state, push, f"DIVERGED: {why}")
    pause_ms = max(work.subscription.config.backoff_ms_max, MIRROR_DIVERGED_MS)
    return replace(rests, next_try_ms=work.instance.clock.now_ms() + pause_ms)


def _facts(work: LaneWork, place: tuple[TopicName, DeliveryKey], state: DeliveryState) -> dict[str, str | int]:
    return {
        "subscription": work.subscription.name,
        "partition": str(place[1].partition_key),
        "offset": state.offset,
    }
