"""Priorities: no acquire locks a record of a topic while it could have had one of a topic that the group lists before.

The oracle notes the records that each acquire may take when it is asked. Records leave the note once somebody has
locked or finished them. So those that are left were there all the time, and the acquire has met them. When it locks
records of a topic, nothing may be left in the notes of the topics before that.
"""

from typing import Any

from penstock_core.errors import PenstockError
from penstock_core.ids import LockNonce, Offset, PartitionKey
from penstock_core.share.share_group import ShareGroup
from penstock_core.share.share_state import ShareKey, ShareState
from tests.simulation.engine.time_and_chance import CLOCK_SKEW_MS, EPOCH_MS
from tests.simulation.oracle.violation import expect
from tests.simulation.service.simulation import Simulation

_NEW = ShareState(position=Offset(0))


class RankOracle:
    """Watches the share items of one group with topic_order=listed, whose topics keep their order and partitions."""

    def __init__(self, simulation: Simulation, group: ShareGroup) -> None:
        self._simulation = simulation
        self._rank = {group.topics[name]: rank for rank, name in enumerate(group.order)}
        self.keys = [
            ShareKey(group.share_group_id, topic.topic_id, number)
            for topic in simulation.stores.topics.list()
            if topic.topic_id in self._rank
            for number in topic.all_partitions()
        ]
        self._notes: dict[LockNonce, dict[ShareKey, set[int]]] = {}
        simulation.storage.observers.append(self._observe)

    def asks(self, nonce: LockNonce) -> None:
        """Note what an acquire with that nonce may take, which a worker is about to ask for."""
        self._notes[nonce] = {key: self._available(key) for key in self.keys}

    def end_of(self, key: ShareKey) -> int:
        """The offset behind the last record of the partition."""
        return self._simulation.oracle.log.ends.get(key.partition_key, 0)

    def _available(self, key: ShareKey) -> set[int]:
        """The fresh records, and those that came back and are due by every clock. Parts of ended locks are left out."""
        state = self._simulation.stores.share.find_states([key]).get(key, _NEW)
        now_ms = EPOCH_MS + self._simulation.scheduler.now_ms - CLOCK_SKEW_MS
        due = [
            wait.records
            for wait in state.waits.values()
            if wait.available_ms <= now_ms and not (wait.is_suspect or wait.is_terminal)
        ]
        log_start = self._log_start(key.partition_key)
        fresh = range(max(state.position, log_start), self.end_of(key))
        return {*fresh, *(offset for records in due for offset in records.offsets() if offset >= log_start)}

    def _log_start(self, key: PartitionKey) -> int:
        return self._simulation.oracle.log_starts.get(key, 0)

    def _observe(self, label: str, method: str, arguments: tuple[Any, ...], outcome: Any) -> None:
        if label != "share" or method != "update" or isinstance(outcome, PenstockError) or not outcome.is_applied:
            return
        key, update = arguments
        if key not in self.keys:
            return
        new = [name for name, lock in update.locks.items() if lock is not None and name not in outcome.before.locks]
        for nonce in {LockNonce(name.rpartition(".")[0]) for name in new}:
            self._check(nonce, key)
        left = self._available(key)
        for note in self._notes.values():
            note[key] &= left

    def _check(self, nonce: LockNonce, key: ShareKey) -> None:
        rank = self._rank[key.topic_id]
        for other, note in self._notes.get(nonce, {}).items():
            if self._rank[other.topic_id] < rank:
                passed = note & self._available(other)
                expect(not passed, f"{nonce} locks records of {key}, and has passed by {sorted(passed)} of {other}")
        self._simulation.count("share lower record locked" if rank else "share highest record locked")
