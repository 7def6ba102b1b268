"""The queue of deliveries on AWS: what is sent, and what happens to failures."""

from typing import Any

import pytest
from botocore.exceptions import ClientError

from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.ids import SubscriptionId, SubscriptionName
from penstock_core.push.lane import PushMessage, decode_push_message
from penstock_service.adapters.absent import NoDeliveryQueue
from penstock_service.adapters.sqs import DeliveryPlaces, SqsDeliveryQueue, parse_delivery_places

PLACES = DeliveryPlaces(
    queue_url="https://sqs/deliveries", queue_arn="arn:aws:sqs:us-east-1:123456789012:deliveries", rule="look"
)


def message(lane: int) -> PushMessage:
    return PushMessage(name=SubscriptionName("mail"), subscription_id=SubscriptionId("0a" * 10), lane=lane, version=1)


class FakeAws:
    """Clients that note their calls, and answer what they are told to."""

    def __init__(self, *, answer: dict[str, Any] | None = None, fails: bool = False) -> None:
        self.calls: list[tuple[str, str, dict[str, Any]]] = []
        self._answer, self._fails = answer or {}, fails

    def client(self, service: str) -> Any:
        aws = self

        class Client:
            def __getattr__(self, operation: str) -> Any:
                def call(**arguments: Any) -> Any:
                    if aws._fails:
                        raise ClientError({"Error": {"Code": "Throttled", "Message": "later"}}, operation)
                    aws.calls.append((service, operation, arguments))
                    return aws._answer

                return call

        return Client()


def test_messages_go_in_calls_of_ten() -> None:
    aws = FakeAws()
    SqsDeliveryQueue(PLACES, aws.client).send([message(lane) for lane in range(21)])
    assert [(service, operation) for service, operation, _ in aws.calls] == [("sqs", "send_message_batch")] * 3
    entries = [call["Entries"] for _, _, call in aws.calls]
    assert [len(each) for each in entries] == [10, 10, 1]
    assert [decode_push_message(each["MessageBody"]).lane for part in entries for each in part] == [*range(21)]
    assert all(len({each["Id"] for each in part}) == len(part) for part in entries)
    assert {call["QueueUrl"] for _, _, call in aws.calls} == {PLACES.queue_url}


def test_message_that_sqs_refuses_fails_the_call() -> None:
    refused = {"Failed": [{"Id": "1", "Code": "InternalError", "SenderFault": False}], "Successful": [{"Id": "0"}]}
    with pytest.raises(PenstockError, match="1 of 2") as caught:
        SqsDeliveryQueue(PLACES, FakeAws(answer=refused).client).send([message(0), message(1)])
    assert (caught.value.code, caught.value.maybe_applied) == (ErrorCode.STORAGE_UNAVAILABLE, True)


@pytest.mark.parametrize(("delay_ms", "delay_s"), [(0, 0), (1, 1), (39_600_000, 39_600)])
def test_message_is_hidden_by_whole_seconds_and_never_too_little(delay_ms: int, delay_s: int) -> None:
    aws = FakeAws()
    SqsDeliveryQueue(PLACES, aws.client).postpone("receipt", delay_ms)
    [(_, operation, arguments)] = aws.calls
    assert operation == "change_message_visibility"
    assert arguments == {
        "QueueUrl": PLACES.queue_url, "ReceiptHandle": "receipt", "VisibilityTimeout": delay_s
    }  # fmt: skip


def test_switch_enables_the_pollers_that_are_off_and_the_rule_of_the_look() -> None:
    states = {"a": "Enabled", "b": "Disabled", "c": "Enabling"}
    aws = FakeAws(answer={"EventSourceMappings": [{"UUID": uuid, "State": state} for uuid, state in states.items()]})
    SqsDeliveryQueue(PLACES, aws.client).switch_on()
    assert aws.calls == [
        ("lambda", "list_event_source_mappings", {"EventSourceArn": PLACES.queue_arn}),
        ("lambda", "update_event_source_mapping", {"UUID": "b", "Enabled": True}),
        ("events", "enable_rule", {"Name": "look"}),
    ]


def test_failure_says_what_did_not_answer() -> None:
    queue = SqsDeliveryQueue(PLACES, FakeAws(fails=True).client)
    for call in (queue.switch_on, lambda: queue.postpone("receipt", 1), lambda: queue.send([message(0)])):
        with pytest.raises(PenstockError, match="did not answer") as caught:
            call()
        assert (caught.value.code, caught.value.maybe_applied) == (ErrorCode.STORAGE_UNAVAILABLE, True)


def test_process_without_a_queue_says_so() -> None:
    queue = NoDeliveryQueue()
    for call in (queue.switch_on, lambda: queue.postpone("receipt", 1), lambda: queue.send([message(0)])):
        with pytest.raises(PenstockError, match="PENSTOCK_DELIVERIES"):
            call()


def test_places_of_the_environment() -> None:
    assert parse_delivery_places(f"{PLACES.queue_url},{PLACES.queue_arn},{PLACES.rule}") == PLACES
    assert parse_delivery_places(None) is parse_delivery_places("") is None
    for wrong in ("a", "a,b", "a,b,", ",b,c", "a,b,c,d"):
        with pytest.raises(ValueError, match="QUEUE_URL"):
            parse_delivery_places(wrong)
