"""Make zones hold one segment: copy it where it is missing, overwrite it where it is bad.

All repairs of copies go this way: zone recovery, the scrub, `replicate` and the sweep job (docs/adr/0004). A copy is
good if its table of contents and every batch's CRC-32C are right. This may die anywhere, be repeated, and run twice at
once, for three reasons:

1. It never writes over a good copy.
2. It never copies from a bad one.
3. A segment has the same bytes for ever.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from crc32c import crc32c

from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.ids import SegmentId
from penstock_core.log.segment import TocEntry, check_segment
from penstock_service.ports.runtime import Executor
from penstock_service.ports.segments import SegmentStore


@dataclass(frozen=True, slots=True, kw_only=True)
class CopiesResult:
    """The zones after a repair, as bitmaps in configured order.

    `good` are the zones asked for that hold a good copy now. Of these, `copied` had no copy before, and `healed` had a
    bad one. `errors` tells why the other zones have none. `toc` is the table of contents of a good copy, empty if none
    was read.
    """

    good: int
    copied: int
    healed: int
    bytes_read: int
    errors: tuple[PenstockError, ...]
    toc: tuple[TocEntry, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Copy:
    """The copy of one zone: the whole segment as `body` if it is good, else an `error` that says what is wrong.

    `has_answered` is false if the zone did not answer. `is_there` tells if there is an object, good or bad.
    """

    zone: int
    body: bytes | None = None
    error: PenstockError | None = None
    has_answered: bool = True
    is_there: bool = False
    bytes_read: int = 0
    toc: tuple[TocEntry, ...] = ()


def ensure_copies(
    stores: Sequence[SegmentStore], executor: Executor, segment_id: SegmentId, zones: int
) -> CopiesResult:
    """Leaves a good copy in every zone of the bitmap `zones` that answers. `stores` are all zones, in configured order.

    One get of the whole object for each of these zones. If one needs a copy and none of them has a good one, a get for
    each other zone. One put for each copy made. If a zone needs a copy and no zone has a good one, nothing is written.
    Then it raises CORRUPT_SEGMENT if all zones answered, else STORAGE_UNAVAILABLE.
    """
    copies = _look(stores, executor, segment_id, zones)
    needy = [copy for copy in copies if copy.has_answered and copy.body is None]
    good = _bitmap(copy.zone for copy in copies if copy.body is not None)
    errors = [copy.error for copy in copies if copy.error is not None and not copy.has_answered]
    seen = copies
    written: list[_Copy] = []
    if needy:
        if not good:
            seen = copies + _look(stores, executor, segment_id, ~zones)
        body = _good_body(segment_id, seen)
        checksum = crc32c(body)

        def write(copy: _Copy) -> None:
            store = stores[copy.zone]
            (store.overwrite if copy.is_there else store.put)(segment_id, body, checksum)

        outcomes = executor.map(write, needy)
        written = [copy for copy, outcome in zip(needy, outcomes, strict=True) if outcome is None]
        errors += [outcome for outcome in outcomes if outcome is not None]
    return CopiesResult(
        good=good | _bitmap(copy.zone for copy in written),
        copied=_bitmap(copy.zone for copy in written if not copy.is_there),
        healed=_bitmap(copy.zone for copy in written if copy.is_there),
        bytes_read=sum(copy.bytes_read for copy in seen),
        errors=tuple(errors),
        toc=next((copy.toc for copy in seen if copy.body is not None), ()),
    )


def _look(stores: Sequence[SegmentStore], executor: Executor, segment_id: SegmentId, zones: int) -> list[_Copy]:
    """The copies of the zones of the bitmap."""

    def look(zone: int) -> _Copy:
        body = stores[zone].get_whole(segment_id)
        if body is None:
            missing = f"zone {stores[zone].zone} has no segment {segment_id.hex()}"
            return _Copy(zone=zone, error=PenstockError(ErrorCode.STORAGE_UNAVAILABLE, missing))
        try:
            toc = check_segment(body)
        except PenstockError as error:
            flaw = PenstockError(error.code, f"zone {stores[zone].zone}: {error.message}")
            return _Copy(zone=zone, error=flaw, is_there=True, bytes_read=len(body))
        return _Copy(zone=zone, body=body, is_there=True, bytes_read=len(body), toc=toc)

    asked = [zone for zone in range(len(stores)) if zones >> zone & 1]
    return [
        _Copy(zone=zone, error=found, has_answered=False) if isinstance(found, PenstockError) else found
        for zone, found in zip(asked, executor.map(look, asked), strict=True)
    ]


def _good_body(segment_id: SegmentId, copies: Sequence[_Copy]) -> bytes:
    for copy in copies:
        if copy.body is not None:
            return copy.body
    reasons = "; ".join(copy.error.message for copy in copies if copy.error is not None)
    have_answered = all(copy.has_answered for copy in copies)
    raise PenstockError(
        ErrorCode.CORRUPT_SEGMENT if have_answered else ErrorCode.STORAGE_UNAVAILABLE,
        f"no zone has a good copy of segment {segment_id.hex()}, nothing was copied: {reasons}",
    )


def _bitmap(zones: Iterable[int]) -> int:
    return sum(1 << zone for zone in zones)
