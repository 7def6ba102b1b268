"""Make zones hold one segment: copy it where it is missing, overwrite it where it is bad.

The one way in which copies are repaired, by whoever finds the debt (docs/adr/0004). A copy is good if its table of
contents and every batch's CRC-32C are right. A good copy is never written over, a bad one is never a source, and a
segment has the same bytes for ever: so this may die anywhere, be repeated, and run twice at once.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from crc32c import crc32c

from penstock_broker.broker import Broker
from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.ids import SegmentId
from penstock_core.segment import TocEntry, check_segment


@dataclass(frozen=True, slots=True, kw_only=True)
class EnsuredCopies:
    """What was found and done, as bitmaps of zones in configured order. `good` are the zones asked for that hold a
    good copy now; of them `copied` had none before and `healed` a bad one. `errors` tell why the others do not.
    `toc` is what a good copy says of itself, empty if none was read."""

    good: int
    copied: int
    healed: int
    bytes_read: int
    errors: tuple[PenstockError, ...]
    toc: tuple[TocEntry, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Copy:
    """What one zone holds: the whole segment as `body` if it is good, else `error` with what is wrong.
    `has_answered` is false if that is all we know; `is_there` if there is an object, good or bad."""

    zone: int
    body: bytes | None = None
    error: PenstockError | None = None
    has_answered: bool = True
    is_there: bool = False
    bytes_read: int = 0
    toc: tuple[TocEntry, ...] = ()


def ensure_copies(broker: Broker, segment_id: SegmentId, zones: int) -> EnsuredCopies:
    """Leaves a good copy in every zone of the bitmap `zones` that answers.

    One get of the whole object per zone of `zones`; if one of them needs a copy and none of them has a good one, a get
    per other zone; and a put per copy made. If there is need and no good copy, nothing is written, and
    CORRUPT_SEGMENT is raised if all zones answered, else STORAGE_UNAVAILABLE.
    """
    copies = _look(broker, segment_id, [zone for zone in range(len(broker.zones)) if zones >> zone & 1])
    needy = [copy for copy in copies if copy.has_answered and copy.body is None]
    good = _bitmap(copy.zone for copy in copies if copy.body is not None)
    errors = [copy.error for copy in copies if copy.error is not None and not copy.has_answered]
    seen = copies
    written: list[_Copy] = []
    if needy:
        if not good:
            seen = copies + _look(
                broker, segment_id, [zone for zone in range(len(broker.zones)) if not zones >> zone & 1]
            )
        outcomes = _write(broker, segment_id, needy, _good_body(segment_id, seen))
        written = [copy for copy, outcome in zip(needy, outcomes, strict=True) if outcome is None]
        errors += [outcome for outcome in outcomes if outcome is not None]
    return EnsuredCopies(
        good=good | _bitmap(copy.zone for copy in written),
        copied=_bitmap(copy.zone for copy in written if not copy.is_there),
        healed=_bitmap(copy.zone for copy in written if copy.is_there),
        bytes_read=sum(copy.bytes_read for copy in seen),
        errors=tuple(errors),
        toc=next((copy.toc for copy in seen if copy.body is not None), ()),
    )


def _look(broker: Broker, segment_id: SegmentId, zones: Sequence[int]) -> list[_Copy]:
    def look(zone: int) -> _Copy:
        body = broker.zones[zone].get_whole(segment_id)
        if body is None:
            missing = f"zone {broker.zones[zone].zone} has no segment {segment_id.hex()}"
            return _Copy(zone=zone, error=PenstockError(ErrorCode.STORAGE_UNAVAILABLE, missing))
        try:
            toc = check_segment(body)
        except PenstockError as error:
            flaw = PenstockError(error.code, f"zone {broker.zones[zone].zone}: {error.message}")
            return _Copy(zone=zone, error=flaw, is_there=True, bytes_read=len(body))
        return _Copy(zone=zone, body=body, is_there=True, bytes_read=len(body), toc=toc)

    return [
        _Copy(zone=zone, error=found, has_answered=False) if isinstance(found, PenstockError) else found
        for zone, found in zip(zones, broker.parallel.map(look, zones), strict=True)
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


def _write(broker: Broker, segment_id: SegmentId, needy: Sequence[_Copy], body: bytes) -> list[PenstockError | None]:
    checksum = crc32c(body)

    def write(copy: _Copy) -> None:
        store = broker.zones[copy.zone]
        (store.overwrite if copy.is_there else store.put)(segment_id, body, checksum)

    return broker.parallel.map(write, needy)


def _bitmap(zones: Iterable[int]) -> int:
    return sum(1 << zone for zone in zones)
