"""Waits that are merged, so that many records in retry leave the share item small.

A wait costs about 20 bytes, a further range in it 2 or 3. Waits of the same count whose times are near become one,
available at the last of these times. While the item is large, the acquires that tend it (tending.py) do so. They expect
the waits as they were read, so two of them at the same time may refuse each other.
"""

from collections.abc import Iterable
from dataclasses import replace

from penstock_core.ids import LockId, Offset
from penstock_core.limits import SHARE_MERGE_BYTES, SHARE_RANGES_MAX
from penstock_core.share.draft import Draft
from penstock_core.share.retry import backoff_ms
from penstock_core.share.share_codec import entries_bytes
from penstock_core.share.share_group import ShareGroupConfig
from penstock_core.share.share_state import Wait

_NEAR = 4  # waits may come back late by this share of their pause
_ENTRIES_AT_ONCE = 2  # that one merge touches: the two waits
_NO_LOCK = LockId("")

_Kind = tuple[object, ...]


def merge_waits(draft: Draft, config: ShareGroupConfig, now_ms: int) -> None:
    """Merge waits while the item is larger than `SHARE_MERGE_BYTES`."""
    if entries_bytes(draft.locks, draft.waits) <= SHARE_MERGE_BYTES:
        return
    near = _near(config, now_ms, (wait for _, wait in sorted(draft.waits.items())))
    for waits in sorted(near.values(), key=len, reverse=True):
        _put_into(draft, waits[0], waits[1:])


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


def _put_into(draft: Draft, target: Wait, others: Iterable[Wait]) -> None:
    """Merge `others` into the target, as many as the draft has room for."""
    merged = draft.waits.get(Offset(target.records.start))
    if merged is None:
        return
    for wait in others:
        ranges = len(merged.records.ranges) + len(wait.records.ranges)
        if draft.room() < _ENTRIES_AT_ONCE or ranges > SHARE_RANGES_MAX:
            return
        draft.remove_wait(Offset(wait.records.start))
        draft.remove_wait(Offset(merged.records.start))
        records = merged.records.plus(wait.records)
        merged = replace(merged, records=records, available_ms=max(merged.available_ms, wait.available_ms))
        draft.put_wait(merged)
