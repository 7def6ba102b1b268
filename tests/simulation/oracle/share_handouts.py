"""How records may go from one entry of a share item to another: the checks of every change (G11).

- A record moves from one lock to another only after the first one's time, and its delivery counts.
- The records of an expired lock come again in small parts, and alone on their last delivery.
- With order by key, no record is locked while an earlier one of its key waits or is locked by another acquire.
"""

from collections.abc import Callable, Mapping, Sequence

from penstock_core.ids import LockId
from penstock_core.limits import SHARE_LOCKS_MAX, SHARE_SUSPECT_PARTS
from penstock_core.share.acknowledge import Acknowledgement, AckType
from penstock_core.share.share_group import ShareGroupConfig
from penstock_core.share.share_state import Lock, ShareKey, ShareState, Wait
from tests.simulation.engine.time_and_chance import CLOCK_SKEW_MS, EPOCH_MS
from tests.simulation.oracle.share_entries import Held, covers, held_in, nonce_of
from tests.simulation.oracle.violation import expect
from tests.simulation.service.simulation import Simulation

Sent = Mapping[LockId, Sequence[Acknowledgement]]
"""The acknowledgements that workers have sent, by lock."""


class ShareHandOuts:
    """The checks of one share group. `order_key_of` tells the key of the record at an offset."""

    def __init__(
        self, simulation: Simulation, config: ShareGroupConfig, order_key_of: Callable[[ShareKey, int], str | None]
    ) -> None:
        self._simulation = simulation
        self._config = config
        self._order_key_of = order_key_of

    def check(self, key: ShareKey, sent: Sent, before: ShareState, after: ShareState) -> None:
        """Check each record that is in an entry after the change."""
        old, new = held_in(before), held_in(after)
        for offset, held in new.items():
            was = old.get(offset)
            if was is not None and was != held:
                self._moved(key, sent, offset, was, held)
        self._check_suspects(key, sent, before, after, old)
        if self._config.is_by_key:
            self._check_order(key, after, new)

    def _moved(self, key: ShareKey, sent: Sent, offset: int, was: Held, held: Held) -> None:
        """Check that a record may go from one entry to another."""
        where, counts = f"offset {offset} of {key}", (was.entry.deliveries, held.entry.deliveries)
        if held.lock_id is not None and held.lock_id != was.lock_id:
            self._simulation.count("share record handed out again")
            ends_ms = was.entry.until_ms if isinstance(was.entry, Lock) else was.entry.available_ms
            # One update may give a record back and hand it out again, uncounted if it stood behind one of its key.
            released = was.lock_id is not None and self._gave_back(sent, was, was.lock_id, offset)
            expect(
                released or self.is_past(ends_ms),
                f"{where} is locked by {held.lock_id} before {was.lock_id} has ended",
            )
            is_counted = counts[1] == counts[0] + 1 or (released and counts[1] == counts[0])
            expect(is_counted, f"{where} is handed out with {counts[1]} deliveries after {counts[0]}")
            most = self._config.deliveries_max
            expect(most is None or counts[1] <= most, f"{where} is handed out for the {counts[1]}th time of {most}")
            expect(
                not (isinstance(was.entry, Wait) and was.entry.is_rejected),
                f"{where} was rejected, and is handed out again",
            )
        elif was.lock_id is not None and held.lock_id is None:
            is_counted = counts[1] == counts[0]
            # What an acquire could not hand over goes back uncounted, and what follows a record of its key.
            expect(is_counted or counts[1] == counts[0] - 1, f"{where} came back with {counts[1]} of {counts[0]}")
            wait = held.entry
            assert isinstance(wait, Wait)
            acknowledgements = sent.get(was.lock_id, ())
            expect(
                not wait.is_rejected
                or any(each.type is AckType.REJECT and covers(each, was, offset) for each in acknowledgements),
                f"{where} counts as rejected, and nobody has rejected it",
            )
        elif was.lock_id is None and held.lock_id is None:
            expect(counts[0] == counts[1], f"{where} waits with {counts[1]} deliveries after {counts[0]}")

    def _gave_back(self, sent: Sent, was: Held, lock_id: LockId, offset: int) -> bool:
        """True if a worker has released the record, or with order by key perhaps one before it."""
        names = self._released_with(sent, lock_id)
        return any(
            each.type is AckType.RELEASE and (self._config.is_by_key or covers(each, was, offset))
            for name in names
            for each in sent.get(name, ())
        )

    def _released_with(self, sent: Sent, lock_id: LockId) -> list[LockId]:
        """The locks whose release may give back records of this one: with order by key, all of the same acquire."""
        return [name for name in sent if nonce_of(name) == nonce_of(lock_id)] if self._config.is_by_key else [lock_id]

    def _check_suspects(
        self, key: ShareKey, sent: Sent, before: ShareState, after: ShareState, old: Mapping[int, Held]
    ) -> None:
        """Check that records of an expired lock come again in small parts, and alone on their last delivery."""
        new = {name: lock for name, lock in after.locks.items() if name not in before.locks}
        for name, lock in new.items():
            sources = {was.lock_id for offset in lock.held.offsets() if (was := old.get(offset)) is not None}
            suspects = [
                before.locks[each]
                for each in sources
                if each is not None
                and not any(
                    ack.type is AckType.RELEASE
                    for name in self._released_with(sent, each)
                    for ack in sent.get(name, ())
                )
            ]
            is_last = lock.deliveries == self._config.deliveries_max
            for suspect in suspects:
                part = 1 if is_last else -(-suspect.records.count // SHARE_SUSPECT_PARTS)
                expect(
                    lock.records.count <= part or len(before.locks) >= SHARE_LOCKS_MAX,
                    f"lock {name} of {key} has {lock.records.count} records of a suspect with {suspect.records.count}",
                )
                expect(
                    not is_last or len(new) == 1,
                    f"lock {name} of {key} has a suspect on its last delivery, and is not alone: {sorted(new)}",
                )

    def _check_order(self, key: ShareKey, after: ShareState, held: Mapping[int, Held]) -> None:
        first: dict[str, Held] = {}
        log_start = self._simulation.oracle.log_starts.get(key.partition_key, 0)
        for offset in sorted(each for each in held if each >= log_start):  # those below have expired
            record_key, mine = self._order_key_of(key, offset), held[offset]
            if record_key is None or self._is_terminal(mine.entry):
                continue
            ahead = first.setdefault(record_key, mine)
            expect(
                mine.lock_id is None
                or (ahead.lock_id is not None and nonce_of(ahead.lock_id) == nonce_of(mine.lock_id)),
                f"offset {offset} of {key} is locked by {mine.lock_id}, and an earlier one of its key is not finished",
            )

    def _is_terminal(self, entry: Lock | Wait) -> bool:
        return isinstance(entry, Wait) and entry.is_terminal

    def is_past(self, time_ms: int) -> bool:
        """True if the time may be over by some instance's clock."""
        return time_ms <= EPOCH_MS + self._simulation.scheduler.now_ms + CLOCK_SKEW_MS
