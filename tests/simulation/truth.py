"""What really happened at the stores, seen at each call's effect, and the invariants that every effect must keep.

Owns the log as it must be: for each partition the records in order, each with the ref that brought it.
"""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from penstock_broker.broker import PUT_TIMEOUT_MS
from penstock_broker.zone_health import FAILURES_MAX
from penstock_core.errors import PenstockError
from penstock_core.ids import Offset, SegmentId, TopicId
from penstock_core.index import Head
from penstock_core.keys import PartitionKey
from penstock_core.records import decode
from penstock_core.ref import LocatedRef, Ref, Tier
from penstock_core.topic import Topic
from penstock_core.transaction import Transaction
from penstock_core.zone_state import ZoneStates
from tests.simulation.cleanings import Cleanings
from tests.simulation.instance import CLOCK_SKEW_MS, EPOCH_MS
from tests.simulation.merges import Merges
from tests.simulation.removals import Removals
from tests.simulation.violation import expect

if TYPE_CHECKING:
    from tests.simulation.world import World


@dataclass(frozen=True, slots=True, kw_only=True)
class Appended:
    """One append that took effect; `stored_in` are the zones that really held its segment then."""

    base_offset: int
    values: tuple[str, ...]
    ref: Ref
    stored_in: int
    owed: int  # zones that take writes and had not confirmed it, as its writer knew
    at_ms: float

    @property
    def end_offset(self) -> int:
        return self.base_offset + len(self.values)


@dataclass(slots=True, kw_only=True)
class PutSeen:
    """One put to a zone, as the function instance that made it saw it."""

    segment_id: SegmentId
    begun_ms: float
    confirmed_ms: float | None = None

    @property
    def has_failed(self) -> bool:
        return self.confirmed_ms is None or self.confirmed_ms - self.begun_ms >= PUT_TIMEOUT_MS


