"""Keeps a consumer's locks: renews them, gives records back, acknowledges, and tells of locks that are lost.

It decides and does no I/O. share_core.py sends what it has queued.
"""

import logging
from collections.abc import Iterable, Sequence

from penstock.model.share import ShareRecord
from penstock.retry import NEVER_MS
from penstock.share.acknowledgements import (
    ACCEPT,
    GIVE_BACK,
    LOCKED_UP,
    RELEASE,
    Acknowledgement,
    AcknowledgementQueue,
    Refusal,
    Verb,
    Wish,
    next_lock_ids,
    refusals,
    reject,
)
from penstock.share.acquire_call import ShareAnswer, ShareCall
from penstock.share.held_locks import AcquiredLock, HeldLock, HeldLocks, Moment, key_of
from penstock_core.limits import (
    SDK_SHARE_ENTRIES_MAX,
    SDK_SHARE_GIVE_BACK_MS,
    SDK_SHARE_LINGER_MS,
    SDK_SHARE_LINGER_PART_MS,
)
from penstock_core.records.expiry import expires_at_ms

_log = logging.getLogger("penstock.share")

_LOST_REMEMBERED_MAX = 10_000  # records of which a late acknowledgement is told that their locks were lost


class Keeper:
    """`lock_ms` is what the consumer asks for, None for the group's. `lost` are records to tell the application of."""

    def __init__(self, *, lock_ms: int | None, hold_ms_max: int) -> None:
        self.locks = HeldLocks(hold_ms_max)
        self.queue = AcknowledgementQueue()
        self.lost: list[ShareRecord] = []
        self.lost_count = 0
        self.skipped_batches = 0
        self._lost_places: dict[tuple[str, int, int, str], None] = {}
        self._wanted_ms = lock_ms
        self._lock_ms = lock_ms or 0  # what the service said last
        self._moved_ms = NEVER_MS  # when a record was handed out or came in

    def acquired(self, answer: ShareAnswer, now: Moment) -> int:
        """Take the locks of an answer. Returns how many records are new."""
        self._lock_ms = int(answer.document["lock_ms"])
        self.locks.is_by_key = answer.document.get("ordering") == "key"
        before = self.locks.at_hand
        for lock in answer.locks:
            if self.locks.get(lock.key) is None:
                self.locks.add(lock)
                self._pass_over(lock, now)
            else:
                self.locks.add(lock)
        self._moved_ms = now.monotonic_ms
        return self.locks.at_hand - before

    def take(self, most: int, now: Moment, *, is_one_per_key: bool = False) -> list[ShareRecord]:
        """Hand out up to `most` records, as `HeldLocks.take`. Those that have expired at hand go back (`_is_over`)."""
        taken: list[ShareRecord] = []
        while found := self.locks.take(most - len(taken), now, is_one_per_key=is_one_per_key):
            self._moved_ms = now.monotonic_ms
            over = [record for record in found if record.headers and self._is_over(record, now)]
            taken += found if not over else [record for record in found if record not in over]
            for record in over:
                self.acknowledge(record, GIVE_BACK, now)
            if not over:
                break
        return taken

    def _is_over(self, record: ShareRecord, now: Moment) -> bool:
        """True if the time of the record has ended since its acquire was sent: the service finishes it then.

        A record that was over before is handed out. The service has decided so: its clock is another one, or the batch
        has no flag, and it would come again for ever.
        """
        lock, over_ms = self.locks.get(key_of(record)), expires_at_ms(record.headers)
        return lock is not None and over_ms is not None and lock.since.wall_ms < over_ms <= now.wall_ms

    def acknowledge(self, record: ShareRecord, wish: Wish, now: Moment) -> bool:
        """Queue what the application decided. False if the record is not in hand."""
        if wish.verb is Verb.RENEW:
            lock = self.locks.get(key_of(record))
            if lock is None or record.offset not in lock.in_hand:
                return False
            self._renew(lock, now)
            return True
        lock = self.locks.put_aside(record)
        if lock is None:
            return False
        if wish.verb is Verb.RELEASE:
            self.locks.drop_behind(record)
        self._queue(lock, wish, [record.offset], now)
        return True

    def give_back(self, now: Moment) -> None:
        """Release all records that no handler has begun with."""
        for lock in self.locks:
            self._give_back(lock, now)

    def look(self, now: Moment) -> None:
        """Do what is due: renew locks, tell of those that have ended, give records back."""
        if self.locks.at_hand and now.monotonic_ms >= self._moved_ms + SDK_SHARE_GIVE_BACK_MS:
            self.give_back(now)
        for lock in self.locks:
            if not lock.has_ended and lock.ends.has_come(now):
                lock.has_ended = True
                self._give_back(lock, now)
                self._tell(lock, [each for offset, each in lock.in_hand.items() if offset not in lock.told])
            if not lock.is_renewing and lock.renew_from.has_come(now):
                self._give_back(lock, now)
                lock.is_renewing = True  # until it is renewed, or the call has failed
                if self.locks.may_renew(lock, now):
                    self._renew(lock, now)

    def next_look_ms(self) -> int:
        """The next time at which `look` has something to do, by the monotonic clock."""
        idle_ms = self._moved_ms + SDK_SHARE_GIVE_BACK_MS if self.locks.at_hand else NEVER_MS
        return min(self.locks.due_ms(), idle_ms)

    def entries(self, now: Moment) -> tuple[Acknowledgement, ...]:
        """The entries for a request to carry."""
        return self.queue.take(SDK_SHARE_ENTRIES_MAX, now.monotonic_ms, self.locks.lock_id_of)

    def answered(self, call: ShareCall, answer: ShareAnswer) -> None:
        """The service has answered a request with acknowledgements."""
        acknowledged = answer.document.get("acknowledged") or ()
        for key, lock_id in next_lock_ids(acknowledged, call.entries):
            self.locks.rename(key, lock_id)
        for entry, refused in refusals(acknowledged, call.entries):
            self._settle(entry, refused, call)

    def failed(self, call: ShareCall, *, again_ms: int) -> None:
        """The request has failed: its acknowledgements go again with a later one."""
        self.queue.put_back(call.entries, again_ms=again_ms)
        for entry in call.entries:
            lock = self.locks.get(entry.key)
            if lock is not None and entry.wish.verb is Verb.RENEW:
                lock.is_renewing = False
                lock.renew_from = call.sent_last.later(max(0, again_ms - call.sent_last.monotonic_ms))

    def take_lost(self) -> list[ShareRecord]:
        """The records to tell the application of, once."""
        lost, self.lost = self.lost, []
        return lost

    def follow(self, before: "Keeper", in_hand: Sequence[ShareRecord]) -> None:
        """Go on for the keeper of another stage. The application had these of its records, and learns that here."""
        self.lost_count, self.skipped_batches = before.lost_count, before.skipped_batches
        self._lost_places = before._lost_places
        self._note(in_hand)

    def was_lost(self, record: ShareRecord) -> bool:
        """The record's lock was lost lately."""
        return _place(record) in self._lost_places

    def _settle(self, entry: Acknowledgement, refused: Sequence[Refusal], call: ShareCall) -> None:
        lock = self.locks.get(entry.key)
        if lock is None:
            return
        gone: list[int] = []
        if entry.wish.verb is Verb.RENEW:
            gone = [offset for offset in lock.in_hand if any(each.covers(offset) for each in refused)]
            if not refused or len(gone) < len(lock.in_hand):
                lock.renew(call.sent, self._wanted_ms or self._lock_ms)
        elif not entry.wish.is_uncounted:  # nobody has worked on those
            lost = [each for each in refused if not each.is_done]
            gone = [offset for offset in entry.offsets if any(each.covers(offset) for each in lost)]
        for each in refused:
            _log.debug("%s of %s[%d]: %s", each.result, entry.key.topic, entry.key.partition, each.message)
        self._note(self.locks.lose(lock, gone))
        if entry.wish.verb is not Verb.RENEW:
            self.locks.answered(entry.key, entry.offsets)

    def _pass_over(self, lock: AcquiredLock, now: Moment) -> None:
        """Finish what the consumer cannot hand out: gaps in the log, and batches that no consumer can decode."""
        held = self.locks.get(lock.key)
        assert held is not None
        if lock.missing:
            self._queue(held, ACCEPT, lock.missing, now)
        if lock.left_out:
            self._queue(held, GIVE_BACK, lock.left_out, now)
        if lock.locked_up:
            self._queue(held, LOCKED_UP, lock.locked_up, now)
        if lock.unreadable:
            self.skipped_batches += 1
            _log.warning("rejected %d offsets of %s[%d]: %s", len(lock.unreadable), *lock.key[:2], lock.why_unreadable)
            self._queue(held, reject(f"undecodable: {lock.why_unreadable}"), lock.unreadable, now)

    def _renew(self, lock: HeldLock, now: Moment) -> None:
        lock.is_renewing = True
        self.queue.add(
            lock.key,
            Wish(Verb.RENEW, lock_ms=self._wanted_ms),
            lock.in_hand,
            lock_count=lock.count,
            due_ms=now.monotonic_ms,
        )

    def _give_back(self, lock: HeldLock, now: Moment) -> None:
        offsets = self.locks.give_back(lock)
        if offsets:
            self._queue(lock, GIVE_BACK, offsets, now)

    def _queue(self, lock: HeldLock, wish: Wish, offsets: Iterable[int], now: Moment) -> None:
        due_ms = now.monotonic_ms + self._linger_ms(lock, wish, now)
        self.queue.add(lock.key, wish, offsets, lock_count=lock.count, due_ms=due_ms)

    def _linger_ms(self, lock: HeldLock, wish: Wish, now: Moment) -> int:
        """The time that an acknowledgement waits for an acquire, or for the rest of its lock.

        What other consumers wait for goes at once. A release waits for its backoff anyway, a finished lock takes up a
        place in the partition, and with order by key an acceptance frees the next record of its key: these wait for a
        short time.
        """
        is_release = wish._replace(reason="") == RELEASE
        if wish != ACCEPT and not is_release:
            return 0
        if is_release or self.locks.is_by_key or not (lock.at_hand or lock.in_hand):
            return SDK_SHARE_LINGER_MS
        return min(SDK_SHARE_LINGER_PART_MS, max(0, lock.renew_from.monotonic_ms - now.monotonic_ms))

    def _tell(self, lock: HeldLock, records: Sequence[ShareRecord]) -> None:
        lock.told.update(record.offset for record in records)
        self._note(records)

    def _note(self, records: Sequence[ShareRecord]) -> None:
        if records:
            self.lost += records
            self.lost_count += len(records)
            self._lost_places.update((_place(record), None) for record in records)
            while len(self._lost_places) > _LOST_REMEMBERED_MAX:
                del self._lost_places[next(iter(self._lost_places))]
            _log.warning(
                "the locks of %d records are lost, the first is offset %d of %s[%d]: other consumers may have them",
                len(records),
                records[0].offset,
                records[0].topic,
                records[0].partition,
            )


def _place(record: ShareRecord) -> tuple[str, int, int, str]:
    return record.topic, record.partition, record.offset, record.lock_id
