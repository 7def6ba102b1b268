"""What readers of the compacted topic may miss, and what not: a record is gone only if a newer one of its key is known.

The newest known of each key is there for every reader that comes by, at the offset that its producer was told; whoever
reads after all has ended finds it, or something newer of the key. Nothing moves, nothing is there twice, nothing that
failed is there. Tombstones stay for a day, so here they count as any record.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.chaos.keyed_clients import READ, SENT

Content = tuple[str, str | None]  # key, value


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyedVerdict:
    """`violations` are sentences. `removed` records were acknowledged and are not there at the end, as newer ones are;
    `lost` are those of which no newer one is known."""

    acknowledged: int
    removed: int
    lost: int
    violations: tuple[str, ...]


def judge_keyed(folder: Path, readers: Sequence[str]) -> KeyedVerdict:
    """By the notes of `folder`. `readers` are those who read everything at the end."""
    told = list(_lines(folder / SENT)) if (folder / SENT).exists() else []
    passes = {path.name.removesuffix(f".{READ}"): list(_lines(path)) for path in sorted(folder.glob(f"*.{READ}"))}
    known = _Known()
    for each in told:
        if each["offset"] is not None:
            known.learn(each["partition"], each["offset"], (each["key"], each["value"]))
    acknowledged = set(known.contents)
    for polls in passes.values():
        for poll in polls:
            for offset, key, value in poll["records"]:
                known.learn(poll["partition"], offset, (key, value))
    violations = [*known.conflicts, *_unsent(told, known)]
    lost: set[tuple[int, int]] = set()
    for name, polls in passes.items():
        missed = known.missed(polls)
        lost |= missed
        if missed:
            violations.append(
                f"{name} passed over {len(missed):,} records that nothing supersedes, {min(missed)} among them"
            )
        violations += _out_of_order(name, polls)
    at_end = acknowledged
    for reader in readers:
        found = {(poll["partition"], row[0]) for poll in passes.get(reader, []) for row in poll["records"]}
        at_end = at_end & found
        unfound = set(known.newest().values()) - found
        lost |= unfound
        if unfound:
            violations.append(
                f"{reader} did not find the newest records of {len(unfound):,} keys, {min(unfound)} among them"
            )
    return KeyedVerdict(
        acknowledged=len(acknowledged),
        removed=len(acknowledged - at_end - lost),
        lost=len(lost),
        violations=tuple(violations),
    )


class _Known:
    """What acknowledgements and polls have told: what lies where."""

    def __init__(self) -> None:
        self.contents: dict[tuple[int, int], Content] = {}
        self.conflicts: list[str] = []
        self._places: dict[str, tuple[int, int]] = {}

    def learn(self, partition: int, offset: int, content: Content) -> None:
        place = partition, offset
        if self.contents.setdefault(place, content) != content:
            self.conflicts.append(f"{self.contents[place]} and {content} are both at {place}")
        value = content[1]
        if value is not None and self._places.setdefault(value, place) != place:
            self.conflicts.append(f"{value} is at {self._places[value]} and at {place}")

    def newest(self) -> dict[tuple[int, str], tuple[int, int]]:
        """Where the newest record of each partition's keys is."""
        return {(place[0], self.contents[place][0]): place for place in sorted(self.contents)}

    def missed(self, polls: Sequence[dict[str, Any]]) -> set[tuple[int, int]]:
        """The newest records of their keys that the polls of a pass passed over."""
        missed: set[tuple[int, int]] = set()
        newest = set(self.newest().values())
        for poll in polls:
            found = {row[0] for row in poll["records"]}
            passed = set(range(poll["from"], poll["to"])) - found
            missed |= {(poll["partition"], offset) for offset in passed} & newest
        return missed


def _unsent(told: Sequence[dict[str, Any]], known: _Known) -> Iterator[str]:
    """What was read although nobody sent it, or its sending had failed for certain."""
    sent = {(each["key"], each["value"]) for each in told}
    failed = {each["value"] for each in told if each["offset"] is None and not each["maybe_applied"]} - {None}
    for place, content in sorted(known.contents.items()):
        if content not in sent:
            yield f"{content} at {place} was never sent"
        elif content[1] in failed:
            yield f"{content} at {place} had failed"


def _out_of_order(name: str, polls: Sequence[dict[str, Any]]) -> Iterator[str]:
    positions: dict[int, int] = {}
    for poll in polls:
        offsets = [row[0] for row in poll["records"]]
        start = positions.get(poll["partition"], 0)
        if (
            poll["from"] != start
            or offsets != sorted({*offsets})
            or any(not start <= each < poll["to"] for each in offsets)
        ):
            yield f"{name} was given {offsets} of partition {poll['partition']} from {start} to {poll['to']}"
        positions[poll["partition"]] = poll["to"]


def _lines(path: Path) -> Iterator[Any]:
    with path.open() as lines:
        for line in lines:
            yield json.loads(line)
