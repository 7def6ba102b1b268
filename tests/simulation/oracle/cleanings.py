"""The check of each swap in a topic of `cleanup_policy=compact`: compaction removes only what it may remove."""

from penstock_core.ids import PartitionKey
from penstock_core.log.ref import LocatedRef, Tier
from penstock_core.records.codec import decode
from penstock_core.records.record_batch import stamp
from tests.simulation.engine.run_state import RunState
from tests.simulation.engine.time_and_chance import CLOCK_SKEW_MS
from tests.simulation.oracle.expected_log import ExpectedLog
from tests.simulation.oracle.violation import expect

Keyed = tuple[int, bytes | None, bytes | None]  # offset, key, value


class Cleanings:
    """The checks of cleaning in one run, and since when each tombstone has nothing left to delete."""

    def __init__(self, state: RunState, log: ExpectedLog) -> None:
        self._state = state
        self._log = log
        self._alone_ms: dict[tuple[PartitionKey, int], float] = {}  # tombstones with nothing left to delete, since when

    def swapped(self, key: PartitionKey, refs: list[LocatedRef], delete_retention_ms: int) -> None:
        """Check that the new refs hold only records that were appended there.

        Each record that is missing must be superseded, or be a tombstone that was alone for `delete_retention_ms`.
        """
        appended = self.appended(key)
        newest = {record_key: offset for offset, record_key, _ in appended}
        found = {record for located in refs for record in self.records(located)}
        covered = [each for each in appended if refs[0].base_offset <= each[0] < refs[-1].end_offset]
        expect(found <= set(covered), f"merged refs of {key} hold records that were not appended there")
        now_ms = self._state.scheduler.now_ms
        for offset, record_key, value in covered:
            if (offset, record_key, value) in found or newest[record_key] > offset:
                continue
            self._state.count("tombstone removed")
            expect(value is None and record_key is not None, f"the newest record of {record_key!r} in {key} is gone")
            waited_ms = now_ms - self._alone_ms.get((key, offset), now_ms)
            is_due = waited_ms >= delete_retention_ms - 2 * CLOCK_SKEW_MS
            expect(is_due, f"the tombstone of {record_key!r} at {offset} of {key} went after {waited_ms} ms")
        self._note_alone(key, appended, newest)

    def appended(self, key: PartitionKey) -> list[Keyed]:
        """Return every record that was ever appended to the partition."""
        return [
            record
            for each in self._log.appends.get(key, ())
            for record in self.records(LocatedRef(base_offset=each.base_offset, ref=each.ref))  # type: ignore[arg-type]
        ]

    def records(self, located: LocatedRef) -> list[Keyed]:
        """Decode the records of a ref."""
        ref = located.ref
        data = bytearray(self._log.bodies[ref.segment_id][ref.position : ref.position + ref.length])
        stamp(data, located.base_offset)
        return [(record.offset, record.key, record.value) for record in decode(data)]

    def _note_alone(self, key: PartitionKey, appended: list[Keyed], newest: dict[bytes | None, int]) -> None:
        """Note the tombstones that are alone: no ref holds an older record of their key."""
        located = self._log.check_index(key)
        left = {record for each in located if each.ref.tier is Tier.ARCHIVE for record in self.records(each)}
        left |= {record for each in located if each.ref.tier is Tier.ZONAL for record in self.records(each)}
        for offset, record_key, value in appended:
            if value is None and newest[record_key] == offset:
                is_alone = not any(other == record_key and at < offset for at, other, _ in left)
                if is_alone:
                    self._alone_ms.setdefault((key, offset), self._state.scheduler.now_ms)
