"""The watch over the storage calls of `deliver`: one that fails or lasts too long may lose what a target answered.

`deliver` reaches storage through a proxy of its own, so the history knows which faults were its own.
"""

import threading
import time
from collections.abc import Callable

from tests.end_to_end.fault_proxy import Call, Delay, Fault
from tests.history.format import Disturb, Function
from tests.history.recorder import Recorder

_SLOW_S = 4.0  # the client takes a call for lost after 5 s
_REFUSED = (b"ConditionalCheckFailed", b"PreconditionFailed")  # an answer that the service expects
_CAUSES = (b"Throttl", b"ProvisionedThroughput", b"Conflict", b"InternalServer")


class DeliveryWatch:
    """Decides as `decide` does, and tells the history of faults and of answers that are errors."""

    def __init__(
        self,
        decide: Callable[[Call], Fault | None],
        recorder: Recorder,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._decide = decide
        self._recorder = recorder
        self._now_s = now_s
        self._began = threading.local()  # the proxy decides on a call and tells of its answer in one thread

    def decide(self, call: Call) -> Fault | None:
        """The fault of the call."""
        self._began.at_s = self._now_s()
        fault = self._decide(call)
        if fault is not None and not isinstance(fault, Delay) and _matters(call):
            self._tell(f"{call.operation}: {type(fault).__name__.lower()}")
        return fault

    def told(self, call: Call, status: int, body: bytes) -> None:
        """Note the answer of storage, which may have come too late."""
        took_s = self._now_s() - self._began.at_s
        if _matters(call) and (took_s > _SLOW_S or is_failure(status, body)):
            self._tell(f"{call.operation}: {status} after {took_s:.1f} s")

    def _tell(self, why: str) -> None:
        self._recorder.done("injector", Function.DISTURB, [Disturb(f"deliver's {why}")])


def is_failure(status: int, body: bytes) -> bool:
    """Whether the answer of DynamoDB or S3 is more than a refused condition."""
    if status < 400:
        return False
    return status >= 500 or any(cause in body for cause in _CAUSES) or not any(each in body for each in _REFUSED)


def _matters(call: Call) -> bool:
    """A get of a segment comes before an invocation, and a failed one has a copy in another zone."""
    return call.service == "dynamodb" or call.operation == "PutObject"
