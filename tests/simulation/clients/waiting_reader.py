"""A reader that waits: it subscribes, fetches and arms, and sleeps until a wake-up, a reconnect, or its safety net.

```
 connect and subscribe ──▶ fetch, arm ──▶ records ──▶ fetch again
                              ▲  armed ──▶ sleep ──▶ wake-up · connection lost · 60 s
                              └───────────────────────────────────────┘
```
A reader may look at the heads while it sleeps, as a heartbeat does. If all are armed, its safety net begins anew.

A wake-up that comes while the fetch is under way ends the sleep before it begins.
"""

from collections.abc import Callable

from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.ids import Offset, Partition, PartitionKey, TopicId
from penstock_core.log.wake_up import WakeUpMessage, partition_channel, topic_channel
from penstock_service.adapters.memory.messages import MemoryWakeUps
from penstock_service.groups.heartbeat import still_armed
from penstock_service.records.fetch import FetchEntry, FetchResult, fetch
from tests.simulation.engine.scheduler import Task
from tests.simulation.oracle.violation import expect
from tests.simulation.service.simulation import Simulation

SAFETY_NET_MS = 60_000.0
WAKE_UP_MS_MAX = 45_000.0  # a function and the retries of its client take less
SLEEP_BEHIND_MS_MAX = (
    SAFETY_NET_MS + WAKE_UP_MS_MAX
)  # a look may begin just before an append, and take as long as a call
_LOOK_MS = 1_000.0
_DROP_RATE = 0.005  # at each look
_FAILURES_MAX = 200  # after the end of the run: some records cannot be read then

Deliver = Callable[[Callable[[], None]], None]


