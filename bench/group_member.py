"""A member of a consumer group that writes a history: the partitions it got, the records it read, its commits.

When the member gets a partition, it starts at the group's committed offset and notes that offset in the history. So the
checker sees an offset that went back.
"""

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from penstock import Consumer, TopicPartition
from penstock.errors import LeaseLostError, UnavailableError
from penstock_core.errors import PenstockError
from tests.chaos.clients.values import name_of
from tests.history.format import Assign, Commit, Committed, Function, Poll
from tests.history.recorder import Recorder

POLL_MS = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberSpec:
    """One life of a member. `name` is the process in the history."""

    name: str
    topic: str
    group: str
    session_ms: int
    heartbeat_ms: int
    instance_id: str | None = None
    commit_each_ms: int = 200


class GroupMember:
    """Reads until `is_over`. It notes every answer in the history before it goes on."""

    def __init__(self, spec: MemberSpec, recorder: Recorder) -> None:
        self._positions: dict[TopicPartition, int] = {}  # of the partitions that it holds
        self._spec = spec
        self._recorder = recorder
        self._consumer = Consumer(
            spec.topic,
            group_id=spec.group,
            group_instance_id=spec.instance_id,
            session_timeout_ms=spec.session_ms,
            heartbeat_interval_ms=spec.heartbeat_ms,
            enable_auto_commit=False,
            on_assigned=self._assigned,
            on_revoked=self._revoked,
            on_lost=self._lost,
        )

    @property
    def held(self) -> int:
        """The number of partitions that the member holds."""
        return len(self._positions)

    @property
    def read(self) -> int:
        """The sum of its positions."""
        return sum(self._positions.values())

    def run(self, is_over: Callable[[], bool]) -> None:
        """Polls, handles and commits until `is_over`, then closes the consumer."""
        commit_at = time.monotonic() + self._spec.commit_each_ms / 1_000
        with self._consumer:
            while not is_over():
                self._poll()
                if time.monotonic() >= commit_at:
                    self._commit(sorted(self._positions))
                    commit_at = time.monotonic() + self._spec.commit_each_ms / 1_000

    def _poll(self) -> None:
        operation = self._recorder.invoke(self._spec.name, Function.POLL, group=self._spec.group)
        try:
            records = self._consumer.poll(timeout_ms=POLL_MS)
        except UnavailableError:
            self._recorder.fail(operation)
            return
        found: dict[TopicPartition, list[tuple[int, str]]] = {each: [] for each in sorted(self._positions)}
        for record in records:
            where = TopicPartition(record.topic, record.partition)
            found[where].append((record.offset, name_of(record.value)))
            self._positions[where] = record.offset + 1
        self._recorder.ok(operation, [Poll(each, tuple(rows)) for each, rows in found.items()])

    def _commit(self, partitions: Iterable[TopicPartition]) -> None:
        offsets = {each: self._positions[each] for each in partitions}
        if not offsets:
            return
        ops = [Commit(each, offset, self._lease_epoch(each, offset)) for each, offset in offsets.items()]
        operation = self._recorder.invoke(self._spec.name, Function.COMMIT, ops, group=self._spec.group)
        try:
            self._consumer.commit(offsets)
        except PenstockError:
            self._recorder.maybe(operation)  # the commit of some partitions may have applied
        else:
            self._recorder.ok(operation)

    def _lease_epoch(self, partition: TopicPartition, offset: int) -> int | None:
        """The lease epoch of the commit, or None if the lease is lost already and the commit will fail."""
        try:
            [entry] = self._consumer.group_offsets({partition: offset})
        except LeaseLostError:
            return None
        return entry.lease_epoch

    def _assigned(self, partitions: list[TopicPartition]) -> None:
        started = {each: self._consumer.position(each) for each in partitions}
        told = [Committed(each, position) for each, position in started.items() if position]  # at 0 there was no commit
        if told:
            self._recorder.done(self._spec.name, Function.COMMITTED, told, group=self._spec.group)
        self._tell(started)
        self._positions |= started

    def _revoked(self, partitions: list[TopicPartition]) -> None:
        self._commit(partitions)
        self._lost(partitions)

    def _lost(self, partitions: list[TopicPartition]) -> None:
        for each in partitions:
            del self._positions[each]
        self._tell({})

    def _tell(self, started: Mapping[TopicPartition, int]) -> None:
        told = Assign(tuple(sorted(self._positions)), tuple(started.items()))
        self._recorder.done(self._spec.name, Function.ASSIGN, [told], group=self._spec.group)
