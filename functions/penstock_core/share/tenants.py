"""The tenants of a partition's records that somebody has read, for a share group with sharing=fair.

A tenant is the 32-bit hash of a record's key, or of the value of a header. Records without one are of `NO_TENANT`, and
so are those that cannot be decoded, or that an instance does not know. Tenants decide an order and nothing else: a
record of a wrong tenant is handed out earlier or later. So no update rests on them, and no item has them.
"""

import zlib
from array import array
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field

from penstock_core.records.codec import Record
from penstock_core.share.record_set import Ranges, RecordSet, normalized
from penstock_core.share.share_group import FAIR_BY_KEY

NO_TENANT = 0
_BATCH_BYTES, _TENANT_BYTES, _RECORD_BYTES = 500, 150, 16  # of memory
_FIRSTS_RECORDS = 2_000  # of ranges whose first records are remembered
_FIRSTS_BYTES = 1_000_000  # of memory that these take, and a little more
FINISHED = -1  # in place of a tenant: there is no such record, or the filter does not take it


def tenant_of(fair_by: str, record: Record) -> int:
    """The tenant by the key, or by the last header of that name."""
    if fair_by == FAIR_BY_KEY:
        value = record.key
    else:
        value = next((value for name, value in reversed(record.headers) if name == fair_by), None)
    return NO_TENANT if value is None else zlib.crc32(value) or 1


@dataclass(frozen=True, slots=True)
class TenantBatch:
    """The tenant of each offset of a batch, or of its beginning. `length` is that of the whole batch in bytes."""

    base_offset: int
    tenants: Sequence[int]
    by_tenant: Mapping[int, Sequence[int]]
    length: int

    @classmethod
    def of(cls, base_offset: int, tenants: Sequence[int], length: int) -> "TenantBatch":
        """The tenants of the offsets from `base_offset` on; `FINISHED` for those that are to be passed over."""
        by_tenant: dict[int, array[int]] = {}
        for offset, tenant in enumerate(tenants, start=base_offset):
            if tenant not in by_tenant:
                by_tenant[tenant] = array("Q")
            by_tenant[tenant].append(offset)
        return cls(base_offset, array("q", tenants), by_tenant, length)

    @property
    def end(self) -> int:
        """The offset behind the last one that is known."""
        return self.base_offset + len(self.tenants)

    @property
    def size(self) -> int:
        """The bytes of memory that it takes, or a little more."""
        return _BATCH_BYTES + _TENANT_BYTES * len(self.by_tenant) + _RECORD_BYTES * len(self.tenants)

    def offsets(self, tenant: int, start: int, end: int) -> Sequence[int]:
        """The offsets of the tenant's records in `[start, end)`."""
        found = self.by_tenant.get(tenant, ())
        return found[bisect_left(found, start) : bisect_left(found, end)]

    def of_others(self, start: int, end: int, tenants: Set[int]) -> Iterable[tuple[int, Sequence[int]]]:
        """The offsets in `[start, end)` of all tenants but these. One tenant may come several times."""
        if end - start < len(self.by_tenant):
            part = self.tenants[start - self.base_offset : end - self.base_offset]
            return [(tenant, (offset,)) for offset, tenant in enumerate(part, start) if tenant not in tenants]
        return [(tenant, self.offsets(tenant, start, end)) for tenant in self.by_tenant.keys() - tenants]


@dataclass(slots=True)
class _Firsts:
    """What `KnownTenants.first_of` has found in ranges that are known whole: no later read changes it."""

    found: dict[tuple[Ranges, int], Mapping[int, Sequence[int]]] = field(default_factory=dict)
    size: int = 0

    def put(self, key: tuple[Ranges, int], found: Mapping[int, Sequence[int]]) -> None:
        if self.size > _FIRSTS_BYTES:
            self.found, self.size = {}, 0
        self.found[key] = found
        records = sum(map(len, found.values()))
        self.size += _BATCH_BYTES + _TENANT_BYTES * (len(key[0]) + len(found)) + _RECORD_BYTES * records


