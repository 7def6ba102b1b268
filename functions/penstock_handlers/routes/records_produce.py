"""POST /v1/topics/{topic}/records: records in JSON."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Annotated, NamedTuple

import aiokafka.record.default_records  # noqa: F401 - while the function starts, not in its first request
from aws_lambda_powertools.event_handler.openapi.params import Path, Query

from penstock_core.acls.principal import Principal
from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.filters.filter import Headers, tags_of
from penstock_core.ids import Partition, TimerId
from penstock_core.limits import REQUEST_PARTITIONS_MAX
from penstock_core.log.timer import TimerPlace, new_timer_id, scheduled_id
from penstock_core.log.topic import Topic
from penstock_core.outcomes import Outcome
from penstock_core.records.codec import BatchBuilder
from penstock_core.records.expiry import EXPIRES_AT_HEADER, check_expiry, has_expiry, with_expiry
from penstock_core.records.partitioner import partition_for_key
from penstock_core.records.producer_state import SEQUENCE_MAX, owner_of
from penstock_core.zones.zone_state import Acks, parse_acks
from penstock_handlers.edge.json_api import JsonApp, caller_of, error_json, instance_of, serve_with
from penstock_handlers.edge.json_records import headers_of, key_of, value_of
from penstock_handlers.edge.models.answer_models import ProducedOffset, ProducedOffsets
from penstock_handlers.edge.models.request_models import ProduceRecords, Record, RecordSequence
from penstock_service.instance.instance import Instance
from penstock_service.records.append import is_head_closed
from penstock_service.records.produce import ProduceEntry
from penstock_service.records.produce_within_quotas import Produced, produce_within_quotas
from penstock_service.records.schedule import ScheduledRecords

app = JsonApp("records")


@app.operation("POST /v1/topics/<topic>/records", "produceRecords", "Produce records", parameters=("acks",))
def produce_records(
    topic: Annotated[str, Path()], request: ProduceRecords, acks: Annotated[str, Query()] = "quorum"
) -> ProducedOffsets:
    """Append JSON records to a topic, and answer each record's offset or its error."""
    instance = instance_of(app)
    wanted_acks = parse_acks(acks)
    if request.sequence is not None:
        _check_sequence(request.sequence, request.records)
    produce = partial(_produce, instance, caller_of(app).principal, sequence=request.sequence, acks=wanted_acks)
    outcomes, closed = produce(instance.topic_cache.get(topic), dict(enumerate(request.records)))
    again = {index: request.records[index] for index in closed if request.records[index].partition is None}
    if again:
        # The records were placed by an old view of the topic. The refusal has brought the new one.
        with suppress(PenstockError):  # then the refusals hold: nothing of these records was appended
            outcomes |= produce(instance.topic_cache.get(topic), again)[0]
    return {"offsets": [outcomes[index] for index in range(len(request.records))]}


def _check_sequence(sequence: RecordSequence, records: Sequence[Record]) -> None:
    """A repeat has the same bytes in the same partition, or it is none. Raises INVALID_REQUEST."""
    partition, last = records[0].partition, sequence.first_sequence + len(records) - 1
    for index, record in enumerate(records):
        if record.partition is None or record.partition != partition:
            lack = f"has partition={record.partition} next to {partition}: name one partition in each record"
        elif record.timestamp_ms is None:
            lack = "has no timestamp_ms: give it its time, so that a repeat has the same"
        elif record.deliver_at_ms is not None or record.delay_ms is not None:
            lack = "is delayed: send it without a sequence"
        elif record.expires_in_ms is not None:
            lack = f"has expires_in_ms: give it the header {EXPIRES_AT_HEADER!r}, so that a repeat has the same"
        else:
            continue
        raise PenstockError(ErrorCode.INVALID_REQUEST, f"records[{index}] of a request with a sequence {lack}")
    if last > SEQUENCE_MAX:
        raise PenstockError(
            ErrorCode.INVALID_REQUEST,
            f"first_sequence={sequence.first_sequence} and {len(records)} records end at {last}: {SEQUENCE_MAX} at "
            "most, so go on as a new producer, from 0",
        )


