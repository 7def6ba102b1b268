"""The function `replicate`: repairs what the log table's stream or the repair queue tells of.

The stream is filtered: only heads whose newest append a zone had not confirmed come here (infra/repair.py). A repair
that fails is handed over to the queue, so that a zone that does not answer holds up no other repair in the stream; the
queue tries again at intervals, and in the end its dead-letter queue keeps what nobody could repair.
"""

import time
from collections.abc import Mapping, Sequence
from typing import Any

from aws_lambda_powertools import Logger, Metrics, Tracer
from aws_lambda_powertools.metrics import MetricUnit

from handlers.entry import report_events
from handlers.services import STORAGE_CALLS, broker
from penstock_broker.broker import Broker
from penstock_broker.repair_segment import repair_segment, zones_to_repair
from penstock_core.errors import PenstockError
from penstock_core.items import parse_streamed_head
from penstock_core.repair import NamedRef, Repair, decode_repair, repairs_due

Failures = dict[str, list[dict[str, str]]]

_logger = Logger()
_metrics = Metrics()
_tracer = Tracer()


@_tracer.capture_lambda_handler(capture_response=False)
@_logger.inject_lambda_context
@_metrics.log_metrics
def handler(event: Mapping[str, Any], context: Any) -> Failures:  # noqa: ARG001 - Lambda passes it
    """Answers `{"batchItemFailures": …}` for what is to be delivered again."""
    before, started_s = STORAGE_CALLS.snapshot(), time.perf_counter()
    to = broker()
    failures = serve(event, to)
    failed = len(failures["batchItemFailures"])
    _logger.info(
        "repair",
        extra={
            "records": len(event["Records"]),
            "partitions": _partitions(event["Records"]),
            "failed": failed,
            "total_ms": round((time.perf_counter() - started_s) * 1_000, 2),
            "storage_calls": STORAGE_CALLS.since(before),
        },
    )
    _metrics.add_metric("repairs_invoked", MetricUnit.Count, 1)
    report_events(to.events)
    return failures


def serve(event: Mapping[str, Any], to: Broker) -> Failures:
    """The records of one source: the log table's stream or the repair queue."""
    records: Sequence[Mapping[str, Any]] = event["Records"]
    failed = _from_stream(records, to) if _is_streamed(records[0]) else _from_queue(records, to)
    return {"batchItemFailures": [{"itemIdentifier": identifier} for identifier in failed]}


def _partitions(records: Sequence[Mapping[str, Any]]) -> list[str]:
    """Those whose heads woke the function."""
    return sorted({record["dynamodb"]["Keys"]["pk"]["S"] for record in records if _is_streamed(record)})


def _is_streamed(record: Mapping[str, Any]) -> bool:
    return bool(record["eventSource"] == "aws:dynamodb")


def _from_stream(records: Sequence[Mapping[str, Any]], to: Broker) -> list[str]:
    """Ends at the first record that could neither be repaired nor handed over: Lambda goes on from there."""
    seen: set[Repair] = set()
    for record in records:
        try:
            for repair in _repairs(record, to):
                # A tail's debts stand in every image until they are paid. Other partitions owe a mark of their own.
                if repair not in seen:
                    _repair_or_hand_over(to, repair)
                    seen.add(repair)
        except PenstockError as error:
            _tell(to, error, record["dynamodb"]["SequenceNumber"])
            return [record["dynamodb"]["SequenceNumber"]]
    return []


def _repairs(record: Mapping[str, Any], to: Broker) -> list[Repair]:
    image = record["dynamodb"].get("NewImage")
    if image is None or "tail" not in image:  # a deleted item or a page: the filter lets none of them through
        return []
    key, head = parse_streamed_head(image)
    # What lies below the log start may have been swept (docs/adr/0005).
    live = [located for located in head.located_tail() if located.end_offset > head.log_start_offset]
    refs = [NamedRef(key=key, located=located) for located in live]
    return repairs_due(refs, to.zone_names, zones_to_repair(to))


def _repair_or_hand_over(to: Broker, repair: Repair) -> None:
    try:
        repair_segment(to, repair)
    except PenstockError as error:
        to.events.tell("repair_postponed", segment=repair.segment_id.hex(), error=str(error))
        to.repair_queue.send(repair)


def _from_queue(records: Sequence[Mapping[str, Any]], to: Broker) -> list[str]:
    failed: list[str] = []
    for record in records:
        try:
            repair_segment(to, decode_repair(record["body"]))
        except PenstockError as error:
            _tell(to, error, record["messageId"])
            failed.append(record["messageId"])
    return failed


def _tell(to: Broker, error: PenstockError, record: str) -> None:
    to.events.tell("repair_failed", record=record, error=str(error))
