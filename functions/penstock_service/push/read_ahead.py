"""Read ahead: the records of a partition for several batches, with one read of the log.

Find the partitions that an ordered subscription must not begin before older ones (docs/protocol/partitions).

A partition that was begun goes on: its subscription had delivered all older ones then, and its offsets never go back.
"""

from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from penstock_core.backoff import look_again_ms
from penstock_core.filters.filter import matches
from penstock_core.filters.policy import parse_filter
from penstock_core.groups.topic_patterns import TopicReach, topic_reach
from penstock_core.ids import Offset, Partition, PartitionKey, SubscriptionId, TopicName
from penstock_core.limits import (
    GROUP_CHECK_MS_MAX,
    GROUP_CHECK_MS_MIN,
    GROUP_PATIENCE,
    PUSH_PAYLOAD_BYTES_MAX,
    PUSH_READ_AHEAD_BYTES,
    PUSH_READS_MAX,
    READ_DECODED_BYTES_MAX,
)
from penstock_core.log.index import Head, ranges_of
from penstock_core.log.topic import Topic
from penstock_core.push.attempt import Candidate, Found
from penstock_core.push.batch import PushRecord
from penstock_core.push.delivery import DeliveryKey, DeliveryState
from penstock_core.push.subscription import SubscriptionConfig
from penstock_core.push.targets.kafka_event import event_bytes, fitting
from penstock_core.records.record_check import DecodeBudget
from penstock_core.share.record_set import Ranges, RecordSet, normalized
from penstock_service.instance.instance import Instance
from penstock_service.push.lane_work import LaneWork, PushPortion
from penstock_service.records.count_traffic import count_sent
from penstock_service.share.batches.decode_batches import DecodedRecords, decode_batches, expiry_times
from penstock_service.share.batches.read_batches import FoundBatches, WantedRecords, read_batches


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordsAhead:
    """The records of a partition that the target is to get, up to `end`, in order.

    `expired` offsets were removed by retention or a truncation before. `over_ms` has the times from which records are
    not worth their delivery any more, by offset. `has_more`: the log goes on behind `end`. `error` tells why the record
    at `end` cannot be read now, "" if it was not tried.
    """

    records: Sequence[PushRecord]
    end: Offset
    expired: int
    has_more: bool
    error: str
    over_ms: Mapping[int, int] = field(default_factory=dict)

    def batch(self, state: DeliveryState, config: SubscriptionConfig, now_ms: int) -> tuple[PushPortion, Found]:
        """The records of the next batch, without those whose time is over, and what a plan must know of them.

        Where records fail, no batch has an expired one between others: a failure is then one of the records in it.
        """
        at = bisect_left(self.records, int(state.offset), key=_offset)
        rest = self.records[at:]
        end, has_more = self.end, self.has_more
        if state.trouble is not None and self.over_ms:
            size = _size_of_run(rest, lambda each: self.is_over(each, now_ms))
            if size < len(rest):
                rest, end, has_more = rest[:size], Offset(rest[size].record.offset), True
        live = [each for each in rest if not self.is_over(each, now_ms)] if self.over_ms else rest
        chosen = live[: config.batch_records]
        chosen = chosen[: fitting(chosen)]
        is_last = len(chosen) == len(live)
        end = end if is_last else Offset(live[len(chosen)].record.offset)
        found = Found(
            records=[
                Candidate(offset=Offset(each.record.offset), timestamp_ms=each.record.timestamp) for each in chosen
            ],
            end=end,
            is_full=not is_last or has_more or len(chosen) == config.batch_records,
            fill=max(len(chosen) / config.batch_records, sum(map(event_bytes, chosen)) / PUSH_PAYLOAD_BYTES_MAX),
        )
        over = [each.record.offset for each in rest if self.is_over(each, now_ms)] if self.over_ms else []
        return PushPortion(records=chosen, end=end, expired=[offset for offset in over if offset < end]), found

    def is_over(self, each: PushRecord, now_ms: int) -> bool:
        """True if the record's time is over."""
        time_ms = self.over_ms.get(each.record.offset)
        return time_ms is not None and time_ms <= now_ms


