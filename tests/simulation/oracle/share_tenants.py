"""Fair sharing: no acquire gives a tenant one record more while another tenant with fewer in flight had one waiting.

The oracle notes what an acquire may take when it is asked, and how many records of each tenant were in flight at least
and at most since then. So changes that the acquire did not see raise no alarm. These acquires have no shares to judge:

- those whose nonce lets them take the oldest records, and those that take a part of a poison candidate,
- those that were refused three times: they take records in order,
- those whose instance failed to read something meanwhile: it knows no tenants then,
- those that take the next fresh records wherever the position is, if it has moved meanwhile,
- those whose update has little room left for further entries.
"""

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from penstock_core.errors import PenstockError
from penstock_core.ids import LockNonce, Offset
from penstock_core.limits import SHARE_FAIR_OLDEST_EACH
from penstock_core.records.partitioner import murmur2
from penstock_core.share.draft import ShareOutcome, ShareUpdate
from penstock_core.share.record_set import RecordSet
from penstock_core.share.share_group import ShareGroup
from penstock_core.share.share_state import ShareKey, ShareState
from tests.simulation.engine.time_and_chance import CLOCK_SKEW_MS, EPOCH_MS
from tests.simulation.oracle.violation import expect
from tests.simulation.service.simulation import Simulation

_NEW = ShareState(position=Offset(0))
_REFUSALS_MAX = 3  # then an acquire takes records in order
_ENTRIES_MAX = 8  # of an update: with more, an acquire may have no room for one more wait


@dataclass(slots=True)
class _Note:
    """What an acquire may take, and what was in flight since it was asked, by partition."""

    positions: dict[ShareKey, int]
    available: dict[ShareKey, set[int]]
    fewest: dict[ShareKey, Counter[str]]
    most: dict[ShareKey, Counter[str]]
    refusals: Counter[ShareKey] = field(default_factory=Counter)
    has_failed: bool = False


