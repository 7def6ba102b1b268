"""The function `replicate`: makes the repairs that the log table's stream or the repair queue names.

The stream is filtered: only heads whose newest append a zone had not confirmed come here (infra/repair.py). A repair
that fails goes to the queue, so a zone that does not answer holds up no other repair in the stream. The queue tries
again at intervals. In the end its dead-letter queue keeps the repairs that did not succeed.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from aws_lambda_powertools.metrics import MetricUnit

from penstock_core.errors import PenstockError
from penstock_core.log.repair import NamedRef, Repair, decode_repair, repairs_due
from penstock_core.storage.head_item import parse_streamed_head
from penstock_handlers.edge.lambda_function import Stopwatch, logger, meter, observed
from penstock_service.instance.instance import Instance
from penstock_service.repair.repair_segment import repair_segment, zones_to_repair

Failures = dict[str, list[dict[str, str]]]


def serve(event: Mapping[str, Any], instance: Instance) -> Failures:
    """Repairs what the records of one source name: of the log table's stream, or of the repair queue.

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
    """Stops at the first record that it can neither repair nor hand over: Lambda goes on from there."""
    seen: set[Repair] = set()
    for record in records:
        try:
            for repair in _repairs(record, instance):
                # Every image of a head shows its missing copies until they are marked. A segment holds several
                # partitions, and each of them needs a mark of its own.
                if repair not in seen:
                    _repair_or_hand_over(instance, repair)
                    seen.add(repair)
        except PenstockError as error:
            _log_failure(instance, error, record["dynamodb"]["SequenceNumber"])
            return [record["dynamodb"]["SequenceNumber"]]
    return []


def _repairs(record: Mapping[str, Any], instance: Instance) -> list[Repair]:
    image = record["dynamodb"].get("NewImage")
    if image is None or "tail" not in image:  # a deleted item or a page: the filter lets none of them through
        return []
    key, head = parse_streamed_head(image)
    # The sweep may have deleted segments below the log start (docs/adr/0005).
    live = [located for located in head.located_tail() if located.end_offset > head.log_start_offset]
    refs = [NamedRef(key=key, located=located) for located in live]
    return repairs_due(refs, instance.stores.zone_names, zones_to_repair(instance))


def _repair_or_hand_over(instance: Instance, repair: Repair) -> None:
    try:
        repair_segment(instance, repair)
    except PenstockError as error:
        instance.telemetry.log("repair_postponed", segment=repair.segment_id.hex(), error=str(error))
        instance.stores.repair_queue.send(repair)


def _from_queue(records: Sequence[Mapping[str, Any]], instance: Instance) -> list[str]:
    failed: list[str] = []
    for record in records:
        try:
            repair_segment(instance, decode_repair(record["body"]))
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
