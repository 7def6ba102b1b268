"""SQS and EventBridge as their clients show them: calls of entries, some of which are refused."""

from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any

from penstock_service.adapters.system import SequentialExecutor
from penstock_service.adapters.targets.calls import EntryCalls
from penstock_service.ports.runtime import Clock
from tests.support.service import SteppedClock

ROLE = "arn:aws:iam::123456789012:role/Penstock-Deliver"


class FakeEntryService:
    """Takes entries. `refusals` are the codes of those whose body or detail has a word of theirs."""

    def __init__(
        self, refusals: Mapping[str, str] | None = None, error: Exception | None = None, *, is_fault_theirs: bool = True
    ) -> None:
        self.calls: list[Sequence[dict[str, Any]]] = []
        self.meta = SimpleNamespace(region_name="eu-west-1")
        self._refusals, self.error, self._is_fault_theirs = refusals or {}, error, is_fault_theirs

    def client(self) -> Any:
        return self

    def send_message_batch(self, **arguments: Any) -> dict[str, Any]:
        failed = []
        for entry in self._taken(arguments["Entries"]):
            if code := self._code(entry["MessageBody"]):
                fault = {"SenderFault": self._is_fault_theirs, "Message": "no"}
                failed.append({"Id": entry["Id"], "Code": code, **fault})
        return {"Successful": [], "Failed": failed} if failed else {"Successful": []}

    def put_events(self, **arguments: Any) -> dict[str, Any]:
        entries = []
        for entry in self._taken(arguments["Entries"]):
            code = self._code(entry["Detail"])
            entries.append({"ErrorCode": code, "ErrorMessage": "no"} if code else {"EventId": "e"})
        return {"FailedEntryCount": 0, "Entries": entries}

    def _taken(self, entries: Sequence[dict[str, Any]]) -> Sequence[dict[str, Any]]:
        self.calls.append(entries)
        if self.error is not None:
            raise self.error
        return entries

    def _code(self, text: str) -> str:
        return next((code for word, code in self._refusals.items() if word in text), "")


def entry_calls(clock: Clock | None = None) -> EntryCalls:
    return EntryCalls(clock or SteppedClock(), SequentialExecutor())


class HastyClock(SteppedClock):
    """Each look at the time finds it some milliseconds later."""

    def __init__(self, step_ms: int) -> None:
        super().__init__()
        self._step_ms = step_ms

    def monotonic_ms(self) -> float:
        self.time_ms += self._step_ms
        return self.time_ms
