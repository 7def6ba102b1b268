"""A worker of a share group that waits: it acquires and arms, and sleeps until a wake-up, a time, or its safety net.

The time is that at which a record may come back by itself, as the acquire told it.
"""

from collections.abc import Callable

from penstock_core.ids import PartitionKey, TopicId
from penstock_core.log.wake_up import WakeUpMessage, partition_channel, topic_channel
from penstock_core.share.acquire import next_available_ms
from penstock_core.share.share_state import ShareKey
from penstock_service.adapters.memory.messages import MemoryWakeUps
from penstock_service.share.acquire.acquire import Acquired
from tests.simulation.clients.share_worker import ShareWorker
from tests.simulation.clients.waiting_reader import SAFETY_NET_MS, SLEEP_BEHIND_MS_MAX, Deliver
from tests.simulation.engine.scheduler import Task
from tests.simulation.engine.time_and_chance import EPOCH_MS
from tests.simulation.oracle.shares import ShareOracle
from tests.simulation.oracle.violation import expect
from tests.simulation.service.simulation import Simulation

_LOOK_MS = 1_000.0
_WOKEN_MS_MAX = 20_000.0  # a call that makes records available ends before


class WaitingWorker:
    """Works until the run is over. `is_promised` says whether no wake-up was lost so far.

    Then no record stays available for longer than `_WOKEN_MS_MAX` while the worker sleeps. Lost wake-ups make that
    `SLEEP_BEHIND_MS_MAX`.
    """

    def __init__(
        self,
        simulation: Simulation,
        oracle: ShareOracle,
        worker: ShareWorker,
        wake_ups: MemoryWakeUps,
        *,
        topic_id: TopicId,
        deliver: Deliver,
        is_promised: Callable[[], bool],
    ) -> None:
        self._simulation = simulation
        self._scheduler = simulation.scheduler
        self._oracle = oracle
        self._worker = worker
        self._wake_ups = wake_ups
        self._topic_id = topic_id
        self._deliver = deliver
        self._is_promised = is_promised
        self._task: Task | None = None
        self._is_woken = False

    def start(self) -> None:
        channels = [f"/wake/{self._oracle.group_id}/share", topic_channel(self._topic_id)]
        channels += map(partition_channel, self._partitions())
        for channel in channels:
            self._wake_ups.subscribe(channel, self._receive)
        self._task = self._scheduler.spawn(self._worker.name, self._run)

    def _partitions(self) -> list[PartitionKey]:
        topic = next(each for each in self._simulation.stores.topics.list() if each.topic_id == self._topic_id)
        return [PartitionKey(self._topic_id, number) for number in topic.all_partitions()]

    def _receive(self, message: WakeUpMessage) -> None:
        self._scheduler.note(f"wake-up for {self._worker.name}", message.channel)
        self._deliver(self._wake)

    def _wake(self) -> None:
        self._is_woken = True
        assert self._task is not None
        self._scheduler.wake(self._task)

    def _run(self) -> None:
        while not self._simulation.is_over:
            self._is_woken = False
            acquired = self._worker.acquire(must_arm=True)
            held = [] if acquired is None else self._worker.told(acquired)
            if held:
                self._worker.handle(held)
            elif acquired is not None and acquired.watched and all(each.is_armed for each in acquired.watched):
                self._sleep(acquired)
            else:
                self._scheduler.pause(self._scheduler.random.choice([20.0, 200.0]))

    def _sleep(self, acquired: Acquired) -> None:
        slept_from_ms = self._scheduler.now_ms
        available_ms = acquired.next_available_ms
        ends_ms = slept_from_ms + min(SAFETY_NET_MS, SAFETY_NET_MS if available_ms is None else available_ms)
        available_from_ms: float | None = None
        self._simulation.count("share worker slept")
        while not self._is_woken and not self._simulation.is_over:
            now_ms = self._scheduler.now_ms
            if now_ms >= ends_ms:
                self._simulation.count("share worker looks again")
                return
            available_from_ms = (available_from_ms or now_ms) if self._has_available() else None
            waited_ms = 0.0 if available_from_ms is None else now_ms - available_from_ms
            name = self._worker.name
            expect(waited_ms <= SLEEP_BEHIND_MS_MAX, f"{name} sleeps past its safety net, with records available")
            is_late = waited_ms > _WOKEN_MS_MAX and self._is_promised()
            expect(not is_late, f"{name} sleeps, and was not woken for records that are available")
            self._scheduler.block(min(_LOOK_MS, ends_ms - now_ms))
        self._simulation.count("share worker woken")

    def _has_available(self) -> bool:
        """True if a partition has fresh records, or some that came back."""
        keys = [ShareKey(self._oracle.group_id, key.topic_id, key.partition) for key in self._partitions()]
        states = self._simulation.stores.share.find_states(keys)
        now_ms = EPOCH_MS + int(self._scheduler.now_ms)
        ends = self._simulation.oracle.log.ends
        return any(
            (state.position if state is not None else 0) < ends.get(key.partition_key, 0)
            or (state is not None and next_available_ms(state, self._oracle.config, now_ms) == 0)
            for key in keys
            for state in [states.get(key)]
        )
