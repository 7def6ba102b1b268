"""Waits that are merged, so that many records in retry leave the share item small.

A wait costs about 20 bytes, a further range in it 2 or 3.

| when                                    | what becomes one wait                                                  |
|-----------------------------------------|------------------------------------------------------------------------|
| always                                  | what one update adds with equal facts                                  |
| an acquire tends an item above          | waits of the same count whose times are near, available at the last of |
| `SHARE_MERGE_BYTES` (tending.py)        | these times                                                            |
| the item has `SHARE_WAITS_BLIND_MAX`    | what an acknowledgement adds, and one such wait                        |
| the item has `SHARE_WAITS_MAX`          | what an acknowledgement adds, and the wait nearest to it               |

An update expects the waits that it merges as they were read, so two of them at the same time may refuse each other.

The pause before records are handed out again.

The pause doubles with each delivery. Its jitter follows from the lock's id. So all acquirers compute the same time for
a lock that has ended, and a repeat computes the same as the first try.

Which acquires take records that came back, while there are fresh ones.

An update that takes waits, splits them or merges them expects them as they were read. If each acquire did so, twenty
workers on one partition would refuse each other, and a refused update costs as many write units as another. So one
acquire of `_TENDERS` does it, as its nonce tells. The longer a record has been due, the more acquires do, and soon
all of them. So no record waits for long, also where one slow worker is alone.
"""

from collections.abc import Iterable
from dataclasses import replace

from penstock_core.ids import LockId, LockNonce, Offset
from penstock_core.limits import SHARE_FAIR_WAIT_RANGES, SHARE_MERGE_BYTES, SHARE_RANGES_MAX, SHARE_WAITS_BLIND_MAX
from penstock_core.records.partitioner import murmur2
from penstock_core.share.draft import Draft
from penstock_core.share.record_set import EMPTY
from penstock_core.share.share_codec import entries_bytes
from penstock_core.share.share_group import ShareGroupConfig
from penstock_core.share.share_state import Lock, Wait

_NEAR = 4  # waits may come back late by this share of their pause
_ENTRIES_AT_ONCE = 2  # that one merge touches: the two waits
_NO_LOCK = LockId("")
_Kind = tuple[object, ...]
_DOUBLINGS_MAX = 30
_TENDERS = 8
_PATIENCE_MS = 250  # after each of these, twice as many acquires take what is due


def merge_waits(draft: Draft, config: ShareGroupConfig, now_ms: int) -> None:
    """Merge waits while the item is larger than `SHARE_MERGE_BYTES`."""
    if entries_bytes(draft.locks, draft.waits) <= SHARE_MERGE_BYTES:
        return
    small = (wait for _, wait in sorted(draft.waits.items()) if _fits(config, wait, wait))
    near = _near(config, now_ms, small)
    for waits in sorted(near.values(), key=len, reverse=True):
        _put_into(draft, config, waits[0], waits[1:])


def add_wait(draft: Draft, config: ShareGroupConfig, now_ms: int, wait: Wait) -> None:
    """Add a wait, or merge it into one of the draft, as the table says. Touches two waits at most."""
    facts = replace(wait, records=EMPTY)
    found = [
        each for each in draft.changed_waits() if replace(each, records=EMPTY) == facts and _fits(config, each, wait)
    ]
    if not found and len(draft.waits) >= SHARE_WAITS_BLIND_MAX:
        found = _like(draft, config, now_ms, wait)
    if not found:
        draft.put_wait(wait)
        return
    target = found[wait.records.start % len(found)]  # releases at the same time meet different ones
    draft.remove_wait(Offset(target.records.start))
    draft.put_wait(
        replace(
            target,
            records=target.records.plus(wait.records),
            available_ms=max(target.available_ms, wait.available_ms),
            deliveries=min(target.deliveries, wait.deliveries),
            reason=target.reason if target.reason == wait.reason else "",
        )
    )


