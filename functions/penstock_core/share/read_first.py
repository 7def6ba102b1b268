"""The plan of an acquire that has read the fresh records before: with order by key, or with a filter.

It moves the position on condition that it is as it was read, and expects each entry that it changes. A filter finishes
the records that do not match: the position passes over them.

**Order by key.** While a record of a key is unfinished, later records of that key are not handed out. The exception is
`key_batch_max`: one acquire may take so many of a key, in order. Fresh records that must stay behind become a wait
without deliveries, so that the records of other keys behind them can go ahead. The next acquire looks at all unfinished
records in order of their offsets, and takes those that lead their key.

Every such acquire takes records that came back, too: it expects the position, so it meets the others anyway.

An old view is safe. The position is as it was read, so no record has become unfinished since, and a finished record
stays finished: no earlier record of a key can appear.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from penstock_core.ids import LockId, Offset
from penstock_core.limits import SHARE_SUSPECT_PARTS
from penstock_core.records.partitioner import murmur2
from penstock_core.share.acknowledge import Acknowledgement, acknowledge, locks_beside, take_behind
from penstock_core.share.acquire import (
    AcquirePlan,
    AcquireRequest,
    HandOut,
    LogBounds,
    drop_expired,
    fresh_room,
    put_suspects,
    remove_suspect,
    suspect_part,
    suspects,
)
from penstock_core.share.draft import Draft
from penstock_core.share.record_set import EMPTY, Ranges, RecordSet, normalized
from penstock_core.share.share_group import TOPICS_LISTED, ShareGroupConfig
from penstock_core.share.share_state import Lock, ShareState, Wait, lock_id, locks_of
from penstock_core.share.waits import merge_waits, tends

NO_KEY = 0  # the hash of a record without a key: it has no order
Window = Sequence[int | None]
"""The hashes of the fresh records in order, from the position or the log start on; None for one that is finished:
missing, or not matching the filter."""

_ENTRIES_PER_WAIT = 3  # an entry that is taken from, the rest of it, and a new lock
_ENTRIES_KEPT = 2  # for the lock of fresh records, and the wait of those behind
_ENTRIES_OF_SUSPECT = SHARE_SUSPECT_PARTS + 3  # the old lock, the new one, and the waits of the other parts


def key_hash(key: bytes | None) -> int:
    """The hash that orders records: murmur2 of the key, 1 in place of 0, and `NO_KEY` without a key.

    Two keys with one hash wait for each other, which costs time and nothing else.
    """
    return NO_KEY if key is None else murmur2(key) or 1


def plan_read_first(
    state: ShareState,
    config: ShareGroupConfig,
    log: LogBounds,
    request: AcquireRequest,
    window: Window,
    acknowledgements: Sequence[Acknowledgement] = (),
    held: Collection[int] = (),
) -> AcquirePlan:
    """The acknowledgements, and then the acquire, on the state as it was read, with its fresh records.

    With order by key, records of the keys `held` stay behind: older generations of the topic have unfinished ones.
    If the update is refused, the position may have moved: read the records again, or go to another partition.
    """
    draft = Draft(state)
    answers, planned = acknowledge(draft, config, acknowledgements, request.now_ms)
    if locks_of(state, request.nonce):
        return AcquirePlan(update=draft.update(), answers=answers, planned=planned, is_repeat=True)
    if config.is_by_key:
        is_blocked, is_alone = _Ordered(draft, config, log, request, held).take(window)
        is_tending = tends(request.nonce, 0)
    else:
        hand_out = HandOut(draft, config, log, request)
        hand_out.retries()
        is_alone, is_tending = hand_out.is_alone, hand_out.is_tending
        is_blocked = not is_alone and hand_out.fresh_of(window)
        if config.topic_order == TOPICS_LISTED and not is_alone:
            hand_out.rest()
        is_tending |= hand_out.is_tending
    if is_tending:
        merge_waits(draft, config, request.now_ms)
    return AcquirePlan(
        update=draft.update(), answers=answers, planned=planned, is_blocked=is_blocked, is_alone=is_alone
    )


@dataclass(slots=True)
class _Source:
    """An entry, how many of its records this acquire may take, and the offsets of those that it takes."""

    name: LockId | None  # of a lock
    entry: Lock | Wait
    records: RecordSet
    limit: int = 0
    taken: list[int] = field(default_factory=list)


class _Ordered:
    """The records that one acquire takes by key, on a draft."""

    def __init__(
        self, draft: Draft, config: ShareGroupConfig, log: LogBounds, request: AcquireRequest, held: Collection[int]
    ) -> None:
        self._draft = draft
        self._config = config
        self._log = log
        self._request = request
        self._turn = murmur2(request.nonce.encode())
        self._left = request.records_max
        self._locks = 0
        self._held = held
        self._blocked = {*held}  # keys of which this acquire takes no more
        self._taken: dict[int, int] = {}  # key -> records that it takes

    def take(self, window: Window) -> tuple[bool, bool]:
        """Take a part of a suspect, or records that came back and then fresh ones.

        Returns whether fresh ones had no room, and `is_alone`.
        """
        drop_expired(self._draft, self._config, self._log, self._request.now_ms)
        sources = self._sources()
        waits = [source for source in sources if source.name is None and self._comes_again(source.entry)]
        if (self._turn % 2 or not (waits or window)) and self._take_suspect(sources):
            return False, True
        places = max(0, self._draft.room() - _ENTRIES_KEPT) // _ENTRIES_PER_WAIT
        for source in self._leading_first(sources, self._in_turn(waits))[:places]:
            source.limit = max(1, source.records.count)
        self._choose(sources)
        fresh, behind, passed, is_blocked = self._fresh(window)
        self._lock_all(sources, fresh)
        if behind:
            self._draft.put_wait(Wait(0, 0, _record_set(behind)))
        if passed:
            self._draft.pass_over(passed)
        return is_blocked, False

    def _take_suspect(self, sources: Sequence[_Source]) -> bool:
        """Take records of one suspect that lead their keys. False if no suspect has some.

        The other records leave their lock, too, and those behind them the other locks of the same acquire. So its
        worker, if it is only slow, finishes none of them before an earlier one of their key.
        """
        by_records = {source.entry.records.start + _base(source.entry): source for source in sources}
        found = suspects(self._draft, self._config, self._request.now_ms)
        turn = self._turn % (len(found) or 1)
        for name, entry in found[turn:] + found[:turn]:
            beside = [] if name is None else locks_beside(self._draft, name)
            if self._draft.room() < _ENTRIES_OF_SUSPECT + 2 * len(beside):
                return False
            source = by_records[entry.records.start + _base(entry)]
            if not source.records.ranges:
                remove_suspect(self._draft, name, entry)
                continue
            source.limit = suspect_part(self._config, name, source.records, entry.deliveries).count
            self._choose(sources)
            source.limit = 0
            if source.taken:
                hashes = source.records.hash_by_offset()
                chosen = {offset: hashes[offset] for offset in source.taken}
                remove_suspect(self._draft, name, entry)
                left = source.records.minus(_ranges_of(chosen))
                put_suspects(self._draft, name, entry, left, self._request.now_ms)
                for other in beside:
                    take_behind(self._draft, other, source.records)
                self._lock(chosen, entry.deliveries)
                return True
        return False

    def _sources(self) -> list[_Source]:
        """All entries, without the records that have expired from the log."""
        expired = ((0, int(self._log.log_start)),)
        found = [_Source(name, lock, lock.held.minus(expired)) for name, lock in self._draft.locks.items()]
        return found + [_Source(None, wait, wait.records.minus(expired)) for wait in self._draft.waits.values()]

    def _comes_again(self, entry: Lock | Wait) -> bool:
        """True if the wait may be handed out now, as in `acquire.HandOut`."""
        if not isinstance(entry, Wait) or entry.available_ms > self._request.now_ms or entry.is_suspect:
            return False
        return not entry.is_terminal or self._config.dead_letter_topic is None

    def _leading_first(self, sources: Sequence[_Source], waits: list[_Source]) -> list[_Source]:
        """Begin with waits that have a record to hand out: the first unfinished one of its key, or one without a key.

        An update touches few entries. Behind a hot key there may be many that wait for their turn.
        """
        first = dict.fromkeys(self._held, -1)
        for source in sources:
            if not (isinstance(source.entry, Wait) and source.entry.is_terminal):
                for offset, value in source.records.hash_by_offset().items():
                    first[value] = min(offset, first.get(value, offset))
        return sorted(waits, key=lambda source: not _leads(source.records, first))

    def _in_turn(self, sources: list[_Source]) -> list[_Source]:
        turn = self._turn % (len(sources) or 1)
        return sources[turn:] + sources[:turn]

    def _choose(self, sources: Sequence[_Source]) -> None:
        """Choose records of the sources that lead their keys, in order of their offsets."""
        self._blocked = {*self._held}
        self._taken.clear()
        self._left = self._request.records_max
        pairs = [
            (offset, value, source)
            for source in sources
            for offset, value in zip(source.records.offsets(), source.records.hashes, strict=True)
        ]
        for offset, value, source in sorted(pairs, key=_offset_of):
            if isinstance(source.entry, Wait) and source.entry.is_terminal and not source.limit:
                continue  # a record that goes to the dead-letter topic has left the order
            if isinstance(source.entry, Wait) and source.entry.is_rejected:
                continue  # without a dead-letter topic it is finished with this update
            if self._takes(value, has_more=len(source.taken) < source.limit):
                source.taken.append(offset)

    def _takes(self, value: int, *, has_more: bool) -> bool:
        """Whether this acquire takes the next unfinished record, of that hash. If not, it blocks its key."""
        is_free = value == NO_KEY or (
            value not in self._blocked and self._taken.get(value, 0) < self._config.key_batch_max
        )
        if is_free and has_more and self._left > 0:
            self._left -= 1
            self._taken[value] = self._taken.get(value, 0) + 1
            return True
        if value != NO_KEY:
            self._blocked.add(value)
        return False

    def _fresh(self, window: Window) -> tuple[dict[int, int], dict[int, int], int, bool]:
        """The fresh records to lock and those that stay behind, by hash; what the position passes; if it is blocked."""
        first = self._log.first_fresh(self._draft.position)
        room = fresh_room(self._draft, self._config)
        fresh: dict[int, int] = {}
        behind: dict[int, int] = {}
        end = int(first)
        for offset, value in enumerate(window, start=first):
            if value is not None:
                if not self._left or len(fresh) + len(behind) >= room:
                    break
                (fresh if self._takes(value, has_more=True) else behind)[offset] = value
            end = offset + 1
        is_blocked = self._left > 0 and end == first and any(value is not None for value in window)
        return fresh, behind, end - self._draft.position if end > first else 0, is_blocked

    def _lock_all(self, sources: Sequence[_Source], fresh: dict[int, int]) -> None:
        """Take what was chosen out of its waits, and lock it: one lock for each count."""
        by_count: dict[int, dict[int, int]] = {0: dict(fresh)}
        for source in sources:
            if not source.limit:
                continue
            hashes = source.records.hash_by_offset()
            chosen = {offset: hashes[offset] for offset in source.taken}
            left = source.records.minus(_ranges_of(chosen))
            is_rejected = isinstance(source.entry, Wait) and source.entry.is_rejected
            if chosen or is_rejected or not left.ranges:
                self._take_wait(source, EMPTY if is_rejected else left)
                by_count.setdefault(source.entry.deliveries, {}).update(chosen)
        for deliveries, chosen in sorted(by_count.items()):
            self._lock(chosen, deliveries)

    def _take_wait(self, source: _Source, left: RecordSet) -> None:
        if not isinstance(source.entry, Wait):
            return
        self._draft.remove_wait(Offset(source.entry.records.start))
        if left.ranges:
            self._draft.put_wait(replace(source.entry, records=left))

    def _lock(self, chosen: dict[int, int], deliveries: int) -> None:
        """Lock records that were handed out so often before."""
        if not chosen:
            return
        records = _record_set(chosen)
        base = Offset(records.start)
        until_ms = self._request.now_ms + self._request.lock_ms
        name = lock_id(self._request.nonce, self._locks)
        self._locks += 1
        self._draft.put_lock(name, Lock(base, until_ms, deliveries + 1, records.shifted(-base)))


def _leads(records: RecordSet, first: Mapping[int, int]) -> bool:
    """True if one of the records leads its key, or if none is left of them."""
    pairs = records.hash_by_offset().items()
    return not records.ranges or any(value == NO_KEY or first.get(value, offset) == offset for offset, value in pairs)


def _base(entry: Lock | Wait) -> int:
    return entry.base if isinstance(entry, Lock) else 0


def _offset_of(pair: tuple[int, int, _Source]) -> int:
    return pair[0]


def _ranges_of(offsets: Iterable[int]) -> Ranges:
    return normalized((offset, offset + 1) for offset in offsets)


def _record_set(hash_by_offset: Mapping[int, int]) -> RecordSet:
    ranges = _ranges_of(hash_by_offset)
    return RecordSet(ranges, tuple(hash_by_offset[offset] for offset in sorted(hash_by_offset)))
