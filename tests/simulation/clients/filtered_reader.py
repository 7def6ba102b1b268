"""A reader with a filter by tag. It reads one partition after the other, and arms those where it is at the end.

A record's tag is the last character of its value, so the reader knows at each answer what the service had to send.
"""

from penstock_core.errors import PenstockError
from penstock_core.filters.filter import Filter
from penstock_core.filters.policy import parse_filter
from penstock_core.records.codec import decode
from penstock_service.records.fetch import FetchEntry, FetchResult, fetch
from tests.history import format as history
from tests.simulation.oracle.violation import expect
from tests.simulation.service.simulation import Simulation

_MAX_BYTES = [100, 10_000]
_FAILURES_MAX = 200  # after the end of the run


class FilteredReader:
    """Reads what ends with `tag`, from the start until it has passed all that producers were told of."""

    def __init__(self, simulation: Simulation, name: str, topic: str, partitions: int, tag: str) -> None:
        self._simulation = simulation
        self._name = name
        self._topic = topic
        self._tag = tag
        random = simulation.scheduler.random
        policies: list[dict[str, object]] = [
            {"tag": [tag]},
            {"tag": [{"prefix": tag}]},
            {"$or": [{"tag": [tag]}, {"absent": [tag]}]},
        ]
        self._filter: Filter = parse_filter(random.choice(policies))
        self._max_bytes = random.choice(_MAX_BYTES)
        self._positions = dict.fromkeys(range(partitions), 0)
        self._failures_left = _FAILURES_MAX

    def start(self) -> None:
        started = tuple(((self._topic, partition), 0) for partition in self._positions)
        self._simulation.recorder.done(self._name, history.Function.ASSIGN, [history.Assign((), started)])
        self._simulation.scheduler.spawn(self._name, self._run)

    def check_end(self) -> None:
        """Check that the reader has passed all records that producers were told of."""
        expect(not self._is_behind() or self._failures_left <= 0, f"{self._name} ends at {self._positions}")

    def _run(self) -> None:
        random = self._simulation.scheduler.random
        while self._failures_left > 0 and not (self._simulation.is_over and not self._is_behind()):
            for partition in random.sample([*self._positions], len(self._positions)):
                self._look(partition)
            self._simulation.scheduler.pause(random.choice([0.1, 20.0, 300.0]))

    def _look(self, partition: int) -> None:
        recorder, position = self._simulation.recorder, self._positions[partition]
        entry = FetchEntry(
            topic=self._topic, partition=partition, offset=position, max_bytes=self._max_bytes, filter=self._filter
        )
        operation = recorder.invoke(self._name, history.Function.POLL)
        was_at_end = position >= len(self._simulation.oracle.log.values_in(self._topic, partition))
        try:
            [result] = self._simulation.call(
                lambda instance: fetch(
                    instance, [entry], max_bytes=self._max_bytes, min_bytes=0, wait_ms=0, must_arm=True
                ),
                is_read=True,
            ).all_ok()
        except PenstockError:
            recorder.fail(operation)
            self._failures_left -= self._simulation.is_over
            return
        records = tuple((int(each.offset), (each.value or b"").decode()) for each in decode(bytes(result.data)))
        self._check(partition, position, result, [offset for offset, _ in records])
        # An append that comes while the fetch arms: the answer has the new high watermark, and the reader asks again.
        is_stuck = result.next_offset == position < result.high_watermark and not was_at_end
        expect(not is_stuck, f"{self._name} at {position} of {partition} did not move on")
        self._positions[partition] = int(result.next_offset)
        where = (self._topic, partition)
        recorder.ok(operation, [history.Poll(where, records, int(result.high_watermark), self._tag)])

    def _check(self, partition: int, position: int, result: FetchResult, offsets: list[int]) -> None:
        """Check the answer against the log as it was appended: all that matches below `next_offset`, and no more."""
        what = f"{self._name} fetched [{position}, {result.next_offset}) of {partition}"
        expected = [
            offset
            for offset, value in self._simulation.oracle.log.values_in(self._topic, partition)
            if position <= offset < result.next_offset and value.endswith(self._tag)
        ]
        expect(offsets == expected, f"{what}, and got {offsets}, not {expected}")
        is_at_end = result.next_offset == result.high_watermark
        expect(not result.is_armed or (is_at_end and not offsets), f"{what}, and was armed at {result.high_watermark}")
        self._simulation.count("filtered: armed" if result.is_armed else "filtered: read")

    def _is_behind(self) -> bool:
        ends = self._simulation.claims.acked_ends
        return any(position < ends.get((self._topic, each), 0) for each, position in self._positions.items())