def _like(draft: Draft, config: ShareGroupConfig, now_ms: int, wait: Wait) -> list[Wait]:
    """The waits that this one may be merged into; in a full item the nearest one, whatever its time and count."""
    there = [each for each in draft.waits.values() if not each.is_suspect and _fits(None, each, wait)]
    kind = _kind(config, now_ms, wait)
    near = [each for each in there if _fits(config, each, wait) and _kind(config, now_ms, each) == kind]
    if near or len(draft.waits) < draft.waits_max:
        return near

    def distance(other: Wait) -> tuple[bool, int, int]:
        is_later = other.deliveries != wait.deliveries
        return is_later, abs(other.available_ms - wait.available_ms), other.records.start

    same = [each for each in there if (each.is_rejected, each.is_dead) == (wait.is_rejected, wait.is_dead)]
    return sorted(same, key=distance)[:1]


def _fits(config: ShareGroupConfig | None, one: Wait, other: Wait) -> bool:
    """True if one wait may have the ranges of both. None: in a full item."""
    most = SHARE_RANGES_MAX if config is None or not config.is_fair else SHARE_FAIR_WAIT_RANGES
    return len(one.records.ranges) + len(other.records.ranges) <= most


def _near(config: ShareGroupConfig, now_ms: int, waits: Iterable[Wait]) -> dict[_Kind, list[Wait]]:
    """The waits by what those have in common that may be merged. Suspects stay apart."""
    near: dict[_Kind, list[Wait]] = {}
    for wait in waits:
        if not wait.is_suspect:
            near.setdefault(_kind(config, now_ms, wait), []).append(wait)
    return near


def _kind(config: ShareGroupConfig, now_ms: int, wait: Wait) -> _Kind:
    """Equal for waits of one count whose times differ by a quarter of their pause, or of what is left, at most."""
    left_bits = max(0, wait.available_ms - now_ms).bit_length()
    width = max(1, backoff_ms(config, wait.deliveries, _NO_LOCK) // _NEAR, (1 << left_bits) // (2 * _NEAR))
    return wait.deliveries, left_bits, wait.available_ms // width, wait.is_rejected, wait.is_dead, wait.reason


def _put_into(draft: Draft, config: ShareGroupConfig, target: Wait, others: Iterable[Wait]) -> None:
    """Merge `others` into the target, as many as the draft has room for."""
    merged = draft.waits.get(Offset(target.records.start))
    if merged is None:
        return
    for wait in others:
        if draft.room() < _ENTRIES_AT_ONCE or not _fits(config, merged, wait):
            return
        draft.remove_wait(Offset(wait.records.start))
        draft.remove_wait(Offset(merged.records.start))
        records = merged.records.plus(wait.records)
        merged = replace(merged, records=records, available_ms=max(merged.available_ms, wait.available_ms))
        draft.put_wait(merged)


def backoff_ms(config: ShareGroupConfig, deliveries: int, lock_id: LockId) -> int:
    """The pause after so many deliveries: between half of the doubled time and all of it."""
    doubled = config.retry_backoff_ms_min << min(max(deliveries - 1, 0), _DOUBLINGS_MAX)
    longest = min(config.retry_backoff_ms_max, doubled)
    return longest // 2 + (longest - longest // 2) * murmur2(lock_id.encode()) // 2**32


def available_ms(config: ShareGroupConfig, lock_id: LockId, lock: Lock) -> int:
    """From when another acquire may take the records of the lock: after its end, and the pause.

    Records on their last delivery have no pause: they go to the dead-letter topic.
    """
    if is_last_delivery(config, lock.deliveries):
        return lock.until_ms
    return lock.until_ms + backoff_ms(config, lock.deliveries, lock_id)


def is_last_delivery(config: ShareGroupConfig, deliveries: int) -> bool:
    """True if a record that was handed out so often goes to the dead-letter topic when it comes back."""
    return config.deliveries_max is not None and deliveries >= config.deliveries_max


def tends(nonce: LockNonce, overdue_ms: int) -> bool:
    """True if the acquire takes records that came back. The longest of them has been due for `overdue_ms`."""
    halvings = min(max(overdue_ms, 0) // _PATIENCE_MS, _TENDERS.bit_length() - 1)
    return murmur2(b"tend" + nonce.encode()) % (_TENDERS >> halvings) == 0
