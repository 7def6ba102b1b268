"""The rules of a redrive, checked at every change of the hidden share group's items: nothing is lost or doubled (G11).

A move finishes exactly the dead letters whose records it appends. An update of its own finishes none, except those that
the log has lost. A dead letter is finished once.
"""

from collections import Counter
from typing import Any

from penstock_core.errors import PenstockError
from penstock_core.ids import Offset, TopicId
from penstock_core.records.codec import decode
from penstock_core.share.share_state import ShareKey, ShareState
from penstock_core.transaction import Move
from tests.simulation.oracle.share_entries import held_in
from tests.simulation.oracle.violation import expect
from tests.simulation.service.simulation import Simulation


class RedriveOracle:
    """Watches the hidden share group of one dead-letter topic."""

    def __init__(self, simulation: Simulation, topic_id: TopicId) -> None:
        self._simulation = simulation
        self._topic_id = topic_id
        self._states: dict[ShareKey, ShareState] = {}
        self._finished: set[tuple[ShareKey, int]] = set()
        simulation.storage.observers.append(self._observe)

    def check_end(self) -> None:
        """Check that each dead letter has been moved."""
        ends = {key: end for key, end in self._simulation.oracle.log.ends.items() if key.topic_id == self._topic_id}
        moved = {(key.partition_key, offset) for key, offset in self._finished}
        starts = self._simulation.oracle.log_starts  # what lies below has expired
        left = {(key, offset) for key, end in ends.items() for offset in range(starts.get(key, 0), end)} - moved
        expect(not left, f"dead letters were not moved: {sorted(left)}")

    def _observe(self, label: str, method: str, arguments: tuple[Any, ...], outcome: Any) -> None:
        if isinstance(outcome, PenstockError):
            return
        if label == "share" and method == "update" and outcome.is_applied and arguments[0].topic_id == self._topic_id:
            finished = self._live(arguments[0], self._changed(arguments[0], outcome.after))
            expect(not finished, f"{arguments[0]} has finished {finished}, and they were not moved")
        elif label == "transactions" and method == "move" and outcome.is_applied:
            for share in arguments[0].shares:
                if share.key.topic_id == self._topic_id:
                    after = self._simulation.stores.share.find_states([share.key])[share.key]
                    self._check_move(share.key, self._changed(share.key, after), arguments[0])

    def _changed(self, key: ShareKey, after: ShareState) -> set[int]:
        """The offsets that the change has finished."""
        before = self._states.get(key, ShareState(position=Offset(0)))
        self._states[key] = after
        finished = {*held_in(before), *range(before.position, after.position)} - held_in(after).keys()
        again = {(key, offset) for offset in finished} & self._finished
        expect(not again, f"dead letters are finished twice: {again}")
        self._finished |= {(key, offset) for offset in finished}
        return finished

    def _live(self, key: ShareKey, finished: set[int]) -> set[int]:
        """Those that the log still has."""
        log_start = self._simulation.oracle.log_starts.get(key.partition_key, 0)
        return {offset for offset in finished if offset >= log_start}

    def _check_move(self, key: ShareKey, finished: set[int], move: Move) -> None:
        log = self._simulation.oracle.log
        values = [value for entry in log.appends.get(key.partition_key, ()) for value in entry.values]
        appended = Counter(
            (record.value or b"").decode()
            for refs in move.refs.values()
            for ref in refs
            for record in decode(memoryview(log.bodies[ref.segment_id])[ref.position : ref.position + ref.length])
        )
        most = Counter(values[offset] for offset in finished)
        least = Counter(values[offset] for offset in self._live(key, finished))
        expect(least <= appended <= most, f"a redrive has finished {most}, and appended {appended}")
        self._simulation.count("share record redriven")
