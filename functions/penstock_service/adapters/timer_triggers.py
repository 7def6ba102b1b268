"""TimerTriggers on SQS and EventBridge, and the pollers that Lambda keeps on the queue."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from penstock_core.log.timer import DueSecond
from penstock_core.log.timer_message import FIRST_RUN, encode_due_second
from penstock_service.adapters.aws_calls import AwsCalls


@dataclass(frozen=True, slots=True, kw_only=True)
class TimerPlaces:
    """The queue of messages, by URL and ARN, and the rule that runs each minute, by name.

    `function` is the one that the rule runs. It is empty where the triggers are always on, so that no run bridges them.
    """

    queue_url: str
    rule: str
    queue_arn: str
    function: str


def parse_timer_places(text: str | None) -> TimerPlaces | None:
    """The places of `<queue's URL>,<rule>,<queue's ARN>,<function>`, None for no text.

    The function may be missing behind its comma. Raises ValueError for anything else.
    """
    if not text:
        return None
    parts = text.split(",")
    if len(parts) != 4 or not all(parts[:3]):
        raise ValueError(f"{text!r} does not name the triggers of timers: give QUEUE_URL,RULE,QUEUE_ARN,FUNCTION")
    return TimerPlaces(queue_url=parts[0], rule=parts[1], queue_arn=parts[2], function=parts[3])


class AwsTimerTriggers:
    """TimerTriggers: the port documents its methods. Makes a client when it first needs it."""

    def __init__(self, places: TimerPlaces, client: Callable[[str], Any]) -> None:
        self._places = places
        self._aws = AwsCalls(client)

    def announce(self, second: DueSecond, delay_ms: int) -> None:
        body, delay_s = encode_due_second(second), -(-delay_ms // 1_000)
        self._aws.call("sqs", "send_message", QueueUrl=self._places.queue_url, MessageBody=body, DelaySeconds=delay_s)

    def switch_on(self) -> None:
        self._aws.enable_rule(self._places.rule)

    def run_at_once(self) -> None:
        if self._places.function:
            payload = json.dumps(FIRST_RUN).encode()
            self._aws.call(
                "lambda", "invoke", FunctionName=self._places.function, InvocationType="Event", Payload=payload
            )

    def open_queue(self) -> None:
        self._aws.open_queue(self._places.queue_arn)
