"""GET /v1/topics/{topic}/partitions/{partition}/records: records in JSON."""

import json
from typing import Annotated

from aws_lambda_powertools.event_handler.openapi.params import Path, Query

from handlers.entry import entry_point
from handlers.fields import whole_number
from handlers.json_api import broker_of, json_app, only_parameters, serve_with
from handlers.json_records import header_json, named
from handlers.models import FetchedRecord, FetchedRecords
from penstock_broker.broker import Broker
from penstock_broker.fetch import Fetched, FetchEntry, fetch
from penstock_broker.list_offsets import OffsetSpec, list_offsets, listed
from penstock_core import limits
from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.records import Record, decode

app = json_app()


@app.get(
    "/v1/topics/<topic>/partitions/<partition>/records",
    operation_id="fetchRecords",
    summary="Fetch records",
    tags=["records"],
    middlewares=[only_parameters("offset", "max_bytes", "wait_ms")],
)
def fetch_records(
    topic: Annotated[str, Path()],
    partition: Annotated[int, Path(ge=0)],
    offset: Annotated[str, Query(description="earliest, latest, or a number from 0")] = "earliest",
    max_bytes: Annotated[int, Query(ge=1, le=limits.FETCH_BYTES_MAX)] = limits.FETCH_BYTES_DEFAULT_MAX,
    wait_ms: Annotated[int, Query(ge=0, le=limits.FETCH_WAIT_MS_MAX)] = 0,
) -> FetchedRecords:
    broker = broker_of(app)
    start = _start_offset(broker, topic, partition, offset)
    entry = FetchEntry(topic=topic, partition=partition, offset=start, max_bytes=max_bytes)
    [result] = fetch(broker, [entry], max_bytes=max_bytes, min_bytes=1, wait_ms=wait_ms)
    if isinstance(result, PenstockError):
        raise result
    return _answer(result, start)


def _start_offset(broker: Broker, topic: str, partition: int, text: str) -> int:
    if text in ("earliest", "latest"):
        [end] = listed(list_offsets(broker, topic, OffsetSpec(text), partition))
        return end.offset or 0
    number = whole_number(text)
    if number is not None:
        return number
    raise PenstockError(
        ErrorCode.INVALID_REQUEST, f"offset={text!r:.100}: must be earliest, latest or a whole number from 0"
    )


def _answer(fetched: Fetched, start: int) -> FetchedRecords:
    """Records while their JSON stays within bounds and their batches can be decoded, one at least."""
    records: list[FetchedRecord] = []
    next_offset: int = fetched.next_offset
    size = 0
    try:
        for record in decode(fetched.data):
            if record.offset < start:
                continue
            shown = _to_json(record)
            size += _size_in_answer(shown)
            if records and size > limits.JSON_RESPONSE_BYTES_MAX:
                next_offset = record.offset
                break
            _check_size(record.offset, size)
            records.append(shown)
    except PenstockError:  # the next call starts at what is bad, and tells
        if not records:
            raise
        next_offset = records[-1]["offset"] + 1
    return {
        "records": records,
        "next_offset": next_offset,
        "high_watermark": fetched.high_watermark,
        "log_start_offset": fetched.log_start_offset,
    }


def _size_in_answer(shown: FetchedRecord) -> int:
    """Bytes in what Lambda returns, where the body is text inside JSON: quotes and newlines are escaped twice."""
    return len(json.dumps(json.dumps(shown, ensure_ascii=False), ensure_ascii=False).encode())


def _check_size(offset: int, size: int) -> None:
    if size > limits.JSON_RECORD_BYTES_MAX:
        raise PenstockError(
            ErrorCode.RECORD_TOO_LARGE,
            f"the record at offset {offset} takes {size} bytes as JSON: at most {limits.JSON_RECORD_BYTES_MAX} fit "
            "into an answer, fetch it in binary or go on behind it",
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
handler = entry_point(serve)
