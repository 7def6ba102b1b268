"""The verdict on the compacted topic: a reader may miss a record only if a newer one of its key is known.

Every reader must find the newest known record of each key, at the offset that its producer was told. A reader after the
run finds that record, or a newer one of the key. No record moves, is there twice, or was reported as failed. Tombstones
stay for a day, so here they count as any record.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.chaos.clients.keyed_clients import READ, SENT

Content = tuple[str, str | None]  # key, value


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyedVerdict:
    """The verdict. `violations` are sentences.

    `removed` counts acknowledged records that are gone at the end and have a newer one of their key. `lost` counts gone
    records without a newer one.
    """

    acknowledged: int
    removed: int
    lost: int
    violations: tuple[str, ...]


def judge_keyed(folder: Path, readers: Sequence[str]) -> KeyedVerdict:
    """Judge the notes of `folder`. `readers` are the readers that read everything at the end."""
    answers = list(_lines(folder / SENT)) if (folder / SENT).exists() else []
    passes = {path.name.removesuffix(f".{READ}"): list(_lines(path)) for path in sorted(folder.glob(f"*.{READ}"))}
    known = _Known()
    for each in answers:
        if each["offset"] is not None:
            known.learn(each["partition"], each["offset"], (each["key"], each["value"]))
    acknowledged = set(known.contents)
    for polls in passes.values():
        for poll in polls:
            for offset, key, value in poll["records"]:
                known.learn(poll["partition"], offset, (key, value))
    violations = [*known.conflicts, *_unsent(answers, known)]
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
    """The records and their offsets, by the acknowledgements and the polls."""

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
        """Return the offset of the newest record of each key of each partition."""
        return {(place[0], self.contents[place][0]): place for place in sorted(self.contents)}

    def missed(self, polls: Sequence[dict[str, Any]]) -> set[tuple[int, int]]:
        """Return the newest records of their keys that the polls of a pass skipped."""
        missed: set[tuple[int, int]] = set()
        newest = set(self.newest().values())
        for poll in polls:
            found = {row[0] for row in poll["records"]}
            passed = set(range(poll["from"], poll["to"])) - found
            missed |= {(poll["partition"], offset) for offset in passed} & newest
        return missed


def _unsent(answers: Sequence[dict[str, Any]], known: _Known) -> Iterator[str]:
    """Return the records that were read, but never sent, or whose send certainly failed."""
    sent = {(each["key"], each["value"]) for each in answers}
    failed = {each["value"] for each in answers if each["offset"] is None and not each["maybe_applied"]} - {None}
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
