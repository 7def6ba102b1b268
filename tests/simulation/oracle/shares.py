"""The rules of share groups, checked at every change of a share item and at every answer (G11).

The oracle compares the item before and after each effect. It does not use the plans: only the changes, and what workers
have sent.

- A finished record stays finished, except through a reset. A record is finished because a worker that has its lock sent
  an accept or a reject, because it was moved to the dead-letter topic, or because the log begins above it.
- A record moves from one lock to another only after the first one's time, and its delivery counts.
- A record goes to the dead-letter topic once, and only after a reject or `deliveries_max` deliveries.
- With order by key, no record is locked while an earlier one of its key waits or is locked by another acquire.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from penstock_core.errors import PenstockError
from penstock_core.ids import LockId, Offset
from penstock_core.limits import SHARE_LOCKS_MAX, SHARE_SUSPECT_PARTS
from penstock_core.records.codec import decode
from penstock_core.share.acknowledge import Acknowledgement, AckResult, AckType
from penstock_core.share.dead_letter import HEADER_PREFIX
from penstock_core.share.record_set import Ranges, RecordSet
from penstock_core.share.share_group import ShareGroupConfig
from penstock_core.share.share_state import Lock, ShareKey, ShareState, Wait
from tests.simulation.engine.timing import CLOCK_SKEW_MS, EPOCH_MS
from tests.simulation.oracle.violation import expect
from tests.simulation.service.simulation import Simulation

BURIED, EXPIRED = "buried", "expired"
KeyOf = Callable[[str], str | None]


@dataclass(slots=True)
class _Partition:
    """What the oracle knows of one share item in its generation. `finished` tells the lock, or why without one."""

    state: ShareState
    finished: dict[int, str] = field(default_factory=dict)
    sent: dict[LockId, list[Acknowledgement]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Held:
    """The entry that holds a record."""

    entry: Lock | Wait
    lock_id: LockId | None


class ShareOracle:
    """Watches the share items of one group. `key_of` tells the key of a record's value."""

    def __init__(self, simulation: Simulation, config: ShareGroupConfig, key_of: KeyOf) -> None:
        self._simulation = simulation
        self._config = config
        self._key_of = key_of
        self._values: dict[ShareKey, list[str]] = {}
        self.partitions: dict[ShareKey, _Partition] = {}
        self.buried: Counter[tuple[ShareKey, int]] = Counter()
        simulation.storage.observers.append(self._observe)

    def value(self, key: ShareKey, offset: int) -> str:
        """The value that was appended there."""
        values = self._values.setdefault(key, [])
        if offset >= len(values):
            appends = self._simulation.oracle.log.appends.get(key.partition_key, ())
            values[:] = [value for entry in appends for value in entry.values]
        return values[offset]

    def generation(self, key: ShareKey) -> int:
        """The generation of the item."""
        return self.partitions[key].state.generation if key in self.partitions else 0

    def sends(self, key: ShareKey, acknowledgement: Acknowledgement) -> None:
        """Note an acknowledgement that a worker is about to send."""
        self.partitions[key].sent.setdefault(acknowledgement.lock_id, []).append(acknowledgement)

    def answered(
        self, key: ShareKey, acknowledgement: Acknowledgement, generation: int, ranges: Ranges, result: AckResult
    ) -> None:
        """Check an answer to a worker. `generation` is the item's when the worker sent it."""
        if generation != self.generation(key):
            return
        partition = self.partitions[key]
        if acknowledgement.handed_out is None and generation:
            return  # such a lock id does not tell its generation
        if acknowledgement.handed_out is not None and acknowledgement.generation != generation:
            expect(
                result is AckResult.LOST,
                f"{acknowledgement.lock_id} of {key} was lost by a reset, and is told {result.value}",
            )
            return
        for offset in RecordSet(ranges).offsets():
            cause = partition.finished.get(offset)
            if acknowledgement.type is AckType.ACCEPT and result is not AckResult.LOST:
                expect(
                    cause is not None,
                    f"offset {offset} of {key} was accepted with the answer {result.value}, and is not finished",
                )
            if result is AckResult.LOST and acknowledgement.type is AckType.ACCEPT:
                expect(
                    cause != acknowledgement.lock_id,
                    f"offset {offset} of {key} was accepted by {cause}, which is told LOCK_LOST",
                )

    def check_all_finished(self) -> None:
        """Check that nothing is left unfinished, up to the end of the log."""
        for key, partition in self.partitions.items():
            end, state = self._simulation.oracle.log.ends.get(key.partition_key, 0), partition.state
            log_start = self._simulation.oracle.log_starts.get(key.partition_key, 0)  # what lies below has expired
            expect(
                not state.open and max(state.position, log_start) >= end,
                f"{key} is at {state.position} of {end}, and {state.unfinished()} are unfinished at the end",
            )

    def check_dead_letters(self, topic: str) -> None:
        """Check that each moved record is in the dead-letter topic as often as it was moved, with its value."""
        log = self._simulation.oracle.log
        keys = {int(key.partition): key for key in self.partitions}
        found: Counter[tuple[ShareKey, int]] = Counter()
        for key, appends in log.appends.items():
            for entry in appends if log.names.get(key.topic_id) == topic else ():
                ref = entry.ref
                body = memoryview(log.bodies[ref.segment_id])[ref.position : ref.position + ref.length]
                for record in decode(body):
                    headers = {name: (value or b"").decode() for name, value in record.headers}
                    partition, offset = (int(headers[HEADER_PREFIX + name]) for name in ("partition", "offset"))
                    share_key = keys[partition]
                    found[share_key, offset] += 1
                    value = (record.value or b"").decode()
                    expect(value == self.value(share_key, offset), f"{share_key} at {offset} is a dead letter {value}")
        expect(
            found == self.buried, f"dead letters differ from those moved: {found - self.buried}, {self.buried - found}"
        )

    def _observe(self, label: str, method: str, arguments: tuple[Any, ...], outcome: Any) -> None:
        if isinstance(outcome, PenstockError):
            return
        if label == "share" and method == "update" and outcome.is_applied:
            self._changed(arguments[0], outcome.before, outcome.after)
        elif label == "share" and method == "reset" and outcome:
            key, seen, position = arguments
            state = ShareState(generation=seen.generation + 1, position=Offset(position))
            self.partitions[key] = _Partition(state)
        elif label == "transactions" and method in ("move", "commit") and outcome:
            for share in arguments[0].shares:
                after = self._simulation.stores.share.find_states([share.key])[share.key]
                self._changed(share.key, self.partitions[share.key].state, after, is_burial=method == "move")

    def _changed(self, key: ShareKey, before: ShareState, after: ShareState, *, is_burial: bool = False) -> None:
        partition = self.partitions.setdefault(key, _Partition(before))
        partition.state = after
        old, new = _held(before), _held(after)
        expect(
            after.open == len(new) == sum(records.count for records in after.entries()),
            f"{key} has {after.open} records in flight, and {len(new)} in entries",
        )
        expect(all(offset < after.position for offset in new), f"{key} has entries at or above its position")
        for offset in range(before.position, after.position):
            if offset not in new:
                self._finished(key, partition, offset, None, is_burial=False)
        for offset, held in old.items():
            if offset not in new:
                self._finished(key, partition, offset, held, is_burial=is_burial)
        for offset, held in new.items():
            was = old.get(offset)
            if was is None:
                expect(
                    offset >= before.position,
                    f"offset {offset} of {key} was finished by {partition.finished.get(offset)}, and comes again",
                )
                expect(
                    isinstance(held.entry, Wait) or held.entry.deliveries == 1,
                    f"offset {offset} of {key} is fresh, and has {held.entry.deliveries} deliveries",
                )
            elif was != held:
                self._moved(key, partition, offset, was, held)
        self._check_suspects(key, before, after, old)
        if self._config.is_by_key:
            self._check_order(key, after, new)

    def _finished(
        self, key: ShareKey, partition: _Partition, offset: int, held: _Held | None, *, is_burial: bool
    ) -> None:
        """Check that a record may be finished, and note by what."""
        if is_burial:
            assert held is not None
            entry, most = held.entry, self._config.deliveries_max or 0
            is_rejected = isinstance(entry, Wait) and entry.is_rejected
            is_over = not isinstance(entry, Lock) or self._is_past(entry.until_ms)
            expect(
                is_rejected or (entry.deliveries >= most and is_over),
                f"offset {offset} of {key} is a dead letter after {entry.deliveries} of {most} deliveries",
            )
            self._simulation.count("share record buried" + ("" if is_rejected else " without reject"))
            self.buried[key, offset] += 1
            partition.finished[offset] = BURIED
            return
        if offset < self._simulation.oracle.log_starts.get(key.partition_key, 0):
            partition.finished[offset] = EXPIRED
            return
        lock_id = held.lock_id if held is not None else None
        finishing = {AckType.ACCEPT} if self._config.dead_letter_topic else {AckType.ACCEPT, AckType.REJECT}
        acknowledgements = partition.sent.get(lock_id, ()) if lock_id is not None else ()
        expect(
            any(each.type in finishing and _covers(each, held, offset) for each in acknowledgements),
            f"offset {offset} of {key} is finished, and nobody has accepted it: {held}",
        )
        partition.finished[offset] = str(lock_id)

    def _moved(self, key: ShareKey, partition: _Partition, offset: int, was: _Held, held: _Held) -> None:
        """Check that a record may go from one entry to another."""
        where, counts = f"offset {offset} of {key}", (was.entry.deliveries, held.entry.deliveries)
        if held.lock_id is not None and held.lock_id != was.lock_id:
            self._simulation.count("share record handed out again")
            ends_ms = was.entry.until_ms if isinstance(was.entry, Lock) else was.entry.available_ms
            # One update may give a record back and hand it out again, uncounted if it stood behind one of its key.
            released = was.lock_id is not None and self._gave_back(partition, was, was.lock_id, offset)
            expect(
                released or self._is_past(ends_ms),
                f"{where} is locked by {held.lock_id} before {was.lock_id} has ended",
            )
            is_counted = counts[1] == counts[0] + 1 or (released and counts[1] == counts[0])
            expect(is_counted, f"{where} is handed out with {counts[1]} deliveries after {counts[0]}")
            most = self._config.deliveries_max
            expect(most is None or counts[1] <= most, f"{where} is handed out for the {counts[1]}th time of {most}")
            expect(
                not (isinstance(was.entry, Wait) and was.entry.is_rejected),
                f"{where} was rejected, and is handed out again",
            )
        elif was.lock_id is not None and held.lock_id is None:
            is_counted = counts[1] == counts[0]
            # What an acquire could not hand over goes back uncounted, and what stands behind a record of its key.
            expect(is_counted or counts[1] == counts[0] - 1, f"{where} came back with {counts[1]} of {counts[0]}")
            wait = held.entry
            assert isinstance(wait, Wait)
            sent = partition.sent.get(was.lock_id, ())
            expect(
                not wait.is_rejected
                or any(each.type is AckType.REJECT and _covers(each, was, offset) for each in sent),
                f"{where} counts as rejected, and nobody has rejected it",
            )
        elif was.lock_id is None and held.lock_id is None:
            expect(counts[0] == counts[1], f"{where} waits with {counts[1]} deliveries after {counts[0]}")

    def _gave_back(self, partition: _Partition, was: _Held, lock_id: LockId, offset: int) -> bool:
        """True if a worker has released the record, or with order by key perhaps one before it."""
        names = [lock_id]
        if self._config.is_by_key:
            names = [name for name in partition.sent if _nonce(name) == _nonce(lock_id)]
        return any(
            each.type is AckType.RELEASE and (self._config.is_by_key or _covers(each, was, offset))
            for name in names
            for each in partition.sent.get(name, ())
        )

    def _check_suspects(self, key: ShareKey, before: ShareState, after: ShareState, old: dict[int, _Held]) -> None:
        """Check that records of an expired lock come again in small parts, and alone on their last delivery."""
        partition = self.partitions[key]
        new = {name: lock for name, lock in after.locks.items() if name not in before.locks}
        for name, lock in new.items():
            sources = {was.lock_id for offset in lock.held.offsets() if (was := old.get(offset)) is not None}
            suspects = [
                before.locks[each]
                for each in sources
                if each is not None and not any(sent.type is AckType.RELEASE for sent in partition.sent.get(each, ()))
            ]
            is_last = lock.deliveries == self._config.deliveries_max
            for suspect in suspects:
                part = 1 if is_last else -(-suspect.records.count // SHARE_SUSPECT_PARTS)
                expect(
                    lock.records.count <= part or len(before.locks) >= SHARE_LOCKS_MAX,
                    f"lock {name} of {key} has {lock.records.count} records of a suspect with {suspect.records.count}",
                )
                expect(
                    not is_last or len(new) == 1,
                    f"lock {name} of {key} has a suspect on its last delivery, and is not alone: {sorted(new)}",
                )

    def _check_order(self, key: ShareKey, after: ShareState, held: dict[int, _Held]) -> None:
        first: dict[str, _Held] = {}
        for offset in sorted(held):
            record_key, mine = self._key_of(self.value(key, offset)), held[offset]
            if record_key is None or self._is_terminal(mine.entry):
                continue
            ahead = first.setdefault(record_key, mine)
            expect(
                mine.lock_id is None or (ahead.lock_id is not None and _nonce(ahead.lock_id) == _nonce(mine.lock_id)),
                f"offset {offset} of {key} is locked by {mine.lock_id}, and an earlier one of its key is not finished",
            )

    def _is_terminal(self, entry: Lock | Wait) -> bool:
        most = self._config.deliveries_max
        return isinstance(entry, Wait) and (entry.is_rejected or (most is not None and entry.deliveries >= most))

    def _is_past(self, time_ms: int) -> bool:
        """True if the time may be over by some instance's clock."""
        return time_ms <= EPOCH_MS + self._simulation.scheduler.now_ms + CLOCK_SKEW_MS


def _held(state: ShareState) -> dict[int, _Held]:
    found = {
        offset: _Held(entry=lock, lock_id=name) for name, lock in state.locks.items() for offset in lock.held.offsets()
    }
    for wait in state.waits.values():
        found.update((offset, _Held(entry=wait, lock_id=None)) for offset in wait.records.offsets())
    return found


def _covers(acknowledgement: Acknowledgement, held: _Held | None, offset: int) -> bool:
    """True if the acknowledgement is for this record."""
    if acknowledgement.offsets is not None:
        return any(start <= offset < end for start, end in acknowledgement.offsets)
    if acknowledgement.handed_out is not None:
        return any(start <= offset < end for start, end in acknowledgement.handed_out.held.ranges)
    return held is not None


def _nonce(lock_id: LockId) -> str:
    return lock_id.rpartition(".")[0]
