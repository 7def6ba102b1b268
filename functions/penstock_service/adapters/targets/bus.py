"""EventBridge buses as targets."""

import json
from collections.abc import Callable, Sequence
from typing import Any

from penstock_core.errors import ErrorCode, PenstockError, shown
from penstock_core.limits import BUS_BYTES_MAX
from penstock_core.push.batch import Answer, Failed, Failure, PushBatch
from penstock_core.push.targets.bus_event import SOURCE, BusEvent, bus_event
from penstock_core.push.targets.target import BusTarget
from penstock_service.adapters.targets.calls import (
    AWS_ERRORS,
    EntryCalls,
    EntrySizes,
    Refusals,
    failure_of,
    is_denied,
    is_missing,
    is_outage,
    statement_id,
)

# EventBridge refuses this entry after it has looked at the caller's rights: AWS alone writes events of such sources.
_REFUSED_SOURCE = "aws.penstock"
_DENIED_CODE = "AccessDeniedException"  # EventBridge may say this of the call or of the entry
_REFUSED_CODE = "NotAuthorizedForSourceException"


class EventBuses:
    """Puts an event for each record. `role_arn` is the role that puts them."""

    def __init__(self, client: Callable[[], Any], calls: EntryCalls, role_arn: str) -> None:
        self._client = client
        self._calls = calls
        self._role_arn = role_arn

    def check(self, target: BusTarget) -> None:
        """One PutEvents with an event that EventBridge refuses. Raises as `Targets.check`."""
        entry = {"EventBusName": target.arn, "Source": _REFUSED_SOURCE, "DetailType": "check", "Detail": "{}"}
        try:
            [answer] = self._client().put_events(Entries=[entry])["Entries"]
        except AWS_ERRORS as error:
            raise self._refusal(target, error) from error
        code = answer.get("ErrorCode", "")
        if code == _DENIED_CODE:
            raise self._denied(target)
        if code != _REFUSED_CODE and is_outage(code):
            raise _unavailable(target, code)

    def deliver(self, target: BusTarget, batch: PushBatch, timeout_ms: int) -> Answer:
        """One PutEvents for each ten records. A bus keeps no order."""
        events = [bus_event(record) for record in batch.records]
        sizes = [event.size_bytes for event in events]

        def call(indices: Sequence[int]) -> Refusals | Failed:
            return self._put(target.arn, {index: events[index] for index in indices})

        entries = EntrySizes(sizes=sizes, bytes_max=BUS_BYTES_MAX, service="EventBridge")
        return self._calls.send(batch, entries, call, timeout_ms)

    def _put(self, arn: str, events: dict[int, BusEvent]) -> Refusals | Failed:
        entries = [
            {"EventBusName": arn, "Source": SOURCE, "DetailType": event.detail_type, "Detail": event.detail}
            for event in events.values()
        ]
        try:
            answers = self._client().put_events(Entries=entries)["Entries"]
        except AWS_ERRORS as error:
            return failure_of(error)
        refused = {}
        for index, answer in zip(events, answers, strict=True):
            if code := answer.get("ErrorCode"):
                refused[index] = f"{code}: {answer.get('ErrorMessage', '')}"
                if is_outage(code):
                    return Failed(failure=Failure.AWAY, error=refused[index])
        return refused

    def _refusal(self, target: BusTarget, error: Exception) -> PenstockError:
        if is_denied(error):
            return self._denied(target)
        if is_missing(error):
            why = f"target.event_bus={shown(target.arn)}: there is no such bus"
            return PenstockError(ErrorCode.INVALID_CONFIG, why)
        return _unavailable(target, error)

    def _denied(self, target: BusTarget) -> PenstockError:
        why = (
            f"the service may not put events on {target.arn}, or there is no such bus. "
            f"Add this statement to the bus's policy:\n{json.dumps(self._statement(target))}"
        )
        return PenstockError(ErrorCode.ACCESS_DENIED, why)

    def _statement(self, target: BusTarget) -> dict[str, Any]:
        return {
            "Sid": statement_id(self._role_arn),
            "Effect": "Allow",
            "Principal": {"AWS": self._role_arn},
            "Action": "events:PutEvents",
            "Resource": target.arn,
        }


def _unavailable(target: BusTarget, why: object) -> PenstockError:
    return PenstockError(ErrorCode.STORAGE_UNAVAILABLE, f"EventBridge did not answer for {target.arn}: {why}")
