"""The check of each swap of compaction, and of each move of a tail: the new refs hold the same records."""

from dataclasses import replace

from penstock_core.compaction.merging import Swap
from penstock_core.compaction.tail_move import TailMove
from penstock_core.ids import PartitionKey, TopicName
from penstock_core.log.ref import LocatedRef, Tier
from penstock_core.log.retention import written_ms
from penstock_core.records.codec import decode
from penstock_core.records.record_batch import stamp
from tests.simulation.engine.run_state import RunState
from tests.simulation.oracle.cleanings import Cleanings
from tests.simulation.oracle.expected_log import ExpectedLog
from tests.simulation.oracle.removals import Removals
from tests.simulation.oracle.violation import expect


class Merges:
    """The checks of swaps in one run, and the newest lease epoch of each partition."""

    def __init__(self, state: RunState, log: ExpectedLog, removals: Removals) -> None:
        self._state = state
        self._log = log
        self._removals = removals
        self.cleanings = Cleanings(state, log)
        self._epochs: dict[PartitionKey, int] = {}

    def leased(self, key: PartitionKey, epoch: int) -> None:
        """Note a lease. DynamoDB removes an item that nobody used for 90 days: the epochs begin anew then."""
        if epoch == 1:
            self._epochs.pop(key, None)

    def swapped(self, key: PartitionKey, swap: Swap) -> None:
        """Check that the new pages cover the old ones, with the same records, under the newest lease."""
        self._state.count("pages exchanged")
        expect(swap.epoch >= self._epochs.get(key, 0), f"{key} was exchanged under epoch {swap.epoch} of its lease")
        self._epochs[key] = swap.epoch
        bounds = [(pages[0].base_offset, pages[-1].end_offset) for pages in (swap.old, swap.new)]
        expect(bounds[0] == bounds[1], f"pages of {key} cover {bounds[0]}, those that came for them {bounds[1]}")
        config = self._state.stores.topics.get(TopicName(self._log.names[key.topic_id]))
        is_compacted = config is not None and config.config.is_compacted
        for located in (each for page in swap.new for each in page.located()):
            if not is_compacted:
                self._check_content(key, located)
            self._log.merge(key, located)
            self._removals.appended(key, located.ref, located.end_offset)
        for located in (each for page in swap.old for each in page.located()):
            self._removals.retired(key, located)
        if key in self._state.stores.log.heads([key]):
            self._log.check_index(key)
            if config is not None and is_compacted:
                refs = [each for page in swap.new for each in page.located()]
                self.cleanings.swapped(key, refs, config.config.delete_retention_ms)

    def tail_moved(self, key: PartitionKey, move: TailMove) -> None:
        """Check that the refs that came into the tail say what the old ones said, and name the same records."""
        self._state.count("tail moved")
        [head] = self._state.stores.log.heads([key]).values()
        there = dict(enumerate(head.located_tail()))
        expect(move.old.keys() <= there.keys(), f"refs at {[*move.old]} of {key} moved, of {len(there)} in its tail")
        for place, old in move.old.items():
            located = there[place]
            same = replace(
                located.ref,
                segment_id=old.segment_id,
                position=old.position,
                zones=old.zones,
                tier=old.tier,
                appended_ms=old.appended_ms,
            )
            expect(same == old, f"a moved ref of {key} says {located.ref}, and said {old}")
            expect(written_ms(located.ref) == written_ms(old), f"retention of {key} counts {located.ref} from the move")
            expect(old.tier is not Tier.ARCHIVE, f"a ref of {key} moved that lay in the archive: {old}")
            self._check_content(key, located)
            self._log.merge(key, located)
            self._removals.appended(key, located.ref, located.end_offset)
            self._removals.retired(key, LocatedRef(base_offset=located.base_offset, ref=old))
        self._log.check_index(key)

    def _check_content(self, key: PartitionKey, located: LocatedRef) -> None:
        ref = located.ref
        expect(ref.tier is Tier.ARCHIVE and ref.zones == 0, f"a merged ref of {key} is not of the archive: {ref}")
        data = bytearray(self._log.bodies[ref.segment_id][ref.position : ref.position + ref.length])
        end_offset = stamp(data, located.base_offset)
        expect(end_offset == located.end_offset, f"a merged ref of {key} says it ends at {located.end_offset}: {ref}")
        found = [(record.offset, (record.value or b"").decode()) for record in decode(data)]
        wanted = [
            (offset, value)
            for each in self._log.appends[key]
            if each.base_offset < end_offset and each.end_offset > located.base_offset
            for offset, value in enumerate(each.values, start=each.base_offset)
            if located.base_offset <= offset < end_offset
        ]
        expect(found == wanted, f"a merged ref of {key} at {located.base_offset} holds {found}, not {wanted}")
        expect(ref.record_count == len(found), f"a merged ref of {key} counts {ref.record_count} of {len(found)}")
