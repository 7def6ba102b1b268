"""Reasons of releases: a share group keeps some of them for records that may fail again.

The share item keeps them in one list, the oldest first. They stay apart from locks and waits, so a reason splits no
wait and costs no condition on one. An update appends to the list without a read, and only the length of the list is a
condition. So releases at the same time do not disturb each other.

| field    |                                                                             |
|----------|-----------------------------------------------------------------------------|
| version  | u8: 1                                                                       |
| ranges   | as in `share_codec`, `SHARE_REASON_RANGES_MAX` at most                      |
| text     | UTF-8, `SHARE_REASON_KEPT_BYTES` at most: the rest                          |

With `SHARE_REASONS_MAX` of them the list takes 2 KiB. A full list is written anew: reasons of finished records go
first, equal texts become one, and of the others the newer half stays. A reason helps people, and decides nothing. So an
update that writes the list anew may lose one that another update has appended meanwhile.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from penstock_core.formats import unsupported
from penstock_core.limits import SHARE_REASON_KEPT_BYTES, SHARE_REASON_RANGES_MAX, SHARE_REASONS_MAX
from penstock_core.share.record_set import Ranges, RecordSet, normalized

VERSION = 1


@dataclass(frozen=True, slots=True)
class Reason:
    """The text of a release, and the offsets of its records."""

    text: str
    ranges: Ranges


def reason_for(text: str, ranges: Ranges) -> Reason:
    """The reason as the item keeps it: cut at a character, for the first ranges of the records."""
    kept = text.encode()[:SHARE_REASON_KEPT_BYTES].decode(errors="ignore")
    return Reason(kept, ranges[:SHARE_REASON_RANGES_MAX])


def reason_of(reasons: Sequence[Reason], offset: int) -> str:
    """The newest reason of the record, empty if the list has none."""
    for each in reversed(reasons):
        if any(start <= offset < end for start, end in each.ranges):
            return each.text
    return ""


def with_reason(reasons: Sequence[Reason], added: Reason) -> list[Reason]:
    """The list with one more reason. It joins the last one if the texts are equal and the ranges are few."""
    if reasons and reasons[-1].text == added.text:
        ranges = normalized((*reasons[-1].ranges, *added.ranges))
        if len(ranges) <= SHARE_REASON_RANGES_MAX:
            return [*reasons[:-1], Reason(added.text, ranges)]
    return [*reasons, added]


def fewer(reasons: Iterable[Reason], unfinished: Ranges) -> list[Reason]:
    """The reasons of unfinished records, equal texts as one, the newer half of what a list may have at most."""
    by_text: dict[str, Ranges] = {}
    for each in reversed([*reasons]):
        live = RecordSet(each.ranges).only(unfinished).ranges
        if live:
            by_text[each.text] = normalized((*by_text.get(each.text, ()), *live))
    newest = [*by_text.items()][: SHARE_REASONS_MAX // 2]
    # Of many ranges the last ones stay: later records wait for longer.
    return [Reason(text, ranges[-SHARE_REASON_RANGES_MAX:]) for text, ranges in reversed(newest)]


def check_reason_version(version: int) -> None:
    """Raises UNSUPPORTED_FORMAT for a reason that this release cannot read."""
    if version != VERSION:
        raise unsupported("share_reason", version)
