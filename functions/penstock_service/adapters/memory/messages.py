"""DeliveryQueue in memory, with the rules of a standard SQS queue: what is received is hidden, and comes again.

```
 sent ──receive──▶ hidden until a time ──▶ visible again ──receive──▶ …
                    │      postpone sets another time
                    └─delete─▶ gone
```
"""

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.limits import PUSH_MESSAGE_AGE_MS_MAX, PUSH_VISIBILITY_MS
from penstock_core.log.repair import Look, Repair
from penstock_core.log.timer import DueSecond
from penstock_core.log.wake_up import WakeUpMessage
from penstock_core.mirror.push import MirrorPush, PushAnswer
from penstock_core.push.batch import Answer, Answered, Failed, Failure, PushBatch
from penstock_core.push.lane import PushMessage
from penstock_core.push.targets.target import StageTarget, Target
from penstock_service.adapters.system import MovableClock
from penstock_service.ports.push import WakeUpPlace
from penstock_service.ports.runtime import Clock

_SECOND_MS = 1_000
_AT_ONCE = 10  # messages that SQS gives in one call at most
Receive = Callable[[WakeUpMessage], object]
LOCAL_PLACE = WakeUpPlace(
    realtime_url="ws://127.0.0.1/event/realtime", host="wake-ups.localhost", realtime_host="wake-ups.localhost"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReceivedMessage:
    """One receipt of a message. `receive_count` counts from 1."""

    message_id: str
    receipt: str
    message: PushMessage
    sent_ms: int
    receive_count: int
    hidden_until_ms: int


class MemoryDeliveryQueue:
    """DeliveryQueue: the port documents its methods. A consumer calls `receive` and `delete`, as Lambda does on SQS."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._messages: dict[str, ReceivedMessage] = {}
        self._sent = 0
        self.is_on = False

    @property
    def messages(self) -> Sequence[PushMessage]:
        """All messages that are not deleted, hidden ones too, in the order of their sending."""
        with self._lock:
            return [each.message for each in self._messages.values()]

    @property
    def next_visible_ms(self) -> int | None:
        """The time at which the first message is visible, None if there is none."""
        with self._lock:
            return min((each.hidden_until_ms for each in self._messages.values()), default=None)

    def send(self, messages: Sequence[PushMessage]) -> None:
        now_ms = self._clock.now_ms()
        with self._lock:
            for message in messages:
                self._sent += 1
                message_id = f"message-{self._sent}"
                self._messages[message_id] = ReceivedMessage(
                    message_id=message_id,
                    receipt="",
                    message=message,
                    sent_ms=now_ms,
                    receive_count=0,
                    hidden_until_ms=now_ms,
                )

    def postpone(self, receipt: str, delay_ms: int) -> None:
        now_ms = self._clock.now_ms()
        with self._lock:
            received = self._of_receipt(receipt)
            if received is None or received.hidden_until_ms <= now_ms:
                raise PenstockError(ErrorCode.STORAGE_UNAVAILABLE, f"no message is in flight under {receipt!r}")
            delay_s = -(-delay_ms // _SECOND_MS)
            self._messages[received.message_id] = replace(received, hidden_until_ms=now_ms + delay_s * _SECOND_MS)

    def switch_on(self) -> None:
        self.is_on = True

    def receive(self, limit: int = 1) -> Sequence[ReceivedMessage]:
        """At most `limit`, 10 in all, of the visible messages. They are hidden for `PUSH_VISIBILITY_MS` then.

        None before the queue is switched on.
        """
        now_ms = self._clock.now_ms()
        with self._lock:
            for each in [*self._messages.values()]:
                if each.sent_ms + PUSH_MESSAGE_AGE_MS_MAX <= now_ms:
                    del self._messages[each.message_id]
            visible = [each for each in self._messages.values() if self.is_on and each.hidden_until_ms <= now_ms]
            return [self._received(each, now_ms) for each in visible[: min(limit, _AT_ONCE)]]

    def delete(self, receipt: str) -> None:
        """Removes the message, unless it was received again since: then an old receipt does nothing, as SQS may do."""
        with self._lock:
            received = self._of_receipt(receipt)
            if received is not None:
                del self._messages[received.message_id]

    def _received(self, message: ReceivedMessage, now_ms: int) -> ReceivedMessage:
        count = message.receive_count + 1
        received = replace(
            message,
            receipt=f"{message.message_id}.{count}",
            receive_count=count,
            hidden_until_ms=now_ms + PUSH_VISIBILITY_MS,
        )
        self._messages[message.message_id] = received
        return received

    def _of_receipt(self, receipt: str) -> ReceivedMessage | None:
        message = self._messages.get(receipt.rpartition(".")[0])
        return message if message is not None and message.receipt == receipt else None


class MemoryRepairQueue:
    """RepairQueue: the port documents its method. `repairs` and `looks` were sent, and nobody has taken them yet.

    The taker of a look waits for its time, or does not.
    """

    def __init__(self) -> None:
        self.repairs: list[Repair] = []
        self.looks: list[Look] = []

    def send(self, message: Repair | Look) -> None:
        if isinstance(message, Look):
            self.looks.append(message)
        else:
            self.repairs.append(message)


class MemoryTimerTriggers:
    """TimerTriggers: the port documents its methods.

    `seconds` are the seconds that were announced and not taken, each with its delay in milliseconds.
    """

    def __init__(self) -> None:
        self.seconds: list[tuple[DueSecond, int]] = []
        self.is_switched_on = False
        self.is_open = False
        self.runs_at_once = 0

    def announce(self, second: DueSecond, delay_ms: int) -> None:
        self.seconds.append((second, delay_ms))

    def switch_on(self) -> None:
        self.is_switched_on = True

    def run_at_once(self) -> None:
        self.runs_at_once += 1

    def open_queue(self) -> None:
        self.is_open = True


class ClockTimerTriggers:
    """TimerTriggers on a clock that may be advanced: a thread calls `promote` with each second, once it is over.

    `promote` raises nothing.
    """

    def __init__(self, clock: MovableClock) -> None:
        self.promote: Callable[[DueSecond], object] = lambda _: None
        self._clock = clock
        self._due_ms: dict[DueSecond, int] = {}
        self._thread: threading.Thread | None = None
        self._is_closed = False

    def announce(self, second: DueSecond, delay_ms: int) -> None:
        with self._clock.moved:
            if self._is_closed:
                return
            self._due_ms[second] = self._clock.now_ms() + delay_ms
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="penstock-timers", daemon=True)
                self._thread.start()
            self._clock.wake()

    def switch_on(self) -> None:
        pass

    def run_at_once(self) -> None:
        pass

    def open_queue(self) -> None:
        pass

    def close(self) -> None:
        """End the thread. Delayed records that wait never come."""
        with self._clock.moved:
            self._is_closed, thread = True, self._thread
            self._clock.wake()
        if thread is not None:
            thread.join()

    def _run(self) -> None:
        while (second := self._next()) is not None:
            self.promote(second)

    def _next(self) -> DueSecond | None:
        """The next second that is over, None once the triggers are closed."""
        with self._clock.moved:
            while not self._is_closed:
                now_ms = self._clock.now_ms()
                second = min(self._due_ms, key=self._due_ms.__getitem__, default=None)
                if second is not None and self._due_ms[second] <= now_ms:
                    del self._due_ms[second]
                    return second
                self._clock.moved.wait(None if second is None else (self._due_ms[second] - now_ms) / 1_000)
        return None


class MemoryWakeUps:
    """WakeUps: the port documents its methods. `messages` has all that were published, in order."""

    def __init__(self) -> None:
        self.place: WakeUpPlace | None = LOCAL_PLACE
        self._lock = threading.Lock()
        self._subscribers: list[tuple[str, Receive]] = []
        self.messages: list[WakeUpMessage] = []

    def publish(self, message: WakeUpMessage) -> None:
        with self._lock:
            self.messages.append(message)
            receivers = [receive for channel, receive in self._subscribers if channel == message.channel]
        for receive in receivers:
            receive(message)

    def subscribe(self, channel: str, receive: Receive) -> Callable[[], None]:
        """Calls `receive` with each message to the channel from now on, until the result is called."""
        subscriber = (channel, receive)
        with self._lock:
            self._subscribers.append(subscriber)

        def end() -> None:
            with self._lock:
                self._subscribers.remove(subscriber)

        return end


class MemoryTargets:
    """Targets: the port documents its methods.

    `answer` answers each delivery: all records are handled unless you replace it. `deliveries` are those that were
    made. `refusal` is what `check` raises, None for nothing. `stage` answers each push to a mirror.
    """

    def __init__(self) -> None:
        self.deliveries: list[tuple[Target, PushBatch]] = []
        self.answer: Callable[[Target, PushBatch], Answer] = lambda _target, _batch: Answered()
        self.refusal: PenstockError | None = None
        self.stage: Callable[[StageTarget, MirrorPush], PushAnswer | Failed] = lambda _target, _push: Failed(
            failure=Failure.AWAY, error="there is no other stage"
        )

    def check(self, target: Target) -> None:  # noqa: ARG002 - the refusal is that of all targets
        if self.refusal is not None:
            raise self.refusal

    def deliver(self, target: Target, batch: PushBatch, timeout_ms: int) -> Answer:  # noqa: ARG002 - it answers at once
        self.deliveries.append((target, batch))
        return self.answer(target, batch)

    def mirror(self, target: StageTarget, push: MirrorPush, timeout_ms: int) -> PushAnswer | Failed:  # noqa: ARG002
        return self.stage(target, push)
