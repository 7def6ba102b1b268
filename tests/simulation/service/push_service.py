"""What lies around deliveries: the log table's stream with `dispatch`, the queue, and the functions that it starts."""

from collections.abc import Callable, Sequence

from penstock_core.errors import PenstockError
from penstock_core.ids import PartitionKey, TopicName
from penstock_core.limits import PUSH_LOCK_MS
from penstock_core.push.subscription import Subscription
from penstock_service.adapters.memory.delivery_queue import MemoryDeliveryQueue, ReceivedMessage
from penstock_service.adapters.memory.log import MemoryLogIndex
from penstock_service.instance.instance import Instance
from penstock_service.push.deliver import Ending, Receipt, deliver
from penstock_service.push.dispatch import DispatchOutcome, dispatch
from penstock_service.push.start_deliveries import start_deliveries
from tests.simulation.oracle.violation import expect
from tests.simulation.service.simulation import Simulation

_DRAINS_MAX = 6_000
_EVENTS_AT_ONCE = 10


class PushService:
    """The stream of the heads of `topics`, and the queue. `doubled_rate` is the share of messages that come twice."""

    def __init__(self, simulation: Simulation, topics: Sequence[str], doubled_rate: float) -> None:
        self._simulation = simulation
        self._topics = topics
        self._doubled_rate = doubled_rate
        self.doubled = 0

    @property
    def log(self) -> MemoryLogIndex:
        """The bare log, which tells what its table's stream does."""
        log = self._simulation.stores.log
        assert isinstance(log, MemoryLogIndex)
        return log

    @property
    def queue(self) -> MemoryDeliveryQueue:
        """The bare queue."""
        queue = self._simulation.stores.deliveries
        assert isinstance(queue, MemoryDeliveryQueue)
        return queue

    def start(self) -> None:
        """Start the stream's reader and the queue's."""
        self._simulation.scheduler.spawn("dispatch", self._read_stream)
        self._simulation.scheduler.spawn("deliveries", self._read_queue)

    def drain(self, subscriptions: list[Subscription]) -> None:
        """Let everything be delivered that comes by itself. The look helps only if a message came twice."""
        instance = self._simulation.undisturbed()
        looks = 2 if self.doubled else 0
        for _ in range(_DRAINS_MAX):
            if self.log.push_events():
                self._dispatch(lambda run: run(instance))
            elif received := self.queue.receive():
                if deliver(instance, _receipt(received[0])) is Ending.DELETE:
                    self.queue.delete(received[0].receipt)
            elif self.queue.next_visible_ms is not None:
                self._simulation.jump(max(1.0, self.queue.next_visible_ms - instance.clock.now_ms()))
            elif looks:
                looks -= 1
                self._simulation.jump(2.0 * PUSH_LOCK_MS)
                for each in subscriptions:
                    start_deliveries(instance, each)
            else:
                self._check_armed()
                return
        expect(False, f"deliveries go on for ever: {self.queue.messages}")

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
            if self.log.push_events():
                self._dispatch(lambda run: simulation.call(run, is_read=False))

    def _dispatch(self, call: Callable[[Callable[[Instance], DispatchOutcome]], DispatchOutcome]) -> None:
        """The stream brings the events again until they were handled."""
        events = self.log.push_events()[:_EVENTS_AT_ONCE]
        try:
            outcome = call(lambda it: dispatch(it.stores.push, it.stores.deliveries, it.executor, events))
        except PenstockError:
            return
        if not outcome.failures:
            self.log.forget_push_events(len(events))

    def _read_queue(self) -> None:
        simulation, random = self._simulation, self._simulation.scheduler.random
        while not simulation.is_over:
            for message in self.queue.receive(10):
                self._start(message)
                if random.random() < self._doubled_rate and simulation.faults.strikes("doubled delivery"):
                    self.doubled += 1
                    self._start(message, delay_ms=random.choice([0.0, 500.0, 30_000.0]))
            simulation.scheduler.pause(random.uniform(20.0, 500.0))

    def _start(self, message: ReceivedMessage, delay_ms: float = 0.0) -> None:
        """Start a function for the message. Lambda deletes it if the function says so, and its answer comes."""

        def run() -> None:
            try:
                ending = self._simulation.call(lambda instance: deliver(instance, _receipt(message)), is_read=False)
            except PenstockError as error:
                self._simulation.scheduler.note("not delivered", message.message_id, error)
                return
            self._simulation.count(f"push {ending.value}")
            if ending is Ending.DELETE:
                self.queue.delete(message.receipt)

        self._simulation.scheduler.spawn(f"{message.message_id}.{message.receive_count}", run, delay_ms=delay_ms)


def _receipt(message: ReceivedMessage) -> Receipt:
    return Receipt(message=message.message, message_id=message.message_id, handle=message.receipt)
