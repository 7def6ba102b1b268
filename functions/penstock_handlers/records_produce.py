"""POST /v1/topics/{topic}/records: records in JSON."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated

import aiokafka.record.default_records  # noqa: F401 - while the function starts, not in its first request
from aws_lambda_powertools.event_handler.openapi.params import Path, Query

from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.filters.tag_filter import tags_of
from penstock_core.log.topic import Topic
from penstock_core.outcomes import Outcome
from penstock_core.records.codec import BatchBuilder
from penstock_core.records.partitioner import partition_for_key
from penstock_core.zones.quorum import parse_acks
from penstock_handlers.edge.answer_models import ProducedOffset, ProducedOffsets
from penstock_handlers.edge.entry import entry_point
from penstock_handlers.edge.json_api import error_json, instance_of, json_app, only_parameters, serve_with
from penstock_handlers.edge.json_records import headers_of, key_of, value_of
from penstock_handlers.edge.request_models import ProduceRecords, Record
from penstock_service.instance.instance import Instance
from penstock_service.records.append import AppendedRange
from penstock_service.records.produce import ProduceEntry, produce

app = json_app()


@app.post(
    "/v1/topics/<topic>/records",
    operation_id="produceRecords",
    summary="Produce records",
    tags=["records"],
    middlewares=[only_parameters("acks")],
)
def produce_records(
    topic: Annotated[str, Path()], request: ProduceRecords, acks: Annotated[str, Query()] = "quorum"
) -> ProducedOffsets:
    """Append JSON records to a topic, and answer each record's offset or its error."""
    instance = instance_of(app)
    wanted_acks = parse_acks(acks)
    found = instance.topic_cache.get(topic)
    partitions = _partition(instance, found, request.records)
    packed = {number: _pack(found, number, records) for number, records in partitions.items()}
    filled = [number for number in packed if packed[number].data]
    entries = [
        ProduceEntry(
            topic=topic,
            partition=number,
            data=bytes(packed[number].data),
            is_own_encoding=True,
            tag_filter=packed[number].tag_filter,
        )
        for number in filled
    ]
    results = produce(instance, entries, wanted_acks) if entries else []
    for number, result in zip(filled, results, strict=True):
        packed[number].settle(result)
    outcomes = {index: outcome for part in packed.values() for index, outcome in part.outcomes.items()}
    return {"offsets": [outcomes[index] for index in range(len(request.records))]}


@dataclass(slots=True, kw_only=True)
class _Packed:
    """One partition's records as batches, and each record's outcome by its index in the request."""

    partition: int
    data: bytearray = field(default_factory=bytearray)
    indexes: list[int] = field(default_factory=list)
    outcomes: dict[int, ProducedOffset] = field(default_factory=dict)
    tag_filter: int = 0

    def refuse(self, index: int, error: PenstockError) -> None:
        self.outcomes[index] = {"partition": self.partition, "error": error_json(error)}

    def settle(self, result: Outcome[AppendedRange]) -> None:
        for place, index in enumerate(self.indexes):
            if isinstance(result, PenstockError):
                self.refuse(index, result)
            else:
                self.outcomes[index] = {"partition": self.partition, "offset": result.base_offset + place}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Parsed:
    index: int
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]]
    timestamp_ms: int


def _partition(instance: Instance, topic: Topic, records: Sequence[Record]) -> Mapping[int, list[_Parsed]]:
    """Records by partition: the record's own, else its key's. Records without either share one random partition."""
    now_ms = instance.clock.now_ms()
    keyless = int.from_bytes(instance.entropy.random_bytes(4), "big") % topic.partitions
    partitions: dict[int, list[_Parsed]] = {}
    for index, record in enumerate(records):
        where = f"records[{index}]"
        key = key_of(record, where)
        if record.partition is not None:
            number = record.partition
        else:
            number = keyless if key is None else partition_for_key(key, topic.partitions)
        parsed = _Parsed(
            index=index,
            key=key,
            value=value_of(record, where),
            headers=headers_of(record, where),
            timestamp_ms=now_ms if record.timestamp_ms is None else record.timestamp_ms,
        )
        partitions.setdefault(number, []).append(parsed)
    return partitions


def _pack(topic: Topic, partition: int, records: Sequence[_Parsed]) -> _Packed:
    """Batches of at most `max_batch_bytes`. Refuses a record that is too large for a batch of its own."""
    packed = _Packed(partition=partition)
    limit = topic.config.max_batch_bytes
    builder = BatchBuilder(batch_bytes=limit)
    for record in records:
        if not _append(builder, record):
            packed.data += builder.build()
            builder = BatchBuilder(batch_bytes=limit)
            _append(builder, record)
        if builder.size_bytes <= limit:
            packed.indexes.append(record.index)
            packed.tag_filter |= tags_of(record.headers)
            continue
        error = PenstockError(
            ErrorCode.RECORD_TOO_LARGE,
            f"records[{record.index}] takes {builder.size_bytes} bytes: topic {topic.name!r} allows {limit} "
            "(max_batch_bytes)",
            limit=limit,
        )
        packed.refuse(record.index, error)
        builder = BatchBuilder(batch_bytes=limit)
    packed.data += builder.build() if builder.record_count else b""
    return packed


def _append(builder: BatchBuilder, record: _Parsed) -> bool:
    return builder.append(record.timestamp_ms, record.key, record.value, record.headers)


serve = serve_with(app)
handler = entry_point(serve)
