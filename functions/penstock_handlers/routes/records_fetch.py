"""GET /v1/topics/{topic}/partitions/{partition}/records: records in JSON."""

from typing import Annotated

import aiokafka.record.default_records  # noqa: F401 - while the function starts, not in its first request
from aws_lambda_powertools.event_handler.openapi.params import Path, Query

from penstock_core import limits
from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.filters.policy import parse_filter
from penstock_core.records.codec import Record, decode
from penstock_core.records.undecodable import in_partition
from penstock_handlers.edge.fields import whole_number
from penstock_handlers.edge.http import bytes_in_envelope
from penstock_handlers.edge.json_api import Digits, JsonApp, instance_of, principal_name, serve_with, to_json
from penstock_handlers.edge.json_records import header_json, named
from penstock_handlers.edge.models.answer_models import FetchedRecord, FetchedRecords
from penstock_service.instance.instance import Instance
from penstock_service.quotas.admit import allow_fetch
from penstock_service.records.fetch import FetchEntry, FetchResult, fetch
from penstock_service.topics.list_offsets import OffsetSpec, list_offsets

app = JsonApp("records")


@app.operation(
    "GET /v1/topics/<topic>/partitions/<partition>/records",
    "fetchRecords",
    "Fetch records",
    parameters=("offset", "topic_id", "max_bytes", "wait_ms", "filter"),
)
def fetch_records(
    topic: Annotated[str, Path()],
    partition: Annotated[Digits, Path(ge=0)],
    offset: Annotated[str, Query(description="earliest, latest, or a number from 0")] = "earliest",
    topic_id: Annotated[str | None, Query(description="the topic that the offset belongs to")] = None,
    max_bytes: Annotated[Digits, Query(ge=1, le=limits.FETCH_BYTES_MAX)] = limits.FETCH_BYTES_DEFAULT_MAX,
    wait_ms: Annotated[Digits, Query(ge=0, le=limits.FETCH_WAIT_MS_MAX)] = 0,
    policy: Annotated[
        str | None, Query(alias="filter", description="an SNS filter policy over the records' headers, as JSON")
    ] = None,
) -> FetchedRecords:
    """Answer the records of one partition from an offset on, as JSON."""
    instance = instance_of(app)
    wanted = None if policy is None else parse_filter(policy)
    allowance = allow_fetch(instance, principal_name(app), [topic], max_bytes)
    start = _start_offset(instance, topic, partition, offset)
    entry = FetchEntry(
        topic=topic, partition=partition, offset=start, max_bytes=max_bytes, topic_id=topic_id, filter=wanted
    )
    [result] = fetch(instance, [entry], max_bytes=allowance.max_bytes, min_bytes=1, wait_ms=wait_ms).all_ok()
    allowance.settle(instance, {topic: result.spent_bytes})
    try:
        return _answer(result, start)
    except PenstockError as error:
        raise in_partition(error, topic, partition) from error


def _start_offset(instance: Instance, topic: str, partition: int, text: str) -> int:
    if text in ("earliest", "latest"):
        [end] = list_offsets(instance, topic, OffsetSpec(text), partition).all_ok()
        return end.offset or 0
    number = whole_number(text)
    if number is not None:
        return number
    raise PenstockError(
        ErrorCode.INVALID_REQUEST, f"offset={text!r:.100}: must be earliest, latest or a whole number from 0"
    )


def _answer(fetched: FetchResult, start: int) -> FetchedRecords:
    """At least one record, and further ones while their JSON stays within bounds and their batches decode.

    It decodes one record beyond these bounds, and turns no record into JSON whose bytes alone exceed them.
    """
    records: list[FetchedRecord] = []
    next_offset: int = fetched.next_offset
    size = 0
    try:
        for record in decode(fetched.data):
            if record.offset < start:
                continue
            least = size + _least_size(record)
            if records and least > limits.JSON_RESPONSE_BYTES_MAX:
                next_offset = record.offset
                break
            _check_size(record.offset, least)
            shown = _to_json(record)
            size += _size_in_answer(shown)
            if records and size > limits.JSON_RESPONSE_BYTES_MAX:
                next_offset = record.offset
                break
            _check_size(record.offset, size)
            records.append(shown)
    except PenstockError:  # the next call starts at the bad batch, and its error tells the offset behind it
        if not records:
            raise
        next_offset = records[-1]["offset"] + 1
    answer: FetchedRecords = {
        "topic_id": fetched.topic_id,
        "records": records,
        "next_offset": next_offset,
        "high_watermark": fetched.high_watermark,
        "log_start_offset": fetched.log_start_offset,
    }
    if fetched.again_ms is not None:
        answer["retry_after_ms"] = fetched.again_ms
    return answer


def _least_size(record: Record) -> int:
    """The bytes that the record takes in the answer at the least. Text and base64 are no shorter than their bytes."""
    return len(record.key or b"") + len(record.value or b"") + len(record.headers) * len('["",""],')


def _size_in_answer(shown: FetchedRecord) -> int:
    """Bytes of the record in the result, where the body is text inside JSON: quotes and newlines are escaped twice."""
    return bytes_in_envelope(to_json(shown))


def _check_size(offset: int, size: int) -> None:
    if size > limits.JSON_RECORD_BYTES_MAX:
        raise PenstockError(
            ErrorCode.RECORD_TOO_LARGE,
            f"the record at offset {offset} takes {size} bytes as JSON: at most {limits.JSON_RECORD_BYTES_MAX} fit "
            "into an answer, so fetch it in binary or go on at the next offset",
            limit=limits.JSON_RECORD_BYTES_MAX,
        )


def _to_json(record: Record) -> FetchedRecord:
    return {
        "offset": record.offset,
        "timestamp_ms": record.timestamp,
        **named("key", record.key),  # type: ignore[typeddict-item] # which of two names depends on the bytes
        **named("value", record.value),
        "headers": [header_json(name, value) for name, value in record.headers],
    }


serve = serve_with(app)