class KnownTenants:
    """Batches whose tenants are known, in order. They do not overlap.

    `before` are those that an instance knew before it read more.
    """

    def __init__(self, batches: Iterable[TenantBatch] = (), before: "KnownTenants | None" = None) -> None:
        self.batches = sorted(batches, key=_base_of)
        self._starts = [each.base_offset for each in self.batches]
        self._ends = [each.end for each in self.batches]
        self._batch_bytes = sum(each.size for each in self.batches)
        self._finished = [each for each in self.batches if FINISHED in each.by_tenant]
        self._covered = normalized(zip(self._starts, self._ends, strict=True))
        self._firsts: _Firsts = _Firsts() if before is None else before._firsts

    @property
    def size(self) -> int:
        """The bytes of memory that it takes, or a little more."""
        return self._batch_bytes + self._firsts.size

    def parts(self, start: int, end: int) -> Iterator[tuple[TenantBatch, int, int]]:
        """Each batch with offsets in `[start, end)`, and the first of these, and the one behind the last."""
        for index in range(max(0, bisect_right(self._starts, start) - 1), len(self._starts)):
            low, high = self._starts[index], self._ends[index]
            if low >= end:
                return
            low, high = low if low > start else start, high if high < end else end
            if low < high:
                yield self.batches[index], low, high

    def batch_at(self, offset: int) -> TenantBatch | None:
        """The batch that has the offset, None if it is unknown."""
        return next((batch for batch, _, _ in self.parts(offset, offset + 1)), None)

    def within(self, ranges: Ranges) -> list[TenantBatch]:
        """The batches that have offsets in these ranges, which rise."""
        ends = [end for _, end in ranges]
        places = ((bisect_right(ends, batch.base_offset), batch) for batch in self.batches)
        return [batch for place, batch in places if place < len(ranges) and ranges[place][0] < batch.end]

    def first_of(self, ranges: Ranges, most: int) -> Mapping[int, Sequence[int]]:
        """The first `most` offsets of each tenant, and `FINISHED`, in these ranges; unknown ones are of `NO_TENANT`.

        The next acquires ask for the same ranges: it remembers the answer if all of them are known.
        """
        if (found := self._firsts.found.get((ranges, most))) is not None:
            return found
        firsts: dict[int, list[int]] = {}
        full: set[int] = set()
        unknown = self.unknown(ranges)
        for start, end in unknown:
            firsts.setdefault(NO_TENANT, []).extend(range(start, min(end, start + most)))
        for start, end in ranges:
            for batch, low, high in self.parts(start, end):
                for tenant, offsets in batch.of_others(low, high, full):
                    known = firsts.setdefault(tenant, [])
                    known.extend(offsets[:most])
                    if len(known) >= most and tenant != NO_TENANT:
                        full.add(tenant)
        answer = {tenant: sorted(offsets)[:most] for tenant, offsets in firsts.items() if offsets}
        if not unknown and RecordSet(ranges).count <= _FIRSTS_RECORDS:
            self._firsts.put((ranges, most), answer)
        return answer

    def count(self, ranges: Ranges) -> Counter[int]:
        """The records of each tenant in these ranges; unknown ones are of `NO_TENANT`."""
        found: Counter[int] = Counter()
        for start, end in ranges:
            found[NO_TENANT] += end - start
            for batch, low, high in self.parts(start, end):
                found.update(batch.tenants[low - batch.base_offset : high - batch.base_offset])
                found[NO_TENANT] -= high - low
        del found[FINISHED]
        return +found

    def end_from(self, offset: int) -> int:
        """The end of what is known without a gap from an offset on."""
        return next((end for start, end in self._covered if start <= offset < end), offset)

    def finished(self, start: int, end: int) -> Ranges:
        """The offsets in `[start, end)` that are to be passed over."""
        return normalized(
            (offset, offset + 1) for batch in self._finished for offset in batch.offsets(FINISHED, start, end)
        )

    def unknown(self, ranges: Ranges) -> Ranges:
        """The part of the ranges that no batch has."""
        return RecordSet(ranges).minus(self._covered).ranges


def _base_of(batch: TenantBatch) -> int:
    return batch.base_offset
