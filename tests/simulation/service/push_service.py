"""What lies around deliveries: the log table's stream with `dispatch`, the queue, its functions, and the look."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from greenlet import getcurrent

from penstock_core.errors import PenstockError
from penstock_core.ids import PartitionKey, TopicName
from penstock_core.limits import PUSH_VISIBILITY_MS
from penstock_core.push.delivery import DeliveryKey
from penstock_core.push.lane import FREE, LaneKey, LaneState
from penstock_service.adapters.memory.messages import MemoryDeliveryQueue, ReceivedMessage
from penstock_service.instance.instance import Instance
from penstock_service.push.deliver import Ending, Receipt, deliver
from penstock_service.push.dispatch import DispatchOutcome, dispatch
from penstock_service.push.look import look
from tests.simulation.engine.executor import Killed
from tests.simulation.engine.scheduler import Task
from tests.simulation.engine.time_and_chance import EPOCH_MS
from tests.simulation.oracle.violation import expect
from tests.simulation.service.instance import SimulatedInstance
from tests.simulation.service.simulation import Simulation

_DRAINS_MAX = 6_000
_LOOKS_MAX = 8
_EVENTS_AT_ONCE = 10
_DELIVER_TIMEOUT_MS = 64_000.0
_LOOK_EACH_MS = 300_000.0
_LOOK_BUDGET_MS = 60_000
_STEP_MS = 5_000.0
_FROZEN_AT = {
    "push",
    "log",
    "share",
    "deliveries",
    "transactions",
    "groups",
}  # the stores after whose answers deliveries freeze


@dataclass(frozen=True, slots=True, kw_only=True)
class PushTroubles:
    """The share of messages that come twice, of receipts and events that are lost, and of answers before a freeze.

    With `takes_old_receipts`, the queue deletes by a receipt that has a newer one, as SQS may. Without `has_look`, the
    look comes at the end only: it would mend what should have gone without it.
    """

    has_look: bool = False
    doubled_rate: float = 0.0
    lost_rate: float = 0.0
    frozen_rate: float = 0.0
    takes_old_receipts: bool = False


class PushService:
    """The stream of the heads of `topics`, the queue, and the look. Nothing of the target or the oracle is known here.

    `working` has the message by which each function instance works now, None for what works at the end of a run.
    """

    def __init__(self, simulation: Simulation, topics: Sequence[str], troubles: PushTroubles) -> None:
        self._simulation = simulation
        self._events = simulation.storage.push_events
        self._topics = topics
        self._troubles = troubles
        self.needs_look = False  # a message came twice, or something was lost
        self.working: dict[object, ReceivedMessage] = {}
        if troubles.frozen_rate:
            simulation.storage.observers.append(self._freeze_perhaps)

    @property
    def queue(self) -> MemoryDeliveryQueue:
        """The bare queue."""
        queue = self._simulation.stores.deliveries
        assert isinstance(queue, MemoryDeliveryQueue)
        return queue

    def start(self) -> None:
        """Start the stream's reader, the queue's, and the look."""
        self._simulation.scheduler.spawn("dispatch", self._read_stream)
        self._simulation.scheduler.spawn("deliveries", self._read_queue)
        if self._troubles.has_look:
            self._simulation.scheduler.spawn("look", self._look_now_and_then)

    def drain(self) -> None:
        """Let everything be delivered that comes by itself. A look is needed only after a loss or a double."""
        instance, looks = self._simulation.undisturbed(), 0
        for number in range(_DRAINS_MAX):
            if self._events:
                self._dispatch(lambda run: run(instance))
            elif received := self.queue.receive():
                self._deliver(instance, received[0])
            elif self.queue.next_visible_ms is not None:
                if number % 10 == 0:
                    known = {*self.queue._messages}
                    self._look(instance)
                    for each in () if self.needs_look else {*self.queue._messages} - known:
                        del self.queue._messages[each]  # all must come without it
                self._simulation.jump(max(1.0, self.queue.next_visible_ms - instance.clock.now_ms()))
            else:
                self._simulation.jump(_LOOK_EACH_MS)
                looks += 1
                if not self._look(instance) or self._tells_only():
                    self._check_armed()
                    while received := self.queue.receive():
                        self._deliver(instance, received[0])
                    return
                expect(self.needs_look, f"nothing was lost, and only the look starts {self.queue.messages}")
                expect(looks < _LOOKS_MAX, f"looks send messages for ever: {self.queue.messages}")
        expect(False, f"deliveries go on for ever: {self.queue.messages}")

    def _tells_only(self) -> bool:
        """True if all messages are for mirrors that have all records: each look tells offsets of groups, and timers."""
        stores = self._simulation.stores
        for each in self.queue.messages:
            partition = each.partition
            assert partition is not None
            key = DeliveryKey(
                subscription_id=each.subscription_id,
                topic_id=partition.topic_id,
                partition=partition.partition,
            )
            state, head = stores.push.find_deliveries([key]).get(key), stores.log.heads([partition]).get(partition)
            has_all = state is not None and head is not None and state.offset >= head.next_offset
            has_told = state is not None and (state.offsets is not None or state.timers is not None)
            if state is None or not has_told or state.trouble is not None or not has_all:
                return False
        return True

    def message_of_caller(self) -> ReceivedMessage:
        """The message by which the calling delivery works."""
        task = getcurrent()
        return self.working[task.owner if isinstance(task, Task) else None]

    def _deliver(self, instance: Instance, message: ReceivedMessage) -> None:
        """A function that dies of its records leaves the message."""
        self.working[None] = message
        try:
            ending = deliver(instance, _receipt(message))
        except Killed:
            return
        if ending is Ending.DELETE:
            self.queue.delete(message.receipt)

    def _look(self, instance: Instance) -> int:
        """One undisturbed look. No message that it sends is for a lane that has one already."""
        before = dict(self.queue._messages)
        run = look(instance, budget_ms=_LOOK_BUDGET_MS)
        expect(not run.failures, f"a look fails: {run}")
        for each in self.queue._messages.values():
            lane = LaneKey(subscription_id=each.message.subscription_id, lane=each.message.lane)
            state = self._simulation.stores.push.find_lane(lane)
            if each.message_id not in before and state is not None:
                expect(not self._has_message(state, before), f"the look sends {each}, and {lane} is {state}")
        return run.messages

    def _has_message(self, lane: LaneState, messages: Mapping[str, ReceivedMessage]) -> bool:
        """True if a message that is in time stands for all work of the lane."""
        now_ms = EPOCH_MS + self._simulation.scheduler.now_ms
        if lane.locked_until_ms != FREE:
            return lane.holder in messages and now_ms < lane.locked_until_ms + PUSH_VISIBILITY_MS
        return lane.sleeper in messages and now_ms < lane.due_ms + PUSH_VISIBILITY_MS

    def _check_armed(self) -> None:
        for key, head in self._simulation.stores.log.heads(self._keys()).items():
            expect(head.has_push_waiter, f"all is delivered, and no waiter is in the head of {key}")

    def _keys(self) -> list[PartitionKey]:
        topics = [self._simulation.stores.topics.get(TopicName(each)) for each in self._topics]
        return [PartitionKey(each.topic_id, number) for each in topics if each for number in each.all_partitions()]

    def _read_stream(self) -> None:
        simulation = self._simulation
        while not simulation.is_over:
            simulation.scheduler.pause(simulation.scheduler.random.uniform(10.0, 300.0))
            if self._events:
                if self._is_lost("lost event"):
                    del self._events[0]
                else:
                    self._dispatch(lambda run: simulation.call(run, is_read=False))

    def _dispatch(self, call: Callable[[Callable[[Instance], DispatchOutcome]], DispatchOutcome]) -> None:
        """The stream brings the events again until they were handled."""
        events = self._events[:_EVENTS_AT_ONCE]
        try:
            outcome = call(lambda it: dispatch(it.stores.push, it.stores.deliveries, it.executor, events))
        except PenstockError:
            return
        if not outcome.failures:
            del self._events[: len(events)]

    def _read_queue(self) -> None:
        simulation, random = self._simulation, self._simulation.scheduler.random
        while not simulation.is_over:
            for message in self.queue.receive(10):
                if self._is_lost("lost message"):
                    self.queue.delete(message.receipt)
                    continue
                self._start(message)
                if random.random() < self._troubles.doubled_rate and simulation.faults.strikes("doubled delivery"):
                    self.needs_look = True
                    self._start(message, delay_ms=random.choice([0.0, 500.0, 30_000.0]))
            simulation.scheduler.pause(random.uniform(20.0, 500.0))

    def _is_lost(self, name: str) -> bool:
        simulation = self._simulation
        is_lost = simulation.scheduler.random.random() < self._troubles.lost_rate and simulation.faults.strikes(name)
        self.needs_look |= is_lost
        return is_lost

    def _look_now_and_then(self) -> None:
        simulation = self._simulation
        next_ms = simulation.scheduler.random.uniform(0.0, _LOOK_EACH_MS)
        while not simulation.is_over:
            simulation.scheduler.pause(_STEP_MS)
            if simulation.scheduler.now_ms < next_ms:
                continue
            next_ms += _LOOK_EACH_MS
            try:
                run = simulation.call(lambda it: look(it, budget_ms=_LOOK_BUDGET_MS), is_read=False)
            except PenstockError as error:
                simulation.scheduler.note("no look", error)
            else:
                simulation.count("push look that sends" if run.messages else "push look")

    def _start(self, message: ReceivedMessage, delay_ms: float = 0.0) -> None:
        """Start a function for the message. Lambda deletes it if the function says so, and its answer comes."""
        scheduler = self._simulation.scheduler

        def work(instance: Instance) -> Ending:
            owner = scheduler.current.owner
            self.working[owner] = message
            try:
                return deliver(instance, _receipt(message))
            finally:
                self.working.pop(owner, None)

        def run() -> None:
            try:
                ending = self._simulation.call(work, is_read=False, timeout_ms=_DELIVER_TIMEOUT_MS)
            except PenstockError as error:
                scheduler.note("not delivered", message.message_id, error)
                return
            self._simulation.count(f"push {ending.value}")
            if ending is Ending.DELETE and self._troubles.takes_old_receipts:
                self.queue._messages.pop(message.message_id, None)
            elif ending is Ending.DELETE:
                self.queue.delete(message.receipt)

        scheduler.spawn(f"{message.message_id}.{message.receive_count}", run, delay_ms=delay_ms)

    def _freeze_perhaps(self, label: str, _method: str, _arguments: tuple[Any, ...], _outcome: Any) -> None:
        """Freeze a delivery after an effect of its own. It goes on later, with the answer."""
        if self._simulation.faults.is_calm or label not in _FROZEN_AT:
            return
        instance, random = self._simulation.scheduler.current.owner, self._simulation.scheduler.random
        if instance in self.working and random.random() < self._troubles.frozen_rate:
            assert isinstance(instance, SimulatedInstance)
            self._simulation.count("push frozen")
            instance.freeze_busy(random.uniform(1_000.0, 120_000.0), stops_monotonic=random.random() < 0.5)


def _receipt(message: ReceivedMessage) -> Receipt:
    return Receipt(message=message.message, message_id=message.message_id, handle=message.receipt)
