"""Waits that are merged, so that many records in retry leave the share item small.

A wait costs about 25 bytes, a further range in it about 3. Waits of the same count whose times are near become one,
available at the last of these times.
"""

from dataclasses import replace

from penstock_core.ids import LockId, Offset
from penstock_core.limits import SHARE_MERGE_BYTES, SHARE_RANGES_MAX
from penstock_core.share.draft import Draft
from penstock_core.share.retry import backoff_ms
from penstock_core.share.share_codec import entries_bytes
from penstock_core.share.share_group import ShareGroupConfig
from penstock_core.share.share_state import Wait

_NEAR = 4  # waits may come back late by this share of their pause
_NO_LOCK = LockId("")


def merge_waits(draft: Draft, config: ShareGroupConfig) -> None:
    """Merge waits while the item is larger than `SHARE_MERGE_BYTES` and the draft has room."""
    if entries_bytes(draft.locks, draft.waits) <= SHARE_MERGE_BYTES:
        return
    near: dict[tuple[int, int, str], list[Wait]] = {}
    for _, wait in sorted(draft.waits.items()):
        width = max(1, backoff_ms(config, wait.deliveries, _NO_LOCK) // _NEAR)
        kind = (wait.deliveries, wait.available_ms // width, f"{wait.is_rejected}{wait.reason}")
        near.setdefault(kind, []).append(wait)
    for waits in sorted(near.values(), key=len, reverse=True):
        _merge(draft, waits)


def _merge(draft: Draft, waits: list[Wait]) -> None:
    merged, *others = waits
    used = 1
    for wait in others:
        if draft.room() < used + 1 or len(merged.records.ranges) + len(wait.records.ranges) > SHARE_RANGES_MAX:
            break
        records = merged.records.plus(wait.records)
        merged = replace(merged, records=records, available_ms=max(merged.available_ms, wait.available_ms))
        draft.remove_wait(Offset(wait.records.start))
        used = 1
    if merged != waits[0]:
        draft.put_wait(merged)