def _produce(
    instance: Instance,
    principal: Principal,
    topic: Topic,
    records: Mapping[int, Record],
    *,
    sequence: RecordSequence | None,
    acks: Acks,
) -> tuple[dict[int, ProducedOffset], list[int]]:
    """The outcomes of the records by their indexes, and the indexes of those whose partition is closed."""
    packed = [_pack(topic, target, parsed, sequence) for target, parsed in _targets(instance, topic, records).items()]
    filled = [each for each in packed if each.data]
    _check_targets(filled)
    entries = [
        ProduceEntry(
            topic=topic.name,
            partition=each.target.partition,
            data=bytes(each.data),
            is_own_encoding=True,
            tag_filter=each.tag_filter,
            may_expire=each.may_expire,
            timer=each.target.timer,
            owner=owner_of(principal.digest),
        )
        for each in filled
    ]
    results = produce_within_quotas(instance, principal.name, entries, acks) if entries else []
    closed: list[int] = []
    for each, result in zip(filled, results, strict=True):
        each.settle(result)
        if is_head_closed(result) and not (isinstance(result, PenstockError) and result.maybe_applied):
            closed += each.indexes
    return {index: outcome for part in packed for index, outcome in part.outcomes.items()}, closed


class _Target(NamedTuple):
    """Where records go together: a partition, and for delayed records a timer."""

    partition: int
    timer: TimerPlace | None = None
    is_cancellable: bool = False


@dataclass(slots=True, kw_only=True)
class _Packed:
    """One target's records as batches, and each record's outcome by its index in the request.

    If it is whole, no record goes without the others.
    """

    target: _Target
    is_whole: bool = False
    data: bytearray = field(default_factory=bytearray)
    indexes: list[int] = field(default_factory=list)
    outcomes: dict[int, ProducedOffset] = field(default_factory=dict)
    tag_filter: int = 0
    may_expire: bool = False

    def refuse(self, index: int, error: PenstockError) -> None:
        if self.is_whole and index not in self.indexes:
            raise error
        self.outcomes[index] = {"partition": self.target.partition, "error": error_json(error)}

    def settle(self, result: Outcome[Produced]) -> None:
        for place, index in enumerate(self.indexes):
            if isinstance(result, PenstockError):
                self.refuse(index, result)
            elif isinstance(result, ScheduledRecords):
                self.outcomes[index] = self._scheduled(result.place)
            else:
                self.outcomes[index] = {"partition": self.target.partition, "offset": result.base_offset + place}

    def _scheduled(self, place: TimerPlace) -> ProducedOffset:
        partition = self.target.partition
        if not self.target.is_cancellable:
            return {"partition": partition, "deliver_at_ms": place.due_ms}
        name = scheduled_id(Partition(partition), place)
        return {"partition": partition, "deliver_at_ms": place.due_ms, "scheduled_id": name}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Parsed:
    index: int
    key: bytes | None
    value: bytes | None
    headers: Headers
    timestamp_ms: int


def _targets(instance: Instance, topic: Topic, records: Mapping[int, Record]) -> Mapping[_Target, list[_Parsed]]:
    """Records by target. A record names its partition, or its key does. Records without either share a random one.

    Delayed records of one partition and due time share a timer, unless they are cancellable.
    """
    now_ms = instance.clock.now_ms()
    entropy = instance.entropy.random_bytes(4 + 6)
    keyless = topic.writable_place(int.from_bytes(entropy[:4], "big"))
    targets: dict[_Target, list[_Parsed]] = {}
    for index, record in records.items():
        where = f"records[{index}]"
        key = key_of(record, where)
        if record.partition is not None:
            number = record.partition
        else:
            number = (
                keyless if key is None else topic.first_writable + partition_for_key(key, topic.writable_partitions)
            )
        due_ms = _due_ms(record, now_ms, where)
        parsed = _Parsed(
            index=index,
            key=key,
            value=value_of(record, where),
            headers=_headers(record, now_ms if due_ms is None else due_ms, where),
            timestamp_ms=now_ms if record.timestamp_ms is None else record.timestamp_ms,
        )
        target = _Target(number)
        if due_ms is not None:
            own = index + 1 if record.cancellable else 0
            target = _Target(number, TimerPlace(due_ms, _timer_id(now_ms, own, entropy)), record.cancellable)
        targets.setdefault(target, []).append(parsed)
    return targets


