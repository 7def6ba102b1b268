"""The oracle sees each call at the stores when it takes effect, and checks the invariants that every effect keeps."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from penstock_core.errors import PenstockError
from penstock_core.ids import Offset, PartitionKey, SegmentId, TopicId
from penstock_core.limits import FAILED_PUTS_MAX, PUT_TIMEOUT_MS
from penstock_core.log.delivery import Delivery, DeliveryOutcome
from penstock_core.log.index import Head, HeadAppend
from penstock_core.log.ref import LocatedRef, Ref, Tier
from penstock_core.log.timer import TimerPlace, delivered_ref
from penstock_core.log.topic import Topic
from penstock_core.mirror.push import MirrorAppend
from penstock_core.records.codec import decode
from penstock_core.transaction import Move, Transaction
from penstock_core.zones.zone_state import ZoneStates
from tests.simulation.engine.run_state import RunState
from tests.simulation.engine.time_and_chance import CLOCK_SKEW_MS, EPOCH_MS
from tests.simulation.oracle.expected_log import MISSED, Appended, ExpectedLog
from tests.simulation.oracle.expiries import Expiries
from tests.simulation.oracle.merges import Merges
from tests.simulation.oracle.removals import Removals
from tests.simulation.oracle.violation import expect


@dataclass(slots=True, kw_only=True)
class ObservedPut:
    """One put to a zone, as the function instance that made it saw it."""

    segment_id: SegmentId
    begun_ms: float
    confirmed_ms: float | None = None

    @property
    def has_failed(self) -> bool:
        return self.confirmed_ms is None or self.confirmed_ms - self.begun_ms >= PUT_TIMEOUT_MS


class Oracle:
    """The content that the stores of one run must have, and the checks of every effect."""

    def __init__(self, state: RunState) -> None:
        self._state = state
        self.log = ExpectedLog(state.stores)
        self.log_starts: dict[PartitionKey, int] = {}
        self.deleted_at_ms: dict[TopicId, float] = {}  # when its deletion was confirmed
        self.partitions_deleted: dict[TopicId, int] = {}
        self.begun: set[TopicId] = set()  # topics whose creation has begun, finished or not
        self.in_sync: list[tuple[float, int]] = [(0.0, (1 << len(state.stores.zones)) - 1)]  # since when, which zones
        self.destroyed: set[tuple[str, SegmentId]] = set()  # copies that the simulation itself removed or spoilt
        self.marked: dict[tuple[PartitionKey, int], int] = {}  # the zones of each mark on a ref
        self.removals = Removals(state, self.log)
        self.merges = Merges(state, self.log, self.removals)
        self._marks_of_sweeps: set[SegmentId] = set()
        self.timers_waiting: dict[SegmentId, PartitionKey] = {}  # by the segment that each of them names
        self._copies: dict[tuple[PartitionKey, TimerPlace], SegmentId] = {}  # of timers that were put
        self.expiries = Expiries(state.scheduler)
        self._puts: dict[str, dict[str, list[ObservedPut]]] = {}  # by function instance and zone, as they began

    def topic_created(self, topic: Topic) -> None:
        self.log.names[topic.topic_id] = topic.name
        self.removals.configured(topic)

    def observe(self, label: str, method: str, arguments: tuple[Any, ...], outcome: Any) -> None:
        """Note one effect, and check its invariants."""
        if isinstance(outcome, PenstockError):
            return
        if label.startswith("zone ") or label in ("archive", "inline"):
            self._observe_zone(label, method, arguments)
        elif label == "compaction" and method == "swap" and outcome:
            self.merges.swapped(*arguments)
        elif label == "compaction" and method == "acquire" and outcome is not None:
            self.merges.leased(arguments[0], outcome.epoch)
        elif label == "compaction" and method == "move_tail" and outcome:
            self.merges.tail_moved(*arguments)
        elif label == "log":
            self._observe_log(method, arguments, outcome)
        elif label == "transactions" and (outcome.is_applied if method == "move" else method == "commit" and outcome):
            self._transacted(arguments[0])
        elif label == "timers":
            self._observe_timers(method, arguments, outcome)
        elif label == "topics":
            self._observe_topics(method, arguments, outcome)
        elif label == "zone_states" and method == "change":
            zones = self._state.stores.zone_names
            before, after = (each.in_sync(zones).bit_count() for each in arguments)
            expect(after >= min(len(zones) // 2 + 1, before), f"{after} of {len(zones)} zones are left in sync")
            self._check_caught_up(arguments[0], arguments[1].in_sync(zones) & ~arguments[0].in_sync(zones))
            self.in_sync.append((self._state.scheduler.now_ms, arguments[1].in_sync(zones)))

    def _observe_zone(self, label: str, method: str, arguments: tuple[Any, ...]) -> None:
        if method == "upload":
            self.log.bodies.setdefault(arguments[0], b"".join(arguments[1]))
            self.removals.stored(label, arguments[0])
        elif method == "put_expiring":
            self.log.bodies.setdefault(arguments[0], bytes(arguments[1]))
        elif method in ("put", "overwrite"):
            body = self.log.bodies.setdefault(arguments[0], bytes(arguments[1]))
            expect(body == arguments[1], f"other bytes are written to segment {arguments[0].hex()}")
            if label == "archive":  # compaction uploads its segments: these are the marks of a sweep
                self._marks_of_sweeps.add(arguments[0])
                return
            if label == "inline":
                self.removals.stored(label, arguments[0])
                return
            if self._state.zone(label.removeprefix("zone ")).segments[arguments[0]] == arguments[1]:
                self.destroyed.discard((label, arguments[0]))  # a put overwrites nothing, so another body stays
            self.removals.stored(label, arguments[0])
        elif method == "delete":
            for segment_id in arguments[0]:
                key = self.timers_waiting.get(segment_id)
                is_named = key is not None and label == "archive" and key.topic_id not in self.partitions_deleted
                expect(not is_named, f"segment {segment_id.hex()} was swept while a timer of {key} waits for it")
            self.removals.objects_deleted(label, [each for each in arguments[0] if each not in self._marks_of_sweeps])
            self.destroyed.difference_update((label, segment_id) for segment_id in arguments[0])

    def _observe_topics(self, method: str, arguments: tuple[Any, ...], outcome: Any) -> None:
        if isinstance(outcome, PenstockError):
            return
        if method == "begin":
            self.begun.add(arguments[0].topic_id)
        elif method == "create":
            self.topic_created(arguments[0])
        elif method == "give_up" and outcome:
            self.removals.topic_deleted(arguments[0].topic_id)
        elif method == "replace":
            self.removals.configured(arguments[1])
        elif method == "delete":
            self.partitions_deleted[arguments[0].topic_id] = arguments[0].partitions
            self.removals.topic_deleted(arguments[0].topic_id)
        elif method == "forget_deleted":
            self.removals.topic_forgotten(arguments[0])

    def _observe_timers(self, method: str, arguments: tuple[Any, ...], outcome: Any) -> None:
        if method == "put" and outcome == arguments[0]:
            self._marks_of_sweeps.discard(outcome.ref.segment_id)
            self.removals.stored("archive", outcome.ref.segment_id)
            self.timers_waiting[outcome.ref.segment_id] = outcome.key
            self._copies[outcome.key, outcome.place] = outcome.ref.segment_id
        elif method == "cancel" and outcome is not None:
            self.timers_waiting.pop(outcome.ref.segment_id, None)
        elif method == "promote" and outcome is DeliveryOutcome.DONE:
            self._promoted(arguments[0])

    def _promoted(self, delivery: Delivery) -> None:
        key, timers, now_ms = delivery.key, delivery.timers, delivery.now_ms
        head = self._state.stores.log.heads([key])[key]
        latest_ms = EPOCH_MS + self._state.scheduler.now_ms + CLOCK_SKEW_MS
        for index, timer in enumerate(timers):
            due_ms = timer.place.due_ms
            expect(due_ms <= now_ms <= latest_ms, f"timer {timer.place} of {key} was delivered early, at {now_ms}")
            behind = sum(each.ref.offset_span for each in timers[index + 1 :])
            at = replace(head, next_offset=Offset(head.next_offset - behind))
            self._appended(key, delivered_ref(timer, now_ms), at, 0)
            self.timers_waiting.pop(timer.ref.segment_id, None)
        if delivery.roll is not None:
            self._check_bits(key, self.log.check_index(key))

    def _observe_log(self, method: str, arguments: tuple[Any, ...], outcome: Any) -> None:
        if method == "append_mirrored":
            if outcome is not None and outcome.is_appended:
                self._mirrored(arguments[0], arguments[1], arguments[2], outcome.head)
        elif head := head_appended_to(method, outcome):
            self._appended(arguments[0], arguments[1], head, arguments[2])
        elif method == "shorten_tail":
            if outcome[0]:
                self._check_bits(arguments[0], self.log.check_index(arguments[0]))
        elif method == "mark_stored":
            self._marked(*arguments)
        elif method == "note_log_start":
            self.removals.noted(*arguments)
        elif method == "delete_page":
            self.removals.page_deleted(*arguments)
        elif method == "raise_log_start":
            key, offset = arguments
            self.removals.raised(key, offset)
            self.log_starts[key] = max(self.log_starts.get(key, 0), offset)
            expect(
                outcome.log_start_offset == self.log_starts[key] <= outcome.next_offset,
                f"log start of {key} is {outcome.log_start_offset} of {outcome.next_offset}, raised to {offset}",
            )

        elif method == "raise_passed" and outcome[0]:
            self.removals.passed(arguments[0], arguments[1])
            self.log_starts[arguments[0]] = arguments[1]

    def _mirrored(self, key: PartitionKey, append: MirrorAppend, owed: int, head: Head) -> None:
        for mark in append.marks:
            self.timers_waiting.pop(self._copies.get((key, mark.place), mark.ref.segment_id), None)
        for index, ref in enumerate(append.refs):
            behind = sum(each.offset_span for each in append.refs[index + 1 :])
            self._appended(key, ref, replace(head, next_offset=Offset(head.next_offset - behind)), owed)

    def _transacted(self, transaction: Transaction | Move) -> None:
        heads = self._state.stores.log.heads([*transaction.refs])
        for key, refs in transaction.refs.items():
            for index, ref in enumerate(refs):
                behind = sum(each.offset_span for each in refs[index + 1 :])
                head = replace(heads[key], next_offset=Offset(heads[key].next_offset - behind))
                self._appended(key, ref, head, transaction.unconfirmed.get(key, 0))

    def _appended(self, key: PartitionKey, ref: Ref, head: Head, owed: int) -> None:
        if ref.tier.is_item:
            self._state.count("inline append" if ref.tier is Tier.INLINE else "expiring append")
            is_there = bool(self._state.stores.inline.get_expiring([ref.segment_id]))
            expect(is_there, f"{key} names the item of segment {ref.segment_id.hex()}, which is not there")
        data = memoryview(self.log.bodies[ref.segment_id])[ref.position : ref.position + ref.length]
        values = tuple((record.value or b"").decode() for record in decode(data))
        if not ref.record_count:  # a mirror skips what its source has removed
            values = (MISSED,) * ref.offset_span
        base_offset = self.log.ends.get(key, 0)
        stores: Sequence[Any] = self._state.stores.zones  # in memory, so they show their segments
        stored_in = sum(
            1 << index
            for index, store in enumerate(stores)
            if ref.segment_id in store.segments or (f"zone {store.zone}", ref.segment_id) in self.destroyed
        )
        entry = Appended(
            base_offset=base_offset,
            values=values,
            ref=ref,
            stored_in=stored_in,
            owed=owed,
            at_ms=_counts_from(ref, self._state.scheduler.now_ms),
        )
        self.removals.appended(key, ref, entry.end_offset)
        is_dense = len(values) == ref.offset_span and ref.record_count in (0, ref.offset_span)
        expect(is_dense, f"ref of {key} spans {ref}, holds {len(values)}")
        expect(ref.zones & ~stored_in == 0, f"{ref} names zones that do not hold its segment: {stored_in:03b} do")
        expect(
            head.next_offset == base_offset + len(values),
            f"offsets of {key} are not dense: {base_offset} + {len(values)} records made {head.next_offset}",
        )
        self.log.append(key, entry)

    def begin_put(self, instance: str, label: str, segment_id: SegmentId) -> ObservedPut:
        """Note a put that an instance sends."""
        put = ObservedPut(segment_id=segment_id, begun_ms=self._state.scheduler.now_ms)
        self._puts.setdefault(instance, {}).setdefault(label, []).append(put)
        return put

    def given_up(self, segment_id: SegmentId, at_ms: float) -> int:
        """Return the zones in which the instance that put the segment had seen two puts fail by then.

        The service asks for two failures in a row. A put that was answered in time has not failed, even if
        a freeze kept its instance from reading the answer.
        """
        found = 0
        for by_zone in self._puts.values():
            if any(put.segment_id == segment_id for puts in by_zone.values() for put in puts):
                for index, store in enumerate(self._state.stores.zones):
                    puts = [put for put in by_zone.get(f"zone {store.zone}", ()) if put.begun_ms <= at_ms]
                    if sum(put.has_failed for put in puts) >= FAILED_PUTS_MAX:
                        found |= 1 << index
        return found

    def _check_caught_up(self, before: ZoneStates, zones: int) -> None:
        """Check that a zone that comes in sync again holds every segment that a ref names.

        Segments that it missed since it was let back are excused: they are repaired as in any other zone.
        """
        for index, store in enumerate(self._state.stores.zones):
            if zones & self._state.stores.regular_zones & 1 << index:  # a fallback holds what others missed
                self._state.count("zone in_sync again")
                since_ms = before.of(store.zone).since_ms - EPOCH_MS - CLOCK_SKEW_MS
                for key, located in self.log.all_refs():
                    if located.ref.tier is not Tier.ZONAL:
                        continue
                    appended = next(each for each in self.log.appends[key] if each.base_offset == located.base_offset)
                    if appended.owed >> index & 1 and appended.at_ms >= since_ms:
                        continue
                    segment_id = located.ref.segment_id
                    is_good = self._state.zone(store.zone).segments.get(segment_id) == self.log.bodies[segment_id]
                    expect(
                        is_good or (f"zone {store.zone}", segment_id) in self.destroyed,
                        f"zone {store.zone} came in sync without segment {segment_id.hex()} of {key}",
                    )

    def _marked(self, key: PartitionKey, marks: Mapping[LocatedRef, int]) -> None:
        for located, zones in marks.items():
            self._marked_ref(key, located, zones)

    def _marked_ref(self, key: PartitionKey, located: LocatedRef, zones: int) -> None:
        where = (key, int(located.base_offset))
        self.marked[where] = self.marked.get(where, 0) | zones
        segment_id = located.ref.segment_id
        for index, store in enumerate(self._state.stores.zones):
            is_good = self._state.zone(store.zone).segments.get(segment_id) == self.log.bodies[segment_id]
            expect(
                not zones >> index & 1
                or is_good
                or (f"zone {store.zone}", segment_id) in self.destroyed
                or (f"zone {store.zone}", segment_id) in self.removals.swept,
                f"segment {segment_id.hex()} was marked as stored in zone {store.zone}, which has no good copy",
            )

    def _check_bits(self, key: PartitionKey, refs: Sequence[LocatedRef]) -> None:
        """Check that a roll has kept the bits that repairs have set."""
        for located in refs:
            bits = self.marked.get((key, int(located.base_offset)), 0)
            expect(
                located.ref.tier is not Tier.ZONAL or bits & ~located.ref.zones == 0,
                f"{key} at {located.base_offset} was marked {bits:03b}, and names {located.ref.zones:03b}",
            )

    def was_in_sync(self, zones: int, since_ms: float, until_ms: float) -> bool:
        """Return whether at some moment no zones but these were in sync."""
        ends = [at_ms for at_ms, _ in self.in_sync[1:]] + [float("inf")]
        return any(
            in_sync & self._state.stores.regular_zones & ~zones == 0 and at_ms <= until_ms and end_ms >= since_ms
            for (at_ms, in_sync), end_ms in zip(self.in_sync, ends, strict=True)
        )


def head_appended_to(method: str, outcome: Any) -> Head | None:
    """Return the head after a call that appended to it, or None after any other call."""
    if isinstance(outcome, PenstockError):
        return None
    if isinstance(outcome, HeadAppend) and outcome.is_appended:
        assert method in ("append", "append_in_sequence")
        return outcome.head
    return None


def _counts_from(ref: Ref, now_ms: float) -> float:
    """When retention begins to count: for what a mirror repeats, at the append to its source."""
    is_mirrored = ref.appended_ms is not None and not ref.is_delayed
    return min(now_ms, ref.appended_ms - EPOCH_MS) if is_mirrored and ref.appended_ms is not None else now_ms
