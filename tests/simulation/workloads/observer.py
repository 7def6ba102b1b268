"""A reader that asks for one partition after the other, and tells the history where each ended when it was asked."""

from penstock_broker.fetch import Fetched, FetchEntry, fetch
from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.records import decode
from tests.history import format as history
from tests.simulation.world import World

_MAX_BYTES = 10_000


class Observer:
    """Reads from the beginning until the run is over."""

    def __init__(self, world: World, name: str, topic: str) -> None:
        self._world = world
        self._name = name
        self._topic = topic
        self._positions = dict.fromkeys(range(world.topics[topic]), 0)

    def start(self) -> None:
        started = tuple(((self._topic, partition), 0) for partition in self._positions)
        self._world.story.recorder.done(self._name, history.Function.ASSIGN, [history.Assign((), started)])
        self._world.scheduler.spawn(self._name, self._run)

    def _run(self) -> None:
        random = self._world.scheduler.random
        while not self._world.is_over:
            for partition in random.sample([*self._positions], len(self._positions)):
                self._look(partition)
            self._world.scheduler.pause(random.choice([0.1, 20.0, 300.0]))

    def _look(self, partition: int) -> None:
        recorder, position = self._world.story.recorder, self._positions[partition]
        entry = FetchEntry(topic=self._topic, partition=partition, offset=position, max_bytes=_MAX_BYTES)
        operation = recorder.invoke(self._name, history.Function.POLL)
        try:
            [result] = self._world.call(
                lambda broker: fetch(broker, [entry], max_bytes=_MAX_BYTES, min_bytes=0, wait_ms=0), is_read=True
            )
        except PenstockError as error:
            result = error
        where = (self._topic, partition)
        if isinstance(result, Fetched):
            records = tuple(
                (int(record.offset), (record.value or b"").decode())
                for record in decode(memoryview(result.data))
                if record.offset >= position
            )
            self._positions[partition] = int(result.next_offset)
            recorder.ok(operation, [history.Poll(where, records, int(result.high_watermark))])
            return
        recorder.fail(operation)
        if result.code is ErrorCode.OFFSET_OUT_OF_RANGE:
            self._positions[partition] = int(result.facts["log_start_offset"])
            recorder.done(self._name, history.Function.SEEK, [history.Seek(where, self._positions[partition])])