def _headers(record: Record, from_ms: int, where: str) -> Headers:
    """The headers, with that of an expiry so long after `from_ms`. Raises INVALID_REQUEST for a bad one."""
    headers: Headers = headers_of(record, where)
    try:
        if record.expires_in_ms is not None:
            return with_expiry(headers, record.expires_in_ms, from_ms)
        check_expiry(headers)
    except PenstockError as error:
        raise PenstockError(ErrorCode.INVALID_REQUEST, f"{where}: {error.message}") from error
    return headers


def _due_ms(record: Record, now_ms: int, where: str) -> int | None:
    """When the record is to come, None for now. Raises INVALID_REQUEST if both fields are given."""
    if record.deliver_at_ms is not None and record.delay_ms is not None:
        raise PenstockError(ErrorCode.INVALID_REQUEST, f"{where} has both deliver_at_ms and delay_ms: give one of them")
    if record.delay_ms is not None:
        return now_ms + record.delay_ms
    if record.deliver_at_ms is None and record.cancellable:
        raise PenstockError(
            ErrorCode.INVALID_REQUEST, f"{where} is cancellable and not delayed: give deliver_at_ms or delay_ms, too"
        )
    return record.deliver_at_ms


def _timer_id(now_ms: int, number: int, entropy: bytes) -> TimerId:
    return new_timer_id(now_ms, number, entropy[4:])


def _check_targets(packed: Sequence["_Packed"]) -> None:
    if len(packed) > REQUEST_PARTITIONS_MAX:
        raise PenstockError(
            ErrorCode.INVALID_REQUEST,
            f"the records need {len(packed)} batches, for their partitions and due times: {REQUEST_PARTITIONS_MAX} at "
            "most in one request, and a cancellable record has one of its own",
        )


def _pack(topic: Topic, target: _Target, records: Sequence[_Parsed], sequence: RecordSequence | None) -> _Packed:
    """Batches of at most `max_batch_bytes`.

    Refuses a record that is too large for a batch of its own, and for a compacted topic one without a key. With a
    sequence, raises what is wrong with any record, and REQUEST_TOO_LARGE if they do not fit into one batch.
    """
    packed = _Packed(target=target, is_whole=sequence is not None)
    limit = topic.config.max_batch_bytes
    builder = BatchBuilder(batch_bytes=limit)
    for record in records:
        if record.key is None and topic.config.is_compacted:
            packed.refuse(record.index, _keyless(topic, record.index))
            continue
        if not _append(builder, record):
            if packed.is_whole:
                raise _too_many(topic, record.index)
            packed.data += builder.build()
            builder = BatchBuilder(batch_bytes=limit)
            _append(builder, record)
        if builder.size_bytes <= limit:
            packed.indexes.append(record.index)
            packed.tag_filter |= tags_of(record.headers)
            packed.may_expire |= has_expiry(record.headers)
            continue
        error = PenstockError(
            ErrorCode.RECORD_TOO_LARGE,
            f"records[{record.index}] takes {builder.size_bytes} bytes: topic {topic.name!r} allows {limit} "
            "(max_batch_bytes)",
            limit=limit,
        )
        packed.refuse(record.index, error)
        builder = BatchBuilder(batch_bytes=limit)
    if sequence is not None:
        packed.data += builder.build(
            producer_id=sequence.producer_id, producer_epoch=sequence.epoch, base_sequence=sequence.first_sequence
        )
    elif builder.record_count:
        packed.data += builder.build()
    return packed


def _too_many(topic: Topic, index: int) -> PenstockError:
    limit = topic.config.max_batch_bytes
    return PenstockError(
        ErrorCode.REQUEST_TOO_LARGE,
        f"records[{index}] does not fit into one batch with those before it: topic {topic.name!r} allows {limit} bytes "
        "(max_batch_bytes), and the records of a request with a sequence go together, so send fewer at once",
        limit=limit,
    )


def _keyless(topic: Topic, index: int) -> PenstockError:
    return PenstockError(
        ErrorCode.INVALID_RECORD, f"records[{index}] has no key, and topic {topic.name!r} is compacted: give it one"
    )


def _append(builder: BatchBuilder, record: _Parsed) -> bool:
    return builder.append(record.timestamp_ms, record.key, record.value, record.headers)


serve = serve_with(app)