class Truth:
    """Ground truth of one run."""

    def __init__(self, world: "World") -> None:
        self._world = world
        self.appends: dict[PartitionKey, list[Appended]] = {}
        self.ends: dict[PartitionKey, int] = {}
        self.places: dict[str, list[tuple[PartitionKey, int, Appended]]] = {}
        self.log_starts: dict[PartitionKey, int] = {}
        self.names: dict[TopicId, str] = {}
        self.deleted_at_ms: dict[TopicId, float] = {}  # when its deletion was confirmed
        self.partitions_deleted: dict[TopicId, int] = {}
        self.begun: set[TopicId] = set()  # topics whose creation has begun, whatever became of it
        self.in_sync: list[tuple[float, int]] = [(0.0, (1 << len(world.stores.zones)) - 1)]  # from when on, which zones
        self.destroyed: set[tuple[str, SegmentId]] = set()  # copies that the simulation itself took or spoilt
        self.marked: dict[tuple[PartitionKey, int], int] = {}  # zones that refs were marked with, a roll may lose them
        self.removals = Removals(world)
        self.merges = Merges(world)
        self.cleanings = Cleanings(world)
        self._bodies: dict[SegmentId, bytes] = {}
        self._puts: dict[str, dict[str, list[PutSeen]]] = {}  # by function instance and zone, as they began

    def topic_created(self, topic: Topic) -> None:
        self.names[topic.topic_id] = topic.name
        self.removals.configured(topic)

    def observe(self, label: str, method: str, arguments: tuple[Any, ...], outcome: Any) -> None:
        """Take note of one effect and check what it must keep."""
        if isinstance(outcome, PenstockError):
            return
        if label.startswith("zone ") or label == "archive":
            self._observe_zone(label, method, arguments)
        elif label == "compaction" and method == "swap" and outcome:
            self.merges.swapped(*arguments)
        elif label == "log":
            self._observe_log(method, arguments, outcome)
        elif label == "transactions" and method == "commit" and outcome:
            self._transacted(arguments[0])
        elif label == "topics":
            self._observe_topics(method, arguments, outcome)
        elif label == "zone_states" and method == "change":
            zones = self._world.stores.zone_names
            before, after = (each.in_sync(zones).bit_count() for each in arguments)
            expect(after >= min(len(zones) // 2 + 1, before), f"{after} of {len(zones)} zones are left in sync")
            self._check_caught_up(arguments[0], arguments[1].in_sync(zones) & ~arguments[0].in_sync(zones))
            self.in_sync.append((self._world.scheduler.now_ms, arguments[1].in_sync(zones)))

    def _observe_zone(self, label: str, method: str, arguments: tuple[Any, ...]) -> None:
        if method == "upload":
            self._bodies.setdefault(arguments[0], b"".join(arguments[1]))
            self.removals.stored(label, arguments[0])
        elif method in ("put", "overwrite"):
            body = self._bodies.setdefault(arguments[0], bytes(arguments[1]))
            expect(body == arguments[1], f"other bytes are written to segment {arguments[0].hex()}")
            if self._world.zone(label.removeprefix("zone ")).segments[arguments[0]] == arguments[1]:
                self.destroyed.discard((label, arguments[0]))  # else what is there stays: a put overwrites nothing
            self.removals.stored(label, arguments[0])
        elif method == "delete":
            self.removals.objects_deleted(label, arguments[0])
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

    def _observe_log(self, method: str, arguments: tuple[Any, ...], outcome: Any) -> None:
        if head := head_appended_to(method, outcome):
            self._appended(arguments[0], arguments[1], head, arguments[2])
        elif method == "roll":
            if outcome:
                self.check_index(arguments[0])
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

    def _transacted(self, transaction: Transaction) -> None:
        heads = self._world.stores.log.heads([*transaction.refs])
        for key, refs in transaction.refs.items():
            for index, ref in enumerate(refs):
                behind = sum(each.offset_span for each in refs[index + 1 :])
                head = replace(heads[key], next_offset=Offset(heads[key].next_offset - behind))
                self._appended(key, ref, head, transaction.unconfirmed.get(key, 0))

    def newest_values(self, transaction: Transaction) -> list[str]:
        """What a transaction that was committed just now has written."""
        newest = [self.appends[key][-len(refs) :] for key, refs in transaction.refs.items()]
        return [value for appends in newest for each in appends for value in each.values]

    def _appended(self, key: PartitionKey, ref: Ref, head: Head, owed: int) -> None:
        values = tuple(
            (record.value or b"").decode()
            for record in decode(memoryview(self._bodies[ref.segment_id])[ref.position : ref.position + ref.length])
        )
        base_offset = self.ends.get(key, 0)
        stores = self._world.stores.zones
        stored_in = sum(
            1 << index
            for index, store in enumerate(stores)
            if ref.segment_id in store.segments or (f"zone {store.zone}", ref.segment_id) in self.destroyed  # type: ignore[attr-defined]
        )
        entry = Appended(
            base_offset=base_offset,
            values=values,
            ref=ref,
            stored_in=stored_in,
            owed=owed,
            at_ms=self._world.scheduler.now_ms,
        )
        self.removals.appended(key, ref, entry.end_offset)
        expect(len(values) == ref.offset_span == ref.record_count, f"ref of {key} spans {ref}, holds {len(values)}")
        expect(ref.zones & ~stored_in == 0, f"{ref} names zones that do not hold its segment: {stored_in:03b} do")
        expect(
            head.next_offset == base_offset + len(values),
            f"offsets of {key} are not dense: {base_offset} + {len(values)} records made {head.next_offset}",
        )
        self.ends[key] = head.next_offset
        self.appends.setdefault(key, []).append(entry)
        for index, value in enumerate(values):
            self.places.setdefault(value, []).append((key, base_offset + index, entry))

    def begin_put(self, instance: str, label: str, segment_id: SegmentId) -> PutSeen:
        """Take note of a put that an instance sends."""
        seen = PutSeen(segment_id=segment_id, begun_ms=self._world.scheduler.now_ms)
        self._puts.setdefault(instance, {}).setdefault(label, []).append(seen)
        return seen

    def given_up(self, segment_id: SegmentId, at_ms: float) -> int:
        """The zones of which the instance that put the segment had seen two puts fail by then. In a row, says the
        service: as they ended, which may be long after the requests that they were for."""
        found = 0
        for by_zone in self._puts.values():
            if any(put.segment_id == segment_id for puts in by_zone.values() for put in puts):
                for index, store in enumerate(self._world.stores.zones):
                    puts = [put for put in by_zone.get(f"zone {store.zone}", ()) if put.begun_ms <= at_ms]
                    if sum(put.has_failed for put in puts) >= FAILURES_MAX:
                        found |= 1 << index
        return found

    def _check_caught_up(self, before: ZoneStates, zones: int) -> None:
        """A zone that comes in sync again holds every segment that a ref names, but for those that it missed since it
        was let back: these are repaired like those of any other zone."""
        for index, store in enumerate(self._world.stores.zones):
            if zones >> index & 1:
                self._world.count("zone in_sync again")
                since_ms = before.of(store.zone).since_ms - EPOCH_MS - CLOCK_SKEW_MS
                for key, located in self.all_refs():
                    if located.ref.tier is Tier.ARCHIVE:
                        continue
                    appended = next(each for each in self.appends[key] if each.base_offset == located.base_offset)
                    if appended.owed >> index & 1 and appended.at_ms >= since_ms:
                        continue
                    segment_id = located.ref.segment_id
                    is_good = self._world.zone(store.zone).segments.get(segment_id) == self._bodies[segment_id]
                    expect(
                        is_good or (f"zone {store.zone}", segment_id) in self.destroyed,
                        f"zone {store.zone} came in sync without segment {segment_id.hex()} of {key}",
                    )

    def _marked(self, key: PartitionKey, located: LocatedRef, zones: int) -> None:
        where = (key, int(located.base_offset))
        self.marked[where] = self.marked.get(where, 0) | zones
        segment_id = located.ref.segment_id
        for index, store in enumerate(self._world.stores.zones):
            is_good = self._world.zone(store.zone).segments.get(segment_id) == self._bodies[segment_id]
            expect(
                not zones >> index & 1
                or is_good
                or (f"zone {store.zone}", segment_id) in self.destroyed
                or (f"zone {store.zone}", segment_id) in self.removals.swept,
                f"segment {segment_id.hex()} was marked as stored in zone {store.zone}, which has no good copy",
            )

    def all_refs(self) -> list[tuple[PartitionKey, LocatedRef]]:
        """The refs of every partition that exists, from its log start on: what lies below may be gone."""
        topics = self._world.stores.topics.list()
        keys = [PartitionKey(topic.topic_id, partition) for topic in topics for partition in topic.all_partitions()]
        return [
            (key, located)
            for key, head in self._world.stores.log.heads(keys).items()
            for located in self.check_index(key)
            if located.end_offset > head.log_start_offset
        ]

    def check_index(self, key: PartitionKey) -> list[LocatedRef]:
        """Pages and tail cover the log from its start on without gap, and name what was appended; the refs."""
        log = self._world.stores.log
        head = log.heads([key])[key]
        pages = log.pages(key, Offset(0), 1_000_000)
        end = pages[0].base_offset if pages else head.tail_base
        expect(end <= head.log_start_offset, f"index of {key} begins at {end}, its log at {head.log_start_offset}")
        for page in pages:
            expect(page.base_offset == end, f"index of {key}: a page begins at {page.base_offset} where {end} ended")
            end = page.end_offset
        expect(end == head.tail_base, f"index of {key}: its pages end at {end}, its tail begins at {head.tail_base}")
        located = [each for page in pages for each in page.located()] + list(head.located_tail())
        end = located[-1].end_offset if located else head.tail_base
        expect(end == head.next_offset == self.ends.get(key, 0), f"index of {key}: {end} of {head.next_offset} covered")
        named = {place_of(each) for each in located}
        appended = {
            (each.base_offset, each.ref.segment_id, each.ref.position, each.ref.length)
            for each in self.appends.get(key, ())
        }
        strange = named - appended - self.merges.places(key)
        expect(not strange, f"index of {key} names refs that were neither appended nor merged: {strange}")
        return located

    def body_of(self, segment_id: SegmentId) -> bytes:
        """What was put under this id."""
        return self._bodies[segment_id]

    def value_at(self, topic: str, partition: int, offset: int, value: str) -> bool:
        """Whether this record was ever appended there."""
        return any(
            self.names.get(key.topic_id) == topic and key.partition == partition and at == offset
            for key, at, _ in self.places.get(value, ())
        )

    def was_in_sync(self, zones: int, since_ms: float, until_ms: float) -> bool:
        """Whether there was a moment when no other zones than these were in sync."""
        ends = [at_ms for at_ms, _ in self.in_sync[1:]] + [float("inf")]
        return any(
            in_sync & ~zones == 0 and at_ms <= until_ms and end_ms >= since_ms
            for (at_ms, in_sync), end_ms in zip(self.in_sync, ends, strict=True)
        )


def place_of(located: LocatedRef) -> tuple[int, SegmentId, int, int]:
    """What tells a ref from every other of its partition."""
    return located.base_offset, located.ref.segment_id, located.ref.position, located.ref.length


def head_appended_to(method: str, outcome: Any) -> Head | None:
    """The head after a call of the log that appended to it, else None."""
    if isinstance(outcome, PenstockError):
        return None
    if method == "append_in_sequence":
        is_appended, head = outcome
        return head if is_appended else None
    return outcome if method == "append" else None