def read_ahead(
    work: LaneWork, place: tuple[TopicName, DeliveryKey], head: Head, state: DeliveryState, *, is_careful: bool = False
) -> RecordsAhead:
    """The records from the state's offset on, of about `PUSH_READ_AHEAD_BYTES` of segments, and of one at the least.

    It decodes `READ_DECODED_BYTES_MAX`, and the rest of the batch that spends it. With `is_careful`, deliveries have
    died: it reads one batch only, and passes over one whose reads have died `PUSH_READS_MAX` times in a row.

    Costs what `read_batches` costs: ranged gets at the tail, and one query for each place below it. A batch that
    cannot be decoded is passed over: the log line `push_undecodable` tells of it.
    """
    (topic, key), instance, config, offset = place, work.instance, work.subscription.config, state.offset
    is_lethal = state.trouble is not None and state.trouble.reads > PUSH_READS_MAX
    is_careful = is_careful or is_lethal  # whatever has come since the last death, no neighbour goes with the batch
    wanted = None if config.filter is None else parse_filter(config.filter)
    ranges = ((offset, head.next_offset),)
    [found] = read_batches(
        instance,
        [WantedRecords(key=key.partition_key, head=head, ranges=ranges, wanted=wanted)],
        1 if is_careful else PUSH_READ_AHEAD_BYTES,
    )
    batches = found.batches[:1] if is_careful else found.batches
    for batch in batches:
        count_sent(instance, topic, batch.data)
    end = _end(found, head)
    if len(batches) < len(found.batches):
        end = min(end, found.batches[1].base_offset)
    readable = RecordSet(((offset, end),)).minus(found.removed).ranges
    if is_lethal:
        decoded = DecodedRecords(records=(), undecodable=readable)
    else:
        decoded = decode_batches(batches, readable, DecodeBudget(READ_DECODED_BYTES_MAX))
    end = Offset(decoded.left_out[0][0]) if decoded.left_out else end
    _report_undecodable(instance, key, decoded.undecodable)
    records = [
        PushRecord(topic=topic, key=key.partition_key, record=each)
        for each in decoded.records
        if wanted is None or matches(wanted, each.headers)
    ]
    return RecordsAhead(
        records=records,
        end=end,
        expired=RecordSet(((offset, end),)).only(found.removed).minus(ranges_of(head.jumps)).count,
        has_more=end < head.next_offset,
        error=str(found.error or "it cannot be read") if _starts_at(found.unreadable, end) else "",
        over_ms=expiry_times(batches, decoded.records) if any(each.may_expire for each in batches) else {},
    )


def _report_undecodable(instance: Instance, key: DeliveryKey, undecodable: Ranges) -> None:
    for start, stop in undecodable:
        instance.telemetry.log(
            "push_undecodable", partition=str(key.partition_key), start_offset=start, records=stop - start
        )


def _size_of_run(records: Sequence[PushRecord], is_over: Callable[[PushRecord], bool]) -> int:
    """The number of records in front that are over, or that are not, as the first one."""
    return next((at for at, each in enumerate(records) if is_over(each) != is_over(records[0])), len(records))


def _offset(each: PushRecord) -> int:
    return each.record.offset


def _end(found: FoundBatches, head: Head) -> Offset:
    """The first offset that was not read."""
    missing = normalized((*found.left_out, *found.unreadable))
    return Offset(missing[0][0]) if missing else head.next_offset


def _starts_at(ranges: Sequence[tuple[int, int]], offset: Offset) -> bool:
    return any(start == offset for start, _ in ranges)


def later_generations(
    work: LaneWork, heads: Mapping[PartitionKey, Head], states: Mapping[DeliveryKey, DeliveryState | None]
) -> Mapping[DeliveryKey, int]:
    """The partitions of the lane that wait for older ones, each with the time of the next look.

    Costs nothing unless the lane has a partition with records, of a later generation, that it has not begun. Then it
    costs a read of the topic if it is not remembered, and reads of heads and states of all older partitions: one each
    for 100 of them.
    """
    reaches: dict[str, TopicReach] = {}
    found: dict[DeliveryKey, int] = {}
    for name, key in work.partitions:
        head, state = heads.get(key.partition_key), states[key]
        if head is None or not head.next_offset or (state is not None and state.offset):
            continue
        topic = work.instance.topic_cache.find(name)
        if topic is None or topic.topic_id != key.topic_id or len(topic.generations) == 1:
            continue
        if name not in reaches:
            reaches[name] = _reach(work.instance, key.subscription_id, topic)
        if key.partition >= reaches[name].end:
            now_ms = work.instance.clock.now_ms()
            waited_ms = now_ms - reaches[name].closed_ms
            found[key] = now_ms + look_again_ms(waited_ms, GROUP_CHECK_MS_MIN, GROUP_CHECK_MS_MAX, GROUP_PATIENCE)
    return found


def _reach(instance: Instance, subscription_id: SubscriptionId, topic: Topic) -> TopicReach:
    keys = [
        DeliveryKey(subscription_id=subscription_id, topic_id=topic.topic_id, partition=Partition(number))
        for number in range(topic.first_writable)
    ]
    heads = instance.stores.log.heads([key.partition_key for key in keys])
    states = instance.stores.push.find_deliveries(keys)
    unread = {
        key.partition: head
        for key in keys
        if (head := heads.get(key.partition_key)) is not None and not _is_delivered(head, states.get(key))
    }
    reach = topic_reach(topic, unread, ())
    closed_ms = 0 if reach.holder is None else unread[Partition(reach.holder)].closed_ms
    return TopicReach(start=reach.start, end=reach.end, holder=reach.holder, closed_ms=closed_ms or 0)


def _is_delivered(head: Head, state: DeliveryState | None) -> bool:
    end = head.next_offset if head.closed_offset is None else head.closed_offset
    return head.next_record(0 if state is None else state.offset) >= end
