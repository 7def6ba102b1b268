"""The function `deliver`: gives records to the targets of subscriptions. Messages of the queue of deliveries start it.

A message names one lane of a subscription. Lambda hands over one message at a time, because lanes do not wait for each
other. A message that this function reports as failed stays in the queue: it comes again when its pause is over, or,
after a failure, some seconds later. That is no error, so the queue has no dead-letter queue.

The function may call no target by its own role. It assumes the role that targets let in (docs/protocol/push).
"""

import contextlib
from collections.abc import Mapping
from typing import Any

from penstock_core.errors import PenstockError
from penstock_core.limits import PUSH_RECEIPT_RETRY_MS
from penstock_core.push.lane import decode_push_message
from penstock_handlers.edge.lambda_function import Stopwatch, logger, observed
from penstock_service.instance.instance import Instance
from penstock_service.push.deliver import Ending, Receipt, deliver

Answer = dict[str, list[dict[str, str]]]


def serve(event: Mapping[str, Any], instance: Instance) -> tuple[Answer, dict[str, Any]]:
    """Handles the messages of the event. Gives `{"batchItemFailures": …}` and the facts of the log line.

    A message that cannot be read is logged and deleted, because no retry would mend it.
    """
    kept, lanes = [], []
    for record in event["Records"]:
        try:
            message = decode_push_message(record["body"])
        except PenstockError as error:
            instance.telemetry.log("push_message_unreadable", error=str(error))
            continue
        lanes.append(f"{message.name}#{message.lane}")
        receipt = Receipt(message=message, message_id=record["messageId"], handle=record["receiptHandle"])
        try:
            ending = deliver(instance, receipt)
        except PenstockError as error:
            instance.telemetry.log(
                "push_delivery_failed", subscription=message.name, lane=message.lane, error=str(error)
            )
            ending = Ending.KEEP
            _call_again(instance, receipt)
        if ending is Ending.KEEP:
            kept.append(record["messageId"])
    figures = {"lanes": lanes, "messages": len(event["Records"]), "messages_kept": len(kept)}
    return {"batchItemFailures": [{"itemIdentifier": each} for each in kept]}, figures


def _call_again(instance: Instance, receipt: Receipt) -> None:
    """Let the message come again soon. Without this, it is hidden for as long as that of a delivery that died."""
    with contextlib.suppress(PenstockError):
        instance.stores.deliveries.postpone(receipt.handle, PUSH_RECEIPT_RETRY_MS)


def _observed_serve(event: Mapping[str, Any], instance: Instance, stopwatch: Stopwatch) -> Answer:
    answer, figures = serve(event, instance)
    facts = {"total_ms": round(stopwatch.total_ms(), 2), "storage_calls": stopwatch.storage_calls()}
    logger.info("run", extra={**figures, **facts})
    return answer


handler = observed(_observed_serve)
