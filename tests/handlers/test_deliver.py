"""The function `deliver`, as Lambda calls it with a message of the queue of deliveries."""

from typing import Any

import pytest

from penstock_core.limits import PUSH_RECEIPT_RETRY_MS, PUSH_SLICE_MS
from penstock_core.push.batch import Answer, Answered, Failed, Failure
from penstock_core.push.lane import encode_push_message
from penstock_handlers.deliver import serve
from tests.support.push_deliveries import Deliveries
from tests.support.service import UNAVAILABLE, Intercepted, with_stores


@pytest.fixture
def deliveries() -> Deliveries:
    return Deliveries()


def event(deliveries: Deliveries) -> dict[str, Any]:
    """The next visible message, as Lambda's pollers hand it over."""
    [received] = deliveries.queue.receive()
    body = encode_push_message(received.message)
    return {"Records": [{"messageId": received.message_id, "receiptHandle": received.receipt, "body": body}]}


def test_message_is_deleted_when_its_lane_has_nothing_more(deliveries: Deliveries) -> None:
    deliveries.append("a")
    answer, figures = serve(event(deliveries), deliveries.instance)
    assert answer == {"batchItemFailures": []}
    assert figures == {"lanes": ["packing#0"], "messages": 1, "messages_kept": 0}
    assert deliveries.batches == [[0]]


def test_message_stays_while_its_lane_pauses(deliveries: Deliveries) -> None:
    deliveries.append("a")
    deliveries.answer = lambda _: Failed(failure=Failure.AWAY, error="429")
    answer, figures = serve(event(deliveries), deliveries.instance)
    assert answer == {"batchItemFailures": [{"itemIdentifier": "message-1"}]}
    assert figures["messages_kept"] == 1
    assert deliveries.queue.receive() == []


def test_message_stays_when_storage_fails(deliveries: Deliveries) -> None:
    def refuse(_original: Any, *_arguments: Any) -> Any:
        raise UNAVAILABLE

    push = Intercepted(deliveries.instance.stores.push, get_subscription=refuse)
    answer, _ = serve(event(deliveries), with_stores(deliveries.instance, push=push))
    assert answer == {"batchItemFailures": [{"itemIdentifier": "message-1"}]}
    assert deliveries.counts() == {"push_delivery_failed": 1}


@pytest.mark.parametrize("store", ["push", "deliveries"])
def test_message_comes_again_soon_when_storage_fails_before_the_lane_or_after_it(store: str) -> None:
    """After the lane, the slice is over, and no new message can be sent."""
    deliveries = Deliveries(settings={"batch_records": 1})
    deliveries.append("a", "b")
    instance = deliveries.instance

    def refuse(_original: Any, *_arguments: Any) -> Any:
        raise UNAVAILABLE

    if store == "push":
        failing = with_stores(instance, push=Intercepted(instance.stores.push, get_subscription=refuse))
    else:
        deliveries.answer = lambda _: _slowly(deliveries)
        failing = with_stores(instance, deliveries=Intercepted(deliveries.queue, send=refuse))
    assert serve(event(deliveries), failing)[0]["batchItemFailures"] != []
    assert deliveries.queue.receive() == []
    deliveries.clock.sleep_ms(PUSH_RECEIPT_RETRY_MS)
    assert len(deliveries.queue.receive()) == 1


def _slowly(deliveries: Deliveries) -> Answer:
    """The target takes the whole slice."""
    deliveries.clock.sleep_ms(PUSH_SLICE_MS)
    return Answered()


def test_message_that_cannot_be_read_is_passed_over(deliveries: Deliveries) -> None:
    records = [{"messageId": "m", "receiptHandle": "r", "body": "{}"}]
    assert serve({"Records": records}, deliveries.instance)[0] == {"batchItemFailures": []}
    assert deliveries.counts() == {"push_message_unreadable": 1}
