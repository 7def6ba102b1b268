"""The log as it must be: for each partition the records in order, each with the ref that brought it."""

from dataclasses import dataclass

from penstock_core.ids import Offset, PartitionKey, SegmentId, TopicId
from penstock_core.log.ref import LocatedRef, Ref
from penstock_core.transaction import Transaction
from penstock_service.stores import Stores
from tests.simulation.oracle.violation import expect

Place = tuple[int, SegmentId, int, int]
MISSED = "\0missed"  # the value of an offset that a mirror has without its record


@dataclass(frozen=True, slots=True, kw_only=True)
class Appended:
    """One append that took effect. `stored_in` are the zones that really held its segment then."""

    base_offset: int
    values: tuple[str, ...]
    ref: Ref
    stored_in: int
    owed: int  # zones that take writes and had not confirmed it, by the knowledge of its writer
    at_ms: float

    @property
    def end_offset(self) -> int:
        return self.base_offset + len(self.values)


class ExpectedLog:
    """All appends of one run, and the check that the stored index agrees with them."""

    def __init__(self, stores: Stores) -> None:
        self._stores = stores
        self.topics_of_the_service: set[str] = set()  # the service appends to them, and no producer's claims hold there
        self.names: dict[TopicId, str] = {}
        self.appends: dict[PartitionKey, list[Appended]] = {}
        self.ends: dict[PartitionKey, int] = {}
        self.places: dict[str, list[tuple[PartitionKey, int, Appended]]] = {}  # of each value
        self.bodies: dict[SegmentId, bytes] = {}  # of each segment, as it was put
        self._merged_places: dict[PartitionKey, set[Place]] = {}
        self._merged_ends: dict[PartitionKey, set[int]] = {}

    def append(self, key: PartitionKey, entry: Appended) -> None:
        """Add one append, at the end of its partition."""
        self.ends[key] = entry.end_offset
        self.appends.setdefault(key, []).append(entry)
        if self.names.get(key.topic_id) in self.topics_of_the_service:
            return
        for offset, value in enumerate(entry.values, start=entry.base_offset):
            self.places.setdefault(value, []).append((key, offset, entry))

    def merge(self, key: PartitionKey, located: LocatedRef) -> None:
        """Add a ref that a swap of compaction made."""
        self._merged_places.setdefault(key, set()).add(place_of(located))
        self._merged_ends.setdefault(key, set()).add(located.end_offset)

    def is_merged_end(self, key: PartitionKey, offset: int) -> bool:
        """Return whether a merged ref has ever ended there."""
        return offset in self._merged_ends.get(key, ())

    def newest_values(self, transaction: Transaction) -> list[str]:
        """Return the values that the newest commit wrote, which is the commit of this transaction."""
        newest = [self.appends[key][-len(refs) :] for key, refs in transaction.refs.items()]
        return [value for appends in newest for each in appends for value in each.values]

    def all_refs(self) -> list[tuple[PartitionKey, LocatedRef]]:
        """Return the refs of every partition that exists, from its log start on. Refs below may be gone."""
        topics = self._stores.topics.list()
        keys = [PartitionKey(topic.topic_id, partition) for topic in topics for partition in topic.all_partitions()]
        return [
            (key, located)
            for key, head in self._stores.log.heads(keys).items()
            for located in self.check_index(key)
            if located.end_offset > head.log_start_offset
        ]

    def check_index(self, key: PartitionKey) -> list[LocatedRef]:
        """Check that pages and tail cover the log without a gap and name only what was appended. Return the refs."""
        log = self._stores.log
        head = log.heads([key])[key]
        # A roll may have put a page that is not yet visible, and may have put one again that retention had deleted.
        pages = [
            page
            for page in log.pages(key, Offset(0), 1_000_000)
            if head.log_start_offset < page.end_offset and page.base_offset < head.tail_base
        ]
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
        strange = named - appended - self._merged_places.get(key, set())
        expect(not strange, f"index of {key} names refs that were neither appended nor merged: {strange}")
        return located

    def values_in(self, topic: str, partition: int) -> list[tuple[int, str]]:
        """Return all records that were ever appended there, with their offsets."""
        return [
            (offset, value)
            for key, appends in self.appends.items()
            if self.names.get(key.topic_id) == topic and key.partition == partition
            for each in appends
            for offset, value in enumerate(each.values, start=each.base_offset)
        ]

    def value_at(self, topic: str, partition: int, offset: int, value: str) -> bool:
        """Return whether this record was ever appended there."""
        return any(
            self.names.get(key.topic_id) == topic and key.partition == partition and at == offset
            for key, at, _ in self.places.get(value, ())
        )


def place_of(located: LocatedRef) -> Place:
    """Return the fields that identify a ref within its partition."""
    return located.base_offset, located.ref.segment_id, located.ref.position, located.ref.length
