"""The triggers of timers on AWS: what they send, and what they make of failures."""

import json
from typing import Any

import pytest
from botocore.exceptions import ClientError

from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.ids import Partition, PartitionKey, TopicId
from penstock_core.log.timer import FIRST_RUN, DueSecond, decode_due_second
from penstock_service.adapters.timer_triggers import AwsTimerTriggers, TimerPlaces, parse_timer_places

ARN = "arn:aws:sqs:us-east-1:123456789012:seconds"
PLACES = TimerPlaces(
    queue_url="https://sqs/seconds", rule="penstock-promote", queue_arn=ARN, function="penstock-promote:live"
)
SECOND = DueSecond(1_800_000_000, PartitionKey(TopicId("0f" * 10), Partition(3)))


class FakeAws:
    def __init__(self, states: dict[str, str] | None = None, *, fails: bool = False) -> None:
        self.calls: list[tuple[str, str, dict[str, Any]]] = []
        self._states, self._fails = states or {}, fails

    def client(self, service: str) -> Any:
        aws = self

        class Client:
            def __getattr__(self, operation: str) -> Any:
                def call(**arguments: Any) -> Any:
                    if aws._fails:
                        raise ClientError({"Error": {"Code": "Throttled", "Message": "later"}}, operation)
                    aws.calls.append((service, operation, arguments))
                    return {"EventSourceMappings": [{"UUID": u, "State": s} for u, s in aws._states.items()]}

                return call

        return Client()


@pytest.mark.parametrize(("delay_ms", "delay_s"), [(0, 0), (1, 1), (1_000, 1), (900_000, 900)])
def test_message_is_delayed_by_whole_seconds_and_never_too_little(delay_ms: int, delay_s: int) -> None:
    aws = FakeAws()
    AwsTimerTriggers(PLACES, aws.client).announce(SECOND, delay_ms)
    [(service, operation, arguments)] = aws.calls
    assert (service, operation) == ("sqs", "send_message")
    assert (arguments["QueueUrl"], arguments["DelaySeconds"]) == (PLACES.queue_url, delay_s)
    assert decode_due_second(arguments["MessageBody"]) == SECOND


def test_switch_enables_the_rule() -> None:
    aws = FakeAws()
    AwsTimerTriggers(PLACES, aws.client).switch_on()
    assert aws.calls == [("events", "enable_rule", {"Name": "penstock-promote"})]


def test_first_run_is_started_and_not_waited_for() -> None:
    aws = FakeAws()
    AwsTimerTriggers(PLACES, aws.client).run_at_once()
    [(service, operation, arguments)] = aws.calls
    assert (service, operation) == ("lambda", "invoke")
    assert (arguments["FunctionName"], arguments["InvocationType"]) == ("penstock-promote:live", "Event")
    assert json.loads(arguments["Payload"]) == FIRST_RUN


def test_no_first_run_where_the_triggers_are_always_on() -> None:
    aws, places = FakeAws(), parse_timer_places(f"https://sqs/seconds,penstock-promote,{ARN},")
    assert places is not None
    AwsTimerTriggers(places, aws.client).run_at_once()
    assert aws.calls == []


def test_pollers_are_enabled_if_they_are_not() -> None:
    aws = FakeAws({"a": "Enabled", "b": "Disabled", "c": "Enabling"})
    AwsTimerTriggers(PLACES, aws.client).open_queue()
    assert aws.calls == [
        ("lambda", "list_event_source_mappings", {"EventSourceArn": ARN}),
        ("lambda", "update_event_source_mapping", {"UUID": "b", "Enabled": True}),
    ]


def test_failure_says_what_did_not_answer() -> None:
    triggers = AwsTimerTriggers(PLACES, FakeAws(fails=True).client)
    for call in (triggers.switch_on, triggers.run_at_once, triggers.open_queue, lambda: triggers.announce(SECOND, 0)):
        with pytest.raises(PenstockError) as caught:
            call()
        assert (caught.value.code, caught.value.maybe_applied) == (ErrorCode.STORAGE_UNAVAILABLE, True)


def test_places_of_the_environment() -> None:
    assert parse_timer_places(f"https://sqs/seconds,penstock-promote,{ARN},penstock-promote:live") == PLACES
    assert parse_timer_places(None) is parse_timer_places("") is None
    for wrong in ("a", "a,b", "a,b,c", "a,,c,d", "a,b,c,d,e"):
        with pytest.raises(ValueError, match="QUEUE_URL"):
            parse_timer_places(wrong)