class WaitingReader:
    """Reads all partitions of one topic from their start, and sleeps where it has read all.

    `deliver` carries each wake-up: at once, late, twice or never. `is_promised` says whether no wake-up was lost so
    far. Then no record that a producer was told of waits longer than `WAKE_UP_MS_MAX` for a reader that sleeps. Lost
    wake-ups make that `SLEEP_BEHIND_MS_MAX`. With `look_ms` it looks at the heads so often while it sleeps.
    """

    def __init__(
        self,
        simulation: Simulation,
        wake_ups: MemoryWakeUps,
        name: str,
        topic: str,
        *,
        deliver: Deliver,
        is_promised: Callable[[], bool],
        look_ms: float | None,
    ) -> None:
        self._look_ms = look_ms
        self._simulation = simulation
        self._scheduler = simulation.scheduler
        self._wake_ups = wake_ups
        self._name = name
        self._topic = topic
        self._topic_id: TopicId = simulation.bare.topic_cache.read_through(topic).topic_id
        self._deliver = deliver
        self._is_promised = is_promised
        self._positions = dict.fromkeys(range(simulation.topics[topic]), 0)
        self._task: Task | None = None
        self._is_woken = False
        self._unsubscribe: list[Callable[[], None]] = []

    def start(self) -> None:
        self._task = self._scheduler.spawn(self._name, self._run)

    def check_end(self) -> None:
        """Check that the reader has read all records that producers were told of."""
        expect(not self._behind() or self._failures_left <= 0, f"{self._name} ends at {self._positions}")

    def _run(self) -> None:
        self._failures_left = _FAILURES_MAX
        while self._failures_left > 0 and not (self._simulation.is_over and not self._behind()):
            if not self._unsubscribe:
                self._subscribe()
            self._is_woken = False
            if self._fetch():
                self._sleep()
            else:
                self._scheduler.pause(self._scheduler.random.choice([0.1, 20.0]))

    def _subscribe(self) -> None:
        keys = [PartitionKey(self._topic_id, Partition(number)) for number in self._positions]
        channels = [topic_channel(self._topic_id), *map(partition_channel, keys)]
        self._unsubscribe = [self._wake_ups.subscribe(channel, self._receive) for channel in channels]

    def _receive(self, message: WakeUpMessage) -> None:
        self._scheduler.note(f"wake-up for {self._name}", message.channel, message.event)
        self._deliver(self._wake)

    def _wake(self) -> None:
        self._is_woken = True
        assert self._task is not None
        self._scheduler.wake(self._task)

    def _fetch(self) -> bool:
        """Fetch and arm. True if all partitions are armed."""
        entries = [
            FetchEntry(topic=self._topic, partition=partition, offset=position, max_bytes=100_000)
            for partition, position in self._positions.items()
        ]
        try:
            results = self._simulation.call(
                lambda instance: fetch(instance, entries, max_bytes=100_000, min_bytes=1, wait_ms=0, must_arm=True),
                is_read=True,
            )
        except PenstockError:
            self._failed()
            return False
        for entry, result in zip(entries, results, strict=True):
            if isinstance(result, FetchResult):
                expect(not (result.is_armed and result.data), f"{self._name} got records, and armed")
                self._positions[entry.partition] = int(result.next_offset)
            else:
                self._failed()
                if result.code is ErrorCode.OFFSET_OUT_OF_RANGE:
                    self._positions[entry.partition] = int(result.facts["log_start_offset"])
        return all(isinstance(result, FetchResult) and result.is_armed for result in results)

    def _failed(self) -> None:
        self._failures_left -= self._simulation.is_over
        self._scheduler.pause(100.0)

    def _sleep(self) -> None:
        """Sleep until a wake-up, the safety net, or the loss of the connection."""
        slept_from_ms = self._scheduler.now_ms
        behind_from_ms: float | None = None
        self._simulation.count("reader slept")
        while not self._is_woken:
            asleep_ms = self._scheduler.now_ms - slept_from_ms
            if asleep_ms >= SAFETY_NET_MS:
                self._simulation.count("safety net")
                return
            if self._look_ms is not None and asleep_ms >= self._look_ms:
                if not self._may_sleep_on():
                    return
                slept_from_ms = self._scheduler.now_ms
                continue
            if self._simulation.is_over and not self._behind():
                return
            if self._scheduler.random.random() < _DROP_RATE:
                self._drop()
                return
            if behind_from_ms is None and self._behind():
                behind_from_ms = self._scheduler.now_ms
            expect(
                behind_from_ms is None or self._scheduler.now_ms - behind_from_ms <= SLEEP_BEHIND_MS_MAX,
                f"{self._name} sleeps at {self._positions} past its safety net: {self._ends()}",
            )
            expect(
                behind_from_ms is None
                or self._scheduler.now_ms - behind_from_ms <= WAKE_UP_MS_MAX
                or not self._is_promised(),
                f"{self._name} sleeps at {self._positions}, and was not woken for {self._ends()}",
            )
            self._scheduler.block(min(_LOOK_MS, SAFETY_NET_MS - asleep_ms))
        self._simulation.count("reader woken")

    def _may_sleep_on(self) -> bool:
        """Look at the heads in place of a fetch. True if each of them is still armed at the reader's position."""
        keys = {PartitionKey(self._topic_id, Partition(each)): Offset(at) for each, at in self._positions.items()}
        is_behind = self._behind()
        try:
            armed = self._simulation.call(lambda instance: still_armed(instance, keys), is_read=True)
        except PenstockError:
            return False
        self._simulation.count("looked, and slept on" if armed == keys.keys() else "looked, and fetched")
        expect(not is_behind or armed != keys.keys(), f"{self._name} may sleep on at {self._positions}: {self._ends()}")
        return armed == keys.keys()

    def _drop(self) -> None:
        """Lose the connection for a while. The reader subscribes and fetches again."""
        self._simulation.count("connection lost")
        for end in self._unsubscribe:
            end()
        self._unsubscribe = []
        self._scheduler.pause(self._scheduler.random.choice([1.0, 5_000.0]))

    def _ends(self) -> dict[int, int]:
        claims = self._simulation.claims
        return {partition: claims.acked_ends.get((self._topic, partition), 0) for partition in self._positions}

    def _behind(self) -> bool:
        return any(self._positions[partition] < end for partition, end in self._ends().items())