class TenantOracle:
    """Watches the share items of one group with sharing=fair. The key of a record is what is before the last hyphen."""

    def __init__(self, simulation: Simulation, group: ShareGroup) -> None:
        self._simulation = simulation
        self.keys = [
            ShareKey(group.share_group_id, topic.topic_id, number)
            for topic in simulation.stores.topics.list()
            if topic.topic_id in group.topics.values()
            for number in topic.all_partitions()
        ]
        self._notes: dict[LockNonce, _Note] = {}
        simulation.storage.observers.append(self._observe)

    def asks(self, nonce: LockNonce) -> None:
        """Note what an acquire with that nonce may take, which a worker is about to ask for."""
        states = {key: self._simulation.stores.share.find_states([key]).get(key, _NEW) for key in self.keys}
        self._notes[nonce] = _Note(
            positions={key: state.position for key, state in states.items()},
            available={key: self._available(key, state) for key, state in states.items()},
            fewest={key: self._in_flight(key, state, nonce, CLOCK_SKEW_MS) for key, state in states.items()},
            most={key: self._in_flight(key, state, nonce, -EPOCH_MS) for key, state in states.items()},
        )

    def ends(self, nonce: LockNonce) -> None:
        """The worker asks no more."""
        self._notes.pop(nonce, None)

    def end_of(self, key: ShareKey) -> int:
        """The offset behind the last record of the partition."""
        return self._simulation.oracle.log.ends.get(key.partition_key, 0)

    def _tenant(self, key: ShareKey, offset: int) -> str:
        for entry in self._simulation.oracle.log.appends.get(key.partition_key, ()):
            if entry.base_offset <= offset < entry.end_offset:
                return tenant_of(entry.values[offset - entry.base_offset])
        raise AssertionError(f"no record has offset {offset} of {key}")

    def _counts(self, key: ShareKey, offsets: set[int]) -> Counter[str]:
        return Counter(self._tenant(key, offset) for offset in offsets)

    def _now_ms(self) -> int:
        return EPOCH_MS + int(self._simulation.scheduler.now_ms)

    def _available(self, key: ShareKey, state: ShareState) -> set[int]:
        """The fresh records, and those that came back and are due by every clock."""
        now_ms = self._now_ms() - CLOCK_SKEW_MS
        due = [
            wait.records
            for wait in state.waits.values()
            if wait.available_ms <= now_ms and not (wait.is_suspect or wait.is_terminal)
        ]
        return {*range(state.position, self.end_of(key)), *(each for records in due for each in records.offsets())}

    def _in_flight(self, key: ShareKey, state: ShareState, nonce: LockNonce, skew_ms: float) -> Counter[str]:
        """The records under locks of others that last by every clock. With -EPOCH_MS all: a plan may be that old."""
        until_ms = self._now_ms() + skew_ms
        held = {
            offset
            for name, lock in state.locks.items()
            if lock.until_ms > until_ms and not name.startswith(f"{nonce}.")
            for offset in lock.held.offsets()
        }
        return self._counts(key, held)

    def _observe(self, label: str, method: str, arguments: tuple[Any, ...], outcome: Any) -> None:
        if isinstance(outcome, PenstockError):
            for note in self._notes.values():
                note.has_failed = True
        elif label == "share" and method == "update" and arguments[0] in self.keys:
            key, update = arguments
            self._updated(key, update, outcome)

    def _updated(self, key: ShareKey, update: ShareUpdate, outcome: ShareOutcome) -> None:
        granted = {
            LockNonce(name.rpartition(".")[0]): lock
            for name, lock in update.locks.items()
            if lock is not None and update.expected_locks.get(name) is None
        }
        if outcome.before is None or outcome.after is None:
            for nonce in granted.keys() & self._notes.keys():
                self._notes[nonce].refusals[key] += 1
            return
        self._check_finished(key, outcome.before, outcome.after)
        for nonce, note in self._notes.items():
            for state in (outcome.before, outcome.after):
                note.fewest[key] &= self._in_flight(key, state, nonce, CLOCK_SKEW_MS)
                note.most[key] |= self._in_flight(key, state, nonce, -EPOCH_MS)
        for nonce in granted.keys() & self._notes.keys():
            self._check(nonce, key, update, outcome.before, outcome.after)
        for note in self._notes.values():
            note.available[key] &= self._available(key, outcome.after)

    def _check_finished(self, key: ShareKey, before: ShareState, after: ShareState) -> None:
        """A record is finished only under a lock: the group has no filter, and nothing is removed or expires."""
        held = {offset for lock in before.locks.values() for offset in lock.held.offsets()}
        open_before = RecordSet(before.unfinished()).plus(RecordSet(((before.position, after.position),)))
        lost = {
            *open_before.minus(after.unfinished()).minus(((after.position, self.end_of(key) + 1),)).offsets()
        } - held
        expect(not lost, f"{sorted(lost)} of {key} are finished, and nobody had them")

    def _check(
        self, nonce: LockNonce, key: ShareKey, update: ShareUpdate, before: ShareState, after: ShareState
    ) -> None:
        note = self._notes[nonce]
        is_suspect = any(wait.is_suspect for wait in [*before.waits.values(), *after.waits.values()])
        is_oldest_first = (murmur2(nonce.encode()) >> 4) % SHARE_FAIR_OLDEST_EACH == 0
        entries = len(update.expected_locks) + len(update.expected_waits)
        if note.has_failed or note.refusals[key] >= _REFUSALS_MAX or is_oldest_first or is_suspect:
            return
        bounds = update.position_between
        has_moved = bounds is not None and bounds[0] < bounds[1] and before.position != note.positions[key]
        if entries > _ENTRIES_MAX or has_moved:
            return
        taken = {
            offset
            for name, lock in after.locks.items()
            if name.startswith(f"{nonce}.") and name not in before.locks
            for offset in lock.held.offsets()
        }
        if any(taken.intersection(lock.held.offsets()) for lock in before.locks.values()):
            return  # they are of a lock that had ended
        left = self._counts(key, note.available[key] & self._available(key, after) - taken)
        counts = self._counts(key, taken)
        for tenant, count in counts.items():
            had = note.fewest[key][tenant] + count - 1
            for other in left:
                has = note.most[key][other] + counts[other]
                expect(
                    tenant == other or has >= had,
                    f"{nonce} takes {count} of {tenant}, which had {note.fewest[key][tenant]} in flight, in {key}; "
                    f"{other} had {note.most[key][other]}, gets {counts[other]}, and {left[other]} of it wait",
                )
        self._simulation.count("share acquire with several tenants" if len(left | counts) > 1 else "share acquire")
        if after.position > before.position + len(taken):
            self._simulation.count("share records passed over")


def tenant_of(value: str) -> str:
    """The tenant that the producers of the workload give a record with this value."""
    return value.rpartition("-")[0]
