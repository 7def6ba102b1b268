"""The oracle of mirrors: each log that pushes write is a prefix of its source's, record by record, until promoted.

It hears of the effects in their order, so it knows what the source had when a push took effect.
"""

from collections.abc import Mapping
from typing import Any

from penstock_core.errors import PenstockError
from penstock_core.ids import GroupName, Partition, PartitionKey, TopicId, TopicName
from penstock_core.log.index import Head
from penstock_core.mirror.group_offsets import MirroredOffsets
from penstock_core.mirror.push import LogEnd, MirrorAppend
from penstock_core.records.producer_state import ProducerState
from tests.simulation.oracle.expected_log import MISSED
from tests.simulation.oracle.violation import expect
from tests.simulation.service.simulation import Simulation


class MirrorOracle:
    """Watches the topics of one mirror. `pairs` has the source of each mirrored topic, also of those that are gone."""

    def __init__(self, simulation: Simulation, source: str, mirrored: str) -> None:
        self._simulation = simulation
        self._source, self._name = source, mirrored
        self.promoted: dict[PartitionKey, int] = {}
        self.planned: dict[PartitionKey, int] = {}  # by a move: the source must not grow again
        self._offsets: dict[TopicId, dict[Partition, int]] = {}
        simulation.storage.observers.append(self._observe)

    def _observe(self, label: str, method: str, arguments: tuple[Any, ...], outcome: Any) -> None:
        if label != "log" or isinstance(outcome, PenstockError) or outcome is None:
            return
        if method == "append_mirrored" and outcome.is_appended:
            self._mirrored(arguments[0], arguments[1], outcome.head)
        elif method == "put_offsets" and outcome == (arguments[1], arguments[2]):
            self._told(arguments[0], arguments[2])
        elif method == "promote" and isinstance(outcome, Head):
            self._promoted(arguments[0], outcome, arguments[4] if len(arguments) > 4 else None)
        elif method == "reopen" and isinstance(outcome, Head) and not outcome.move:
            found = [key for key in self.planned if self.source_key(key) == arguments[0]]
            expect(not found, f"{arguments[0]} was moved, {found} was promoted, and both take appends")
        elif method in ("append", "append_in_sequence") and outcome.is_appended and self._is_mirrored(arguments[0]):
            self._simulation.count("mirror append of its own")
            expect(arguments[0] in self.promoted, f"{arguments[0]} takes an append of its own, and is a mirror")

    def _told(self, topic_id: TopicId, offsets: MirroredOffsets) -> None:
        """A telling took the place of the last one, which is no newer: the only group commits forward alone."""
        for group, of_group in offsets.groups.items():
            for partition, each in of_group.items():
                known = self._offsets.setdefault(topic_id, {})
                last = known.get(partition, 0)
                expect(each.offset >= last, f"{group} was told at {last} of {partition}, and is told at {each.offset}")
                known[partition] = each.offset

    def check_offsets(self, topic_id: TopicId, told: Mapping[Partition, int], *, is_whole: bool) -> None:
        """Compare what a promotion tells with the last telling, and a mirror that lives with the last commits."""
        ends = {number: self._simulation.oracle.log.ends.get(PartitionKey(topic_id, number), 0) for number in told}
        ends = {number: self.promoted.get(PartitionKey(topic_id, number), end) for number, end in ends.items()}
        known = self._offsets.get(topic_id, {})
        topic = self._simulation.stores.topics.get(TopicName(self._name))
        there = () if topic is None else topic.all_partitions()  # offsets of one that no push has brought are left out
        wanted = {number: min(offset, ends.get(number, 0)) for number, offset in known.items() if number in there}
        expect(dict(told) == wanted, f"the promotion tells {told}, the source told {known}, and the ends are {ends}")
        if is_whole:
            source = self.source_key(PartitionKey(topic_id, Partition(0))).topic_id
            leases = self._simulation.stores.groups.leases(GroupName("billing"))
            last = {each.partition.partition: each.offset for each in leases if each.partition.topic_id == source}
            expect(wanted == last, f"the source told {wanted}, and the last commits are {last}")
            self._simulation.count("offsets whole")

    def source_key(self, key: PartitionKey) -> PartitionKey:
        """The partition that this one repeats."""
        topics = {name: topic_id for topic_id, name in self._simulation.oracle.log.names.items()}
        return PartitionKey(TopicId(topics[self._source]), key.partition)

    def _is_mirrored(self, key: PartitionKey) -> bool:
        return self._simulation.oracle.log.names.get(key.topic_id) == self._name

    def _mirrored(self, key: PartitionKey, append: MirrorAppend, head: Head) -> None:
        self._simulation.count("mirror push appended")
        expect(key not in self.promoted, f"{key} was promoted, and takes a push")
        expect(bool(head.mirror) and head.is_closed, f"{key} takes a push, and is {head}")
        source = self.source_key(key)
        self.check_prefix(key, source)
        found = {pid: entry for pid, entry in head.producers.items() if pid in append.producers}
        self._check_producers(key, found)

    def _check_producers(self, key: PartitionKey, entries: Mapping[int, ProducerState]) -> None:
        """Each entry is that of the producer's newest append among what is mirrored."""
        for producer_id, entry in entries.items():
            appends = self._simulation.oracle.log.appends[key]
            sequences = [each.ref.sequence for each in appends if each.ref.sequence is not None]
            newest = [each for each in sequences if each.producer_id == producer_id][-1]
            told = (newest.epoch, newest.last_sequence)
            expect((entry.epoch, entry.last_sequence) == told, f"{key} has {entry} of {producer_id}, pushed was {told}")

    def check_prefix(self, key: PartitionKey, source: PartitionKey) -> None:
        """Compare all that pushes brought with the source's log, which is longer or equal."""
        end = self.promoted.get(key, self._simulation.oracle.log.ends.get(key, 0))
        mirrored, wanted = self._records(key, end), self._records(source, end)
        missed = {offset for offset, value in mirrored if value == MISSED}
        log_start = self._simulation.oracle.log_starts.get(source, 0)
        expect(max(missed, default=-1) < log_start, f"{key} misses {missed}, and {source} begins at {log_start}")
        if missed:
            self._simulation.count("mirror missed")
            mirrored, wanted = ([each for each in some if each[0] not in missed] for some in (mirrored, wanted))
        expect(mirrored == wanted, f"{key} repeats {source} as {mirrored[-5:]} up to {end}, and it has {wanted[-5:]}")

    def _records(self, key: PartitionKey, end: int) -> list[tuple[int, str]]:
        return [
            (offset, value)
            for each in self._simulation.oracle.log.appends.get(key, ())
            for offset, value in enumerate(each.values, start=each.base_offset)
            if offset < end
        ]

    def _promoted(self, key: PartitionKey, head: Head, end: LogEnd | None) -> None:
        if head.promoted_at is None or head.mirror:
            return
        if end is not None and key not in self.promoted:
            self._simulation.count("moved head promoted")
            self.planned[key] = head.promoted_at
            source = self.source_key(key)
            ends = self._simulation.oracle.log.ends.get(source, 0)
            expect(ends == head.promoted_at, f"{key} goes on at {head.promoted_at}, and {source} ends at {ends}")
        self._simulation.count("mirror promoted")
        before = self.promoted.setdefault(key, head.promoted_at)
        expect(before == head.promoted_at, f"{key} was promoted at {before}, and again at {head.promoted_at}")
