"""The clock of a program that embeds the service: AWS's time, which the answers of DynamoDB tell.

AWS accepts a clock that is 5 minutes off. Quotas, due times and windows of several processes go by one time
(docs/adr/0049), so such a clock would take what others may spend.

```
          sent            answered          received        by the clock of this machine
            |-----------------|----------------|
                 told <= time of AWS < told + 1 s           the header `Date` has whole seconds
```
So this machine is ahead by `sent - told - 1 s` at least, and by `received - told` at most. Each answer moves the
correction into these bounds and no further. Answers of all parts of a second make it exact to some milliseconds.
"""

import threading
from collections.abc import Callable
from email.utils import parsedate_to_datetime
from typing import Any

from penstock_core.limits import STORAGE_IDLE_CONNECTION_MS_MAX
from penstock_service.adapters.system import SystemClock
from penstock_service.instance.update_window import Moment
from penstock_service.ports.runtime import Clock

_SECOND_MS = 1_000


class AwsClock:
    """Clock: the time of this machine, less what it is ahead of AWS."""

    def __init__(self, machine: Clock) -> None:
        self._machine = machine
        self._ahead_ms = 0
        self._sending = threading.local()

    def now_ms(self) -> int:
        return self._machine.now_ms() - self._ahead_ms

    def monotonic_ms(self) -> float:
        return self._machine.monotonic_ms()

    def sleep_ms(self, duration_ms: float) -> None:
        self._machine.sleep_ms(duration_ms)

    def follow(self, client: Any) -> None:
        """Takes the time of every answer that `client` (botocore) gets from now on, by botocore's events."""
        client.meta.events.register("before-send", self._note_sent)
        client.meta.events.register("response-received", self._note_answer)

    def note(self, sent_ms: int, told_ms: int) -> None:
        """Notes an answer that has just come: sent at `sent_ms` by the machine, and dated `told_ms` by AWS."""
        least_ms, most_ms = sent_ms - told_ms - _SECOND_MS, self._machine.now_ms() - told_ms
        self._ahead_ms = min(max(self._ahead_ms, least_ms), most_ms)

    def _note_sent(self, **_: Any) -> None:
        self._sending.at_ms = self._machine.now_ms()

    def _note_answer(self, response_dict: Any = None, **_: Any) -> None:
        told = response_dict["headers"].get("date") if response_dict else None
        if told is None:
            return
        try:
            told_ms = int(parsedate_to_datetime(told).timestamp() * _SECOND_MS)
        except ValueError:
            return
        self.note(self._sending.at_ms, told_ms)


class IdleGuard:
    """Calls `forget`, which closes the idle connections, before a call after `STORAGE_IDLE_CONNECTION_MS_MAX` of none.

    Both clocks count, as for the project's own connections (direct/connections.py).
    """

    def __init__(self, forget: Callable[[], object], clock: Clock | None = None) -> None:
        self._forget = forget
        self._clock = clock or SystemClock()
        self._lock = threading.Lock()  # a concurrent call must not take a connection that is about to be closed
        self._called = Moment.now(self._clock)

    def before_call(self, **_: object) -> None:
        """Take note of a call. It has the form of a handler of botocore's event `before-send`."""
        with self._lock:
            is_old = self._called.age_ms(self._clock) > STORAGE_IDLE_CONNECTION_MS_MAX
            self._called = Moment.now(self._clock)
            if is_old:
                self._forget()
