"""What compaction may exchange, held against what it does at each swap: the same records at the same offsets."""

from typing import TYPE_CHECKING

from penstock_core.compaction import Swap
from penstock_core.ids import SegmentId, TopicName
from penstock_core.keys import PartitionKey
from penstock_core.record_batch import stamp
from penstock_core.records import decode
from penstock_core.ref import LocatedRef, Tier
from tests.simulation.violation import expect

if TYPE_CHECKING:
    from tests.simulation.world import World

Place = tuple[int, SegmentId, int, int]


class Merges:
    """The refs that swaps have made in one run, and who held the lease."""

    def __init__(self, world: "World") -> None:
        self._world = world
        self._places: dict[PartitionKey, set[Place]] = {}
        self._ends: dict[PartitionKey, set[int]] = {}
        self._epochs: dict[PartitionKey, int] = {}

    def places(self, key: PartitionKey) -> set[Place]:
        return self._places.get(key, set())

    def is_end(self, key: PartitionKey, offset: int) -> bool:
        """Whether a merged ref has ever ended there."""
        return offset in self._ends.get(key, ())

    def swapped(self, key: PartitionKey, swap: Swap) -> None:
        """The new pages cover what the old ones did, with the same records, and the lease is the newest."""
        world = self._world
        world.count("pages exchanged")
        expect(swap.epoch >= self._epochs.get(key, 0), f"{key} was exchanged under epoch {swap.epoch} of its lease")
        self._epochs[key] = swap.epoch
        bounds = [(pages[0].base_offset, pages[-1].end_offset) for pages in (swap.old, swap.new)]
        expect(bounds[0] == bounds[1], f"pages of {key} cover {bounds[0]}, those that came for them {bounds[1]}")
        config = world.stores.topics.get(TopicName(world.truth.names[key.topic_id]))
        is_compacted = config is not None and config.config.is_compacted
        for located in (each for page in swap.new for each in page.located()):
            if not is_compacted:
                self._check_content(key, located)
            place = (located.base_offset, located.ref.segment_id, located.ref.position, located.ref.length)
            self._places.setdefault(key, set()).add(place)
            self._ends.setdefault(key, set()).add(located.end_offset)
            world.truth.removals.appended(key, located.ref, located.end_offset)
        for located in (each for page in swap.old for each in page.located()):
            world.truth.removals.retired(key, located)
        if key in world.stores.log.heads([key]):
            world.truth.check_index(key)
            if config is not None and is_compacted:
                refs = [each for page in swap.new for each in page.located()]
                world.truth.cleanings.swapped(key, refs, config.config.delete_retention_ms)

    def _check_content(self, key: PartitionKey, located: LocatedRef) -> None:
        truth, ref = self._world.truth, located.ref
        expect(ref.tier is Tier.ARCHIVE and ref.zones == 0, f"a merged ref of {key} is not of the archive: {ref}")
        data = bytearray(truth.body_of(ref.segment_id)[ref.position : ref.position + ref.length])
        end_offset = stamp(data, located.base_offset)
        expect(end_offset == located.end_offset, f"a merged ref of {key} says it ends at {located.end_offset}: {ref}")
        found = [(record.offset, (record.value or b"").decode()) for record in decode(data)]
        wanted = [
            (offset, value)
            for each in truth.appends[key]
            if each.base_offset < end_offset and each.end_offset > located.base_offset
            for offset, value in enumerate(each.values, start=each.base_offset)
            if located.base_offset <= offset < end_offset
        ]
        expect(found == wanted, f"a merged ref of {key} at {located.base_offset} holds {found}, not {wanted}")
        expect(ref.record_count == len(found), f"a merged ref of {key} counts {ref.record_count} of {len(found)}")
