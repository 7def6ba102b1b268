"""The function `replicate`: makes the copies that the log table's stream or the repair queue tells it of.

The stream is filtered: only heads whose newest append a zone had not confirmed come here
(infra/penstock_cdk/service/repair.py). Most of these zones confirm a few milliseconds later. So the stream copies
nothing: it sends looks, which come back through the queue some seconds later and repair what is still missing
(docs/protocol/zones).

A repair that fails goes to the queue by itself, so a zone that does not answer holds up no other repair. The queue
tries again at intervals. In the end its dead-letter queue keeps the repairs that did not succeed.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from aws_lambda_powertools.metrics import MetricUnit

from penstock_core.errors import PenstockError
from penstock_core.limits import LOOK_MS_MAX, REPAIR_STREAM_LATE_MS
from penstock_core.log.repair import Look, NamedRef, decode_message, looks_due, owed_refs
from penstock_core.storage.head_item import parse_streamed_head, streamed_age_ms
from penstock_handlers.edge.lambda_function import Stopwatch, logger, meter, observed
from penstock_service.instance.instance import Instance
from penstock_service.repair.repair_segment import repair_owed, repair_segment, zones_to_repair

Failures = dict[str, list[dict[str, str]]]


def serve(event: Mapping[str, Any], instance: Instance) -> Failures:
    """Handles records of one source: asks for looks at heads of the log table's stream, or repairs by the queue.

    Answers `{"batchItemFailures": …}` with the records that Lambda is to deliver again.
    """
    records: Sequence[Mapping[str, Any]] = event["Records"]
    failed = _from_stream(records, instance) if _is_streamed(records[0]) else _from_queue(records, instance)
    return {"batchItemFailures": [{"itemIdentifier": identifier} for identifier in failed]}


def _partitions(records: Sequence[Mapping[str, Any]]) -> list[str]:
    """The partitions whose heads woke the function."""
    return sorted({record["dynamodb"]["Keys"]["pk"]["S"] for record in records if _is_streamed(record)})


def _is_streamed(record: Mapping[str, Any]) -> bool:
    return bool(record["eventSource"] == "aws:dynamodb")


def _from_stream(records: Sequence[Mapping[str, Any]], instance: Instance) -> list[str]:
    """Sends one range for each partition of the batch. Lambda goes on from the first record that fails."""
    age_ms = max(streamed_age_ms(record, instance.clock.now_ms()) for record in records)
    if age_ms > REPAIR_STREAM_LATE_MS:
        instance.telemetry.log("repair_stream_late", age_ms=round(age_ms))  # the alarm functions-failing counts it
    owed: list[NamedRef] = []
    failed: list[str] = []
    for record in records:
        try:
            owed += _owed(record, instance)
        except PenstockError as error:
            failed = [record["dynamodb"]["SequenceNumber"]]
            _log_failure(instance, error, failed[0])
            break
    try:
        for look in looks_due(owed):
            instance.stores.repair_queue.send(look)
    except PenstockError as error:
        failed = [records[0]["dynamodb"]["SequenceNumber"]]  # a look that was sent may be sent again
        _log_failure(instance, error, failed[0])
    return failed


def _owed(record: Mapping[str, Any], instance: Instance) -> list[NamedRef]:
    """The refs of the tail that lack a bit: those of this append, and older ones that nobody has repaired yet."""
    image = record["dynamodb"].get("NewImage")
    if image is None or "tail" not in image:  # a deleted item or a page: the filter lets none of them through
        return []
    key, head = parse_streamed_head(image)
    # The sweep may have deleted segments below the log start (docs/adr/0005).
    live = [located for located in head.located_tail() if located.end_offset > head.log_start_offset]
    return owed_refs((NamedRef(key=key, located=located) for located in live), zones_to_repair(instance))


def _from_queue(records: Sequence[Mapping[str, Any]], instance: Instance) -> list[str]:
    deadline_ms = instance.clock.monotonic_ms() + LOOK_MS_MAX
    failed: list[str] = []
    for record in records:
        try:
            message = decode_message(record["body"])
            if isinstance(message, Look):
                repair_owed(instance, message, deadline_ms)
            else:
                repair_segment(instance, message)
        except PenstockError as error:
            _log_failure(instance, error, record["messageId"])
            failed.append(record["messageId"])
    return failed


def _log_failure(instance: Instance, error: PenstockError, record: str) -> None:
    instance.telemetry.log("repair_failed", record=record, error=str(error))


def _observed_serve(event: Mapping[str, Any], instance: Instance, stopwatch: Stopwatch) -> Failures:
    failures = serve(event, instance)
    logger.info(
        "repair",
        extra={
            "records": len(event["Records"]),
            "partitions": _partitions(event["Records"]),
            "failed": len(failures["batchItemFailures"]),
            "total_ms": round(stopwatch.total_ms(), 2),
            "storage_calls": stopwatch.storage_calls(),
        },
    )
    meter.add("repairs_invoked", MetricUnit.Count, 1)
    return failures


handler = observed(_observed_serve)
