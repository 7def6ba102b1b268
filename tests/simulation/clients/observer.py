"""A reader that reads one partition after the other, and records in the history where each one ended at that time."""

from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.records.codec import decode
from penstock_service.records.fetch import FetchEntry, FetchResult, fetch
from tests.history import format as history
from tests.simulation.service.simulation import Simulation

_MAX_BYTES = 10_000


class Observer:
    """Reads from the log start until the run is over."""

    def __init__(self, simulation: Simulation, name: str, topic: str) -> None:
        self._simulation = simulation
        self._name = name
        self._topic = topic
        self._positions = dict.fromkeys(range(simulation.topics[topic]), 0)

    def start(self) -> None:
        started = tuple(((self._topic, partition), 0) for partition in self._positions)
        self._simulation.recorder.done(self._name, history.Function.ASSIGN, [history.Assign((), started)])
        self._simulation.scheduler.spawn(self._name, self._run)

    def _run(self) -> None:
        random = self._simulation.scheduler.random
        while not self._simulation.is_over:
            for partition in random.sample([*self._positions], len(self._positions)):
                self._look(partition)
            self._simulation.scheduler.pause_between_polls(random.choice([0.1, 20.0, 300.0]))

    def _look(self, partition: int) -> None:
        recorder, position = self._simulation.recorder, self._positions[partition]
        entry = FetchEntry(topic=self._topic, partition=partition, offset=position, max_bytes=_MAX_BYTES)
        operation = recorder.invoke(self._name, history.Function.POLL)
        try:
            [result] = self._simulation.call(
                lambda instance: fetch(instance, [entry], max_bytes=_MAX_BYTES, min_bytes=0, wait_ms=0), is_read=True
            )
        except PenstockError as error:
            result = error
        where = (self._topic, partition)
        if isinstance(result, FetchResult):
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
