"""What the source of a mirror tells of delayed records that wait in a partition, and the mirror's answer. Pure.

A comparison lists the places of the timers that wait at the source in a range. The mirror answers which of them it
lacks, and which others wait there. A telling brings copies, and names timers that wait no more. A timer waits once, and
never again, so tellings may come late, twice, and in any order (docs/protocol/mirrors).

Places are texts as lists of scheduled records have them.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.ids import Partition
from penstock_core.limits import MIRROR_TIMERS_READ
from penstock_core.log.timer import TimerPlace, parse_scheduled_id, scheduled_id

_DIGEST_BYTES = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class TimersTelling:
    """A comparison of the places behind `after` and up to `until`, if it has `listed`. Else a telling.

    The parts of its push are copies of the timers at `copied`. Those at `settled` have left the source's set for ever,
    and what was delivered of them lies below the push's offset. It was read at `read_ms`.
    """

    read_ms: int
    listed: Sequence[TimerPlace] | None = None
    after: TimerPlace | None = None
    until: TimerPlace | None = None
    copied: Sequence[TimerPlace] = ()
    settled: Sequence[TimerPlace] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TimersAnswer:
    """The places that the mirror `lacks`, and those of `others` that wait there alone.

    Of a telling, `left` places were not taken: another one may bring them.
    """

    lacks: Sequence[TimerPlace] = ()
    others: Sequence[TimerPlace] = ()
    left: int = 0


def digest_of_places(places: Iterable[TimerPlace]) -> str:
    """A digest of the places, "" for none."""
    text = b"".join(b"%d" % place.due_ms + place.timer_id for place in places)
    return sha256(text).digest()[:_DIGEST_BYTES].hex() if text else ""


def telling_json(partition: Partition, telling: TimersTelling) -> dict[str, Any]:
    """The telling as the header of a push has it."""

    def texts(places: Iterable[TimerPlace]) -> list[str]:
        return [scheduled_id(partition, place) for place in places]

    told: dict[str, Any] = {"read_ms": telling.read_ms}
    if telling.listed is not None:
        told["listed"] = texts(telling.listed)
    if telling.after is not None:
        told["after"] = scheduled_id(partition, telling.after)
    if telling.until is not None:
        told["until"] = scheduled_id(partition, telling.until)
    return {**told, "copied": texts(telling.copied), "settled": texts(telling.settled)}


def parse_places(partition: int, texts: object) -> list[TimerPlace]:
    """The inverse of the texts above. Raises INVALID_REQUEST for others, for too many, and for another partition."""
    if (
        not isinstance(texts, list)
        or len(texts) > MIRROR_TIMERS_READ
        or not all(isinstance(each, str) for each in texts)
    ):
        raise PenstockError(
            ErrorCode.INVALID_REQUEST, f"places of timers: give a list of {MIRROR_TIMERS_READ} texts at most"
        )
    found = list(map(parse_scheduled_id, texts))
    if any(number != partition for number, _ in found):
        raise PenstockError(ErrorCode.INVALID_REQUEST, f"places of timers: all must be of partition {partition}")
    return [place for _, place in found]


def answer_of_timers(partition: Partition, answer: TimersAnswer) -> dict[str, Any]:
    """The answer as JSON."""
    return {
        "lacks": [scheduled_id(partition, place) for place in answer.lacks],
        "others": [scheduled_id(partition, place) for place in answer.others],
        "left": answer.left,
    }


def parse_timers_answer(told: Mapping[str, Any]) -> TimersAnswer:
    """The inverse. Raises KeyError, TypeError, ValueError or INVALID_REQUEST for another answer."""
    return TimersAnswer(
        lacks=[parse_scheduled_id(each)[1] for each in told["lacks"]],
        others=[parse_scheduled_id(each)[1] for each in told["others"]],
        left=int(told["left"]),
    )
