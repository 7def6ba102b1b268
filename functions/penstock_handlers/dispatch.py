"""The function `dispatch`: starts deliveries of subscriptions to partitions that got records.

The log table's stream is filtered: only updates that took a push waiter out of a head come here
(infra/penstock_cdk/service/push.py).
The function puts messages into the queue of deliveries, and does no work of theirs: records of the stream wait behind
it, and so does every other reader of the stream on a laptop.

A record that cannot be read is logged and passed over, because no retry would mend it. If a topic's subscriptions
cannot be read, or the queue takes no message, Lambda delivers the stream again from that record on.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from penstock_core.errors import PenstockError
from penstock_core.limits import DISPATCH_LATE_MS
from penstock_core.log.wake_up import PushEvent
from penstock_core.storage.head_item import parse_push_event, streamed_age_ms
from penstock_handlers.edge.lambda_function import Stopwatch, logger, observed
from penstock_service.instance.instance import Instance
from penstock_service.push.dispatch import dispatch

Record = Mapping[str, Any]
Answer = dict[str, list[dict[str, str]]]


def serve(event: Mapping[str, Any], instance: Instance) -> tuple[Answer, dict[str, int]]:
    """Handles records of the log table's stream. Gives `{"batchItemFailures": …}` and the figures of the log line."""
    records: Sequence[Record] = event["Records"]
    events = [*_events(records, instance)]
    stores = instance.stores
    outcome = dispatch(stores.push, stores.deliveries, instance.executor, [event for _, event in events])
    for topic_id, error in outcome.failures.items():
        instance.telemetry.log("dispatch_failed", topic_id=topic_id, error=str(error))
    failed = [record for record, event in events if event.key.topic_id in outcome.failures]
    now_ms = instance.clock.now_ms()
    figures = {
        "records": len(records),
        "wake_ups": len(events),
        "messages": outcome.messages,
        "dispatches_failed": len(outcome.failures),
        "dispatches_late": sum(streamed_age_ms(each, now_ms) > DISPATCH_LATE_MS for each in records),
    }
    # Lambda goes on from the first of them, whatever comes behind it.
    return {
        "batchItemFailures": [{"itemIdentifier": each["dynamodb"]["SequenceNumber"]} for each in failed[:1]]
    }, figures


def _events(records: Sequence[Record], instance: Instance) -> Iterator[tuple[Record, PushEvent]]:
    """The records with what they tell, without those that took no push waiter."""
    for record in records:
        try:
            event = parse_push_event(record.get("dynamodb", {}))
        except PenstockError as error:
            instance.telemetry.log("push_event_unreadable", error=str(error))
            continue
        if event is not None:
            yield record, event


def _observed_serve(event: Mapping[str, Any], instance: Instance, stopwatch: Stopwatch) -> Answer:
    answer, figures = serve(event, instance)
    facts = {"total_ms": round(stopwatch.total_ms(), 2), "storage_calls": stopwatch.storage_calls()}
    logger.info("run", extra={**figures, **facts})
    return answer


handler = observed(_observed_serve, uses_zones=False)
