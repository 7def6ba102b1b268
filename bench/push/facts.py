"""Read the notes of a target, and judge them."""

import json
from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

Place = tuple[int, int]
"""A partition and an offset."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Invocation:
    """One invocation of the target: when it began, its records by place, and whether it came to its end."""

    request_id: str
    pid: int
    began_ms: float
    places: tuple[Place, ...]
    values: tuple[str, ...]
    sent_ms: tuple[int, ...]
    is_handled: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The judgement on the records.

    - `lost` were neither handled nor dead-lettered, and `both` were both.
    - `out_of_order` were handled for the first time after a later record of their partition was.
    - `again` were handled more than once.
    """

    handled: int
    dead: int
    lost: int
    both: int
    out_of_order: int
    again: int
    invocations: int

    @property
    def is_right(self) -> bool:
        """True if each record was handled or dead-lettered, and first in order."""
        return not (self.lost or self.out_of_order)


def read_ledger(path: Path) -> list[Invocation]:
    """All invocations, by the time of their beginning. Each has a line for its begin, and one more if it ended well."""
    begun: dict[tuple[str, float], Invocation] = {}
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    for line in lines:
        fact = json.loads(line)
        key = (fact["request_id"], fact["began_ms"])
        begun[key] = Invocation(
            request_id=fact["request_id"],
            pid=fact["pid"],
            began_ms=fact["began_ms"],
            places=tuple((partition, offset) for partition, offset, _, _ in fact["records"]),
            values=tuple(value for _, _, value, _ in fact["records"]),
            sent_ms=tuple(sent_ms for _, _, _, sent_ms in fact["records"]),
            is_handled=fact["state"] == "handled",
        )
    return sorted(begun.values(), key=lambda each: each.began_ms)


def judge(invocations: Sequence[Invocation], sent: Collection[Place], dead: Collection[Place]) -> Verdict:
    """The verdict on a subscription that was to deliver `sent` in order, and has moved `dead` to the dead letters."""
    times: defaultdict[Place, int] = defaultdict(int)
    highest: dict[int, int] = {}
    out_of_order = 0
    for each in invocations:
        if not each.is_handled:
            continue
        for partition, offset in each.places:
            if not times[partition, offset]:
                out_of_order += offset < highest.get(partition, -1)
                highest[partition] = max(offset, highest.get(partition, -1))
            times[partition, offset] += 1
    handled, gone = set(times), set(dead)
    return Verdict(
        handled=len(handled),
        dead=len(gone),
        lost=len(set(sent) - handled - gone),
        both=len(handled & gone),
        out_of_order=out_of_order,
        again=sum(count > 1 for count in times.values()),
        invocations=len(invocations),
    )
