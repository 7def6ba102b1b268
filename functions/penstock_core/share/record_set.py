"""Sets of records of one partition: half-open ranges of offsets, and with order by key a hash for each record.

The ranges are sorted, not empty, and do not touch. So equal sets are equal values.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

Range = tuple[int, int]
Ranges = tuple[Range, ...]


@dataclass(frozen=True, slots=True)
class RecordSet:
    """Offsets `ranges`, and `hashes`: one for each record in order, or none at all without order by key."""

    ranges: Ranges = ()
    hashes: tuple[int, ...] = field(default=())

    @property
    def count(self) -> int:
        """The number of records."""
        return sum(end - start for start, end in self.ranges)

    @property
    def start(self) -> int:
        """The first offset. Raises IndexError for an empty set."""
        return self.ranges[0][0]

    @property
    def end(self) -> int:
        """The offset behind the last record. Raises IndexError for an empty set."""
        return self.ranges[-1][1]

    def offsets(self) -> Iterator[int]:
        """Each offset, in order."""
        for start, end in self.ranges:
            yield from range(start, end)

    def hash_by_offset(self) -> dict[int, int]:
        """The hash of each record; empty without order by key."""
        return dict(zip(self.offsets(), self.hashes, strict=True)) if self.hashes else {}

    def shifted(self, distance: int) -> "RecordSet":
        """The same set, with `distance` added to each offset."""
        if not distance:
            return self
        return RecordSet(tuple((start + distance, end + distance) for start, end in self.ranges), self.hashes)

    def only(self, ranges: Ranges) -> "RecordSet":
        """The records that lie in `ranges`."""
        return self._part(_intersection(self.ranges, ranges))

    def minus(self, ranges: Ranges) -> "RecordSet":
        """The records that do not lie in `ranges`."""
        return self._part(_difference(self.ranges, ranges))

    def first(self, count: int) -> "RecordSet":
        """The first `count` records, or all if there are fewer."""
        return self._part(_first(self.ranges, count))

    def plus(self, other: "RecordSet") -> "RecordSet":
        """The records of both sets, which have none in common. Either both have hashes or none has."""
        merged = normalized((*self.ranges, *other.ranges))
        if not (self.hashes or other.hashes):
            return RecordSet(merged)
        hashes = self.hash_by_offset() | other.hash_by_offset()
        return RecordSet(merged, tuple(hashes[offset] for offset in RecordSet(merged).offsets()))

    def _part(self, ranges: Ranges) -> "RecordSet":
        if not self.hashes or ranges == self.ranges:
            return RecordSet(ranges, self.hashes if ranges else ())
        hashes = self.hash_by_offset()
        return RecordSet(ranges, tuple(hashes[offset] for start, end in ranges for offset in range(start, end)))


EMPTY = RecordSet()


def normalized(ranges: Iterable[Range]) -> Ranges:
    """The same offsets as sorted ranges that do not touch. Empty ranges vanish."""
    merged: list[Range] = []
    for start, end in sorted(ranges):
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        elif start < end:
            merged.append((start, end))
    return tuple(merged)


def _intersection(one: Ranges, other: Ranges) -> Ranges:
    found: list[Range] = []
    others, at = sorted(other), 0
    for start, end in one:
        while at < len(others) and others[at][1] <= start:
            at += 1
        for place in range(at, len(others)):
            other_start, other_end = others[place]
            if other_start >= end:
                break
            found.append((max(start, other_start), min(end, other_end)))
    return tuple(found)


def _difference(one: Ranges, other: Ranges) -> Ranges:
    found: list[Range] = []
    others, at = sorted(other), 0
    for start, end in one:
        while at < len(others) and others[at][1] <= start:
            at += 1
        left = start
        for place in range(at, len(others)):
            cut_start, cut_end = others[place]
            if cut_start >= end:
                break
            if cut_start > left:
                found.append((left, cut_start))
            left = max(left, cut_end)
        if left < end:
            found.append((left, end))
    return tuple(found)


def _first(ranges: Ranges, count: int) -> Ranges:
    taken: list[Range] = []
    for start, end in ranges:
        if count <= 0:
            break
        taken.append((start, min(end, start + count)))
        count -= end - start
    return tuple(taken)
