"""The rules of share groups, checked at every change of a share item and at every answer (G11).

The oracle compares the item before and after each effect. It does not use the plans: only the changes, and what workers
have sent.

- A finished record stays finished, except through a reset. A record is finished because a worker that has its lock sent
  an accept or a reject, because it was moved to the dead-letter topic, because no filter of the group takes it, or
  because retention or compaction has removed it, or because its time is over. The item counts the last ones.
- A record goes to the dead-letter topic once, and only after a reject or `deliveries_max` deliveries.
- A plan of an older generation changes nothing.
- `share_handouts` says how records may go from one entry to another.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from penstock_core.errors import PenstockError
from penstock_core.filters.filter import Filter, matches
from penstock_core.filters.policy import parse_filter
from penstock_core.ids import LockId, Offset, Partition, PartitionKey, ShareGroupId
from penstock_core.records.codec import Record, decode
from penstock_core.share.acknowledge import Acknowledgement, AckResult, AckType
from penstock_core.share.dead_letter import HEADER_PREFIX
from penstock_core.share.record_set import Ranges, RecordSet
from penstock_core.share.share_group import ShareGroup
from penstock_core.share.share_state import Lock, ShareKey, ShareState, Wait
from penstock_core.transaction import Move, Transaction
from tests.history import format as history
from tests.simulation.clients.producer import headers_of
from tests.simulation.oracle.share_entries import Held, covers, held_in
from tests.simulation.oracle.share_handouts import ShareHandOuts
from tests.simulation.oracle.violation import expect
from tests.simulation.service.simulation import Simulation
from tests.support.dead_letters import dead_letter_of

BURIED, EXPIRED, FILTERED, OVER, REMOVED = "buried", "expired", "filtered", "over", "removed"
_FILTER_MS = 75_000.0  # that a call may go by an old filter: a cache, a function's time, and a late write
KeyOf = Callable[[str], str | None]


@dataclass(slots=True)
class _Partition:
    """What the oracle knows of one share item in its generation. `finished` tells the lock, or why without one."""

    state: ShareState
    finished: dict[int, str] = field(default_factory=dict)
    sent: dict[LockId, list[Acknowledgement]] = field(default_factory=dict)


class ShareOracle:
    """Watches the share items of one group of one topic, and of those that are made anew under its name.

    `key_of` tells the key of a record's value. `is_removed` tells if compaction may have removed a record.
    """

    def __init__(self, simulation: Simulation, group: ShareGroup, key_of: KeyOf) -> None:
        self._simulation = simulation
        self._name = group.name
        self.config = group.config
        self.is_in_history = False  # the history was told that the group was made
        self.group_id = group.share_group_id  # of the group that has the name now
        [self._topic_id] = group.topics.values()
        self._ids: set[ShareGroupId] = set()
        self._forgotten: set[ShareGroupId] = set()
        self._filters: list[tuple[float, Filter | None]] = []  # since when
        self._watch(group)
        self._values: dict[PartitionKey, list[str]] = {}
        self._hand_outs = ShareHandOuts(
            simulation, group.config, lambda key, offset: key_of(self.value(key.partition_key, offset))
        )
        self.is_removed: Callable[[PartitionKey, int], bool] = lambda _key, _offset: False
        self.partitions: dict[ShareKey, _Partition] = {}
        self.buried: Counter[tuple[PartitionKey, int]] = Counter()
        self.on_commit: Callable[[Transaction, dict[ShareKey, set[int]]], object] = lambda _transaction, _finished: None
        simulation.storage.observers.append(self._observe)

    def value(self, key: PartitionKey, offset: int) -> str:
        """The value that was appended there."""
        values = self._values.setdefault(key, [])
        if offset >= len(values):
            appends = self._simulation.oracle.log.appends.get(key, ())
            values[:] = [value for entry in appends for value in entry.values]
        return values[offset]

    def generation(self, key: ShareKey) -> int:
        """The generation of the item."""
        return self.partitions[key].state.generation if key in self.partitions else 0

    def takes(self, key: PartitionKey, offset: int) -> bool:
        """True if a filter that may be in force takes the record."""
        headers = headers_of(self.value(key, offset))
        return any(wanted is None or matches(wanted, headers) for wanted in self._wanted())

    def sends(self, key: ShareKey, acknowledgement: Acknowledgement) -> None:
        """Note an acknowledgement that a worker is about to send."""
        if key in self.partitions:
            self.partitions[key].sent.setdefault(acknowledgement.lock_id, []).append(acknowledgement)

    def answered(
        self, key: ShareKey, acknowledgement: Acknowledgement, generation: int, ranges: Ranges, result: AckResult
    ) -> None:
        """Check an answer to a worker. `generation` is the item's when the worker sent it."""
        if key not in self.partitions or generation != self.generation(key):
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

    def check_all_finished(self, topic_name: str) -> None:
        """Check that nothing of the topic is left unfinished, up to the end of each partition."""
        topic = next(each for each in self._simulation.stores.topics.list() if each.name == topic_name)
        for number in topic.all_partitions():
            key = ShareKey(self.group_id, topic.topic_id, number)
            end = self._simulation.oracle.log.ends.get(key.partition_key, 0)
            log_start = self._simulation.oracle.log_starts.get(key.partition_key, 0)  # what lies below has expired
            state = self.partitions[key].state if key in self.partitions else ShareState(position=Offset(0))
            expect(
                not state.open and max(state.position, log_start) >= end,
                f"{key} is at {state.position} of {end}, and {state.unfinished()} are unfinished at the end",
            )

    def check_dead_letters(self, topic: str) -> None:
        """Check that each moved record is in the dead-letter topic as often as it was moved, with its value.

        The history gets the dead letters, too, if it knows the group.
        """
        log, recorder = self._simulation.oracle.log, self._simulation.recorder
        letters: list[history.DeadLetter] = []
        found: Counter[tuple[PartitionKey, int]] = Counter()
        for key, appends in log.appends.items():
            for entry in appends if log.names.get(key.topic_id) == topic else ():
                ref = entry.ref
                body = memoryview(log.bodies[ref.segment_id])[ref.position : ref.position + ref.length]
                for index, record in enumerate(decode(body), start=entry.base_offset):
                    partition, offset = _origin(record)
                    place = PartitionKey(self._topic_id, partition)
                    self._simulation.oracle.expiries.check_letter(record)
                    found[place, offset] += 1
                    value, wanted = (record.value or b"").decode(), self.value(place, offset)
                    letters.append(dead_letter_of(index, value, record.key, record.headers))
                    expect(value == wanted, f"{place} at {offset} is a dead letter {value}, and was {wanted}")
        if self.is_in_history:
            operation = recorder.invoke("final", history.Function.DEAD_LETTERS)
            recorder.ok(operation, [history.DeadLetters((topic, 0), tuple(letters))])
        expect(
            found == self.buried, f"dead letters differ from those moved: {found - self.buried}, {self.buried - found}"
        )

    def _watch(self, group: ShareGroup) -> None:
        self.group_id = group.share_group_id
        self._ids.add(group.share_group_id)
        policy = group.config.filter
        wanted = None if policy is None else parse_filter(policy)
        self._filters.append((self._simulation.scheduler.now_ms, wanted))

    def _forget(self, group_id: ShareGroupId) -> None:
        """A group that was deleted promises nothing. Calls that remember it may go on for a while.

        Each oracle hears of all groups, and forgets its own ones.
        """
        if group_id not in self._ids:
            return
        self._ids.discard(group_id)
        self._forgotten.add(group_id)
        for key in [key for key in self.partitions if key.share_group_id == group_id]:
            del self.partitions[key]

    def _wanted(self) -> Iterator[Filter | None]:
        """The filters that a call under way may go by."""
        ends = [since for since, _ in self._filters[1:]] + [float("inf")]
        for (_, wanted), end_ms in zip(self._filters, ends, strict=True):
            if end_ms >= self._simulation.scheduler.now_ms - _FILTER_MS:
                yield wanted

    def _observe(self, label: str, method: str, arguments: tuple[Any, ...], outcome: Any) -> None:
        if isinstance(outcome, PenstockError):
            return
        if label == "share":
            self._observe_share(method, arguments, outcome)
        elif label == "transactions" and (outcome.is_applied if method == "move" else method == "commit" and outcome):
            finished = {}
            for share in arguments[0].shares:
                if share.key.share_group_id in self._ids:
                    before = self.partitions[share.key].state
                    after = self._simulation.stores.share.find_states([share.key])[share.key]
                    letters = self._letters_of(arguments[0]) if method == "move" else None
                    finished[share.key] = self._changed(share.key, before, after, letters)
                elif share.key.share_group_id in self._forgotten and method == "move":
                    places = self._letters_of(arguments[0])
                    self.buried.update((PartitionKey(self._topic_id, each), offset) for each, offset in places)
            if method == "commit":
                self.on_commit(arguments[0], finished)

    def _observe_share(self, method: str, arguments: tuple[Any, ...], outcome: Any) -> None:
        if method == "change_group":
            if arguments[1].name == self._name:
                self._watch(arguments[1])
        elif method == "delete_group":
            self._forget(arguments[0].share_group_id)
        elif method == "begin_state" and outcome is not None and arguments[1].share_group_id in self._ids:
            self.partitions.setdefault(arguments[1], _Partition(outcome))  # a reset may begin it anywhere
        elif method not in ("update", "reset") or arguments[0].share_group_id not in self._ids:
            return
        elif method == "update" and outcome.is_applied:
            key, update = arguments
            met = outcome.before.generation
            expect(update.generation == met, f"a plan of generation {update.generation} has changed {key} in {met}")
            stored = self._simulation.stores.share.find_states([key])[key]
            expect(stored == outcome.after, f"{key} is {stored}, and its writer believes {outcome.after}")
            self._changed(key, outcome.before, outcome.after, None)
        elif method == "reset" and outcome:
            key, seen, position = arguments
            state = ShareState(generation=seen.generation + 1, position=Offset(position))
            self.partitions[key] = _Partition(state)

    def _letters_of(self, move: Move) -> set[tuple[Partition, int]]:
        """The places of the records that the move has appended to the dead-letter topic."""
        bodies = self._simulation.oracle.log.bodies
        return {
            _origin(record)
            for refs in move.refs.values()
            for ref in refs
            for record in decode(memoryview(bodies[ref.segment_id])[ref.position : ref.position + ref.length])
        }

    def _changed(
        self, key: ShareKey, before: ShareState, after: ShareState, letters: set[tuple[Partition, int]] | None
    ) -> set[int]:
        """Check a change. `letters` are the dead letters of a burial. Returns the offsets that it has finished."""
        partition = self.partitions.setdefault(key, _Partition(before))
        partition.state = after
        old, new = held_in(before), held_in(after)
        expect(
            after.open == len(new) == sum(records.count for records in after.entries()),
            f"{key} has {after.open} records in flight, and {len(new)} in entries",
        )
        expect(all(offset < after.position for offset in new), f"{key} has entries at or above its position")
        passed = {offset: None for offset in range(before.position, after.position) if offset not in new}
        left = {**passed, **{offset: held for offset, held in old.items() if offset not in new}}
        for offset, held in left.items():
            if letters is not None and (key.partition, offset) in letters:
                self._buried(key, partition, offset, held)
            else:
                self._finished(key, partition, offset, held)
        self._check_count(key, partition, [*left], after.expired - before.expired)
        expect(
            letters is None or {offset for _, offset in letters} <= left.keys(),
            f"{key} keeps records that a burial has moved: {letters}",
        )
        for offset, held in new.items():
            if offset not in old:
                self._check_fresh(key, offset, before, held)
        self._hand_outs.check(key, partition.sent, before, after)
        return {*left}

    def _check_count(self, key: ShareKey, partition: _Partition, left: Sequence[int], count: int) -> None:
        """Check that the item counts the records that only their time can have finished, and none that is not over."""
        surely = sum(partition.finished[offset] == OVER for offset in left)
        expiries, place = self._simulation.oracle.expiries, key.partition_key
        perhaps = sum(expiries.may_be_over(self.value(place, offset)) for offset in left)
        expect(surely <= count <= perhaps, f"{key} counts {count} of {left} as expired, and {surely} to {perhaps} are")

    def _check_fresh(self, key: ShareKey, offset: int, before: ShareState, held: Held) -> None:
        cause = self.partitions[key].finished.get(offset)
        expect(offset >= before.position, f"offset {offset} of {key} was finished by {cause}, and comes again")
        expect(
            isinstance(held.entry, Wait) or held.entry.deliveries == 1,
            f"offset {offset} of {key} is fresh, and has {held.entry.deliveries} deliveries",
        )

    def _buried(self, key: ShareKey, partition: _Partition, offset: int, held: Held | None) -> None:
        """Check that a record may go to the dead-letter topic."""
        expect(held is not None, f"offset {offset} of {key} is a dead letter, and was never handed out")
        assert held is not None
        entry, most = held.entry, self.config.deliveries_max or 0
        is_rejected = isinstance(entry, Wait) and entry.is_rejected
        is_over = not isinstance(entry, Lock) or self._hand_outs.is_past(entry.until_ms)
        expect(
            is_rejected or (entry.deliveries >= most and is_over),
            f"offset {offset} of {key} is a dead letter after {entry.deliveries} of {most} deliveries",
        )
        expect(
            is_rejected or self.takes(key.partition_key, offset),
            f"offset {offset} of {key} is a dead letter, and the filter does not take it",
        )
        self._simulation.count("share record buried" + ("" if is_rejected else " without reject"))
        self.buried[key.partition_key, offset] += 1
        partition.finished[offset] = BURIED

    def _finished(self, key: ShareKey, partition: _Partition, offset: int, held: Held | None) -> None:
        """Check that a record may be finished, and note by what."""
        if offset < self._simulation.oracle.log_starts.get(key.partition_key, 0):
            partition.finished[offset] = EXPIRED
            return
        lock_id = held.lock_id if held is not None else None
        finishing = {AckType.ACCEPT} if self.config.dead_letter_topic else {AckType.ACCEPT, AckType.REJECT}
        acknowledgements = partition.sent.get(lock_id, ()) if lock_id is not None else ()
        if any(each.type in finishing and covers(each, held, offset) for each in acknowledgements):
            partition.finished[offset] = str(lock_id)
        elif not all(
            wanted is None or matches(wanted, headers_of(self.value(key.partition_key, offset)))
            for wanted in self._wanted()
        ):
            self._simulation.count("share record filtered out")
            partition.finished[offset] = FILTERED
        elif self._simulation.oracle.expiries.may_be_over(self.value(key.partition_key, offset)):
            self._simulation.count("share record over")
            partition.finished[offset] = OVER
        else:
            expect(
                self.is_removed(key.partition_key, offset),
                f"offset {offset} of {key} is finished, and nobody has accepted it: {held}",
            )
            self._simulation.count("share record removed by compaction")
            partition.finished[offset] = REMOVED


def _origin(record: Record) -> tuple[Partition, int]:
    """The partition and offset that a dead letter comes from."""
    headers = {name: (value or b"").decode() for name, value in record.headers}
    partition, offset = (int(headers[HEADER_PREFIX + name]) for name in ("partition", "offset"))
    return Partition(partition), offset
