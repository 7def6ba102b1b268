"""What compaction may remove from a topic of `cleanup_policy=compact`, held against what it does at each swap."""

from typing import TYPE_CHECKING

from penstock_core.keys import PartitionKey
from penstock_core.record_batch import stamp
from penstock_core.records import decode
from penstock_core.ref import LocatedRef, Tier
from tests.simulation.instance import CLOCK_SKEW_MS
from tests.simulation.violation import expect

if TYPE_CHECKING:
    from tests.simulation.world import World

Keyed = tuple[int, bytes | None, bytes | None]  # offset, key, value


class Cleanings:
    """The keyed records that were appended in one run, and which of them are gone since when."""

    def __init__(self, world: "World") -> None:
        self._world = world
        self._alone_ms: dict[tuple[PartitionKey, int], float] = {}  # tombstones with nothing left to delete, since when

    def swapped(self, key: PartitionKey, refs: list[LocatedRef], delete_retention_ms: int) -> None:
        """What is in the new refs was appended there, and what is not is superseded, or a tombstone that was alone."""
        appended = self.appended(key)
        newest = {record_key: offset for offset, record_key, _ in appended}
        found = {record for located in refs for record in self.records(located)}
        covered = [each for each in appended if refs[0].base_offset <= each[0] < refs[-1].end_offset]
        expect(found <= set(covered), f"merged refs of {key} hold records that were not appended there")
        now_ms = self._world.scheduler.now_ms
        for offset, record_key, value in covered:
            if (offset, record_key, value) in found or newest[record_key] > offset:
                continue
            self._world.count("tombstone removed")
            expect(value is None and record_key is not None, f"the newest record of {record_key!r} in {key} is gone")
            waited_ms = now_ms - self._alone_ms.get((key, offset), now_ms)
            is_due = waited_ms >= delete_retention_ms - 2 * CLOCK_SKEW_MS
            expect(is_due, f"the tombstone of {record_key!r} at {offset} of {key} went after {waited_ms} ms")
        self._note_alone(key, appended, newest)

    def appended(self, key: PartitionKey) -> list[Keyed]:
        """Every record that was ever appended to the partition."""
        truth = self._world.truth
        return [
            record
            for each in truth.appends.get(key, ())
            for record in self.records(LocatedRef(base_offset=each.base_offset, ref=each.ref))  # type: ignore[arg-type]
        ]

    def records(self, located: LocatedRef) -> list[Keyed]:
        """What a ref holds."""
        ref = located.ref
        data = bytearray(self._world.truth.body_of(ref.segment_id)[ref.position : ref.position + ref.length])
        stamp(data, located.base_offset)
        return [(record.offset, record.key, record.value) for record in decode(data)]

    def _note_alone(self, key: PartitionKey, appended: list[Keyed], newest: dict[bytes | None, int]) -> None:
        """A tombstone is alone once no older record of its key is left in any ref."""
        located = self._world.truth.check_index(key)
        left = {record for each in located if each.ref.tier is Tier.ARCHIVE for record in self.records(each)}
        left |= {record for each in located if each.ref.tier is Tier.ZONAL for record in self.records(each)}
        for offset, record_key, value in appended:
            if value is None and newest[record_key] == offset:
                is_alone = not any(other == record_key and at < offset for at, other, _ in left)
                if is_alone:
                    self._alone_ms.setdefault((key, offset), self._world.scheduler.now_ms)
