"""Sets the bits of zones in stored refs: one conditional update for all refs of a tail, and one for those of a page.

An update asks that the refs are as they were read. So it meets no append, and a roll or another mark makes it begin
again with those refs.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol

from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.ids import Offset, PartitionKey
from penstock_core.limits import MARK_ATTEMPTS_MAX, TAIL_ROLL_REFS
from penstock_core.log.index import Head, Page, with_zones_marked
from penstock_core.log.ref import LocatedRef, encode_ref, encode_refs
from penstock_core.storage.head_item import head_key
from penstock_core.storage.item import ConditionalUpdate, Item, number
from penstock_core.storage.page_item import page_item_key
from penstock_service.adapters.dynamodb.client import DynamoDbClient

Marks = dict[LocatedRef, int]


class Index(Protocol):
    """The reads of the log index."""

    def heads(self, partitions: Sequence[PartitionKey]) -> Mapping[PartitionKey, Head]:
        """As LogIndex."""

    def pages(self, key: PartitionKey, offset: Offset, limit: int) -> Sequence[Page]:
        """As LogIndex."""


class RefMarker:
    """Marks the refs of one partition."""

    def __init__(self, client: DynamoDbClient, table: str, index: Index, key: PartitionKey) -> None:
        self._client = client
        self._table = table
        self._index = index
        self._key = key

    def mark(self, marks: Mapping[LocatedRef, int]) -> int:
        """As `LogIndex.mark_stored`."""
        left = {located: marks[located] for located in sorted(marks, key=lambda each: each.base_offset)}
        found = 0
        for _ in range(MARK_ATTEMPTS_MAX):
            head = self._index.heads([self._key]).get(self._key)
            if head is None:
                return found
            refused: Marks = {}
            for part, count in self._marked_parts(head, left):
                if count is None:
                    refused |= part
                else:
                    found += count
            if not refused:
                return found
            left = refused
        raise PenstockError(
            ErrorCode.CONCURRENT_UPDATE,
            f"the ref at offset {next(iter(left)).base_offset} of partition {self._key} was changed by other writers "
            f"{MARK_ATTEMPTS_MAX} times meanwhile: try again",
        )

    def _marked_parts(self, head: Head, left: Marks) -> Iterator[tuple[Marks, int | None]]:
        """Each part of `left` that one update can mark, and how many refs of it there are; None if it was refused."""
        rolled = {located: zones for located, zones in left.items() if located.base_offset < head.tail_base}
        in_tail = [each for each in left.items() if each[0] not in rolled]
        for first in range(0, len(in_tail), TAIL_ROLL_REFS):
            part = dict(in_tail[first : first + TAIL_ROLL_REFS])
            yield part, self._mark_in_tail(head, part)
        while rolled:
            pages = self._index.pages(self._key, next(iter(rolled)).base_offset, 1)
            if not pages:
                return
            part = {each: zones for each, zones in rolled.items() if each.base_offset < pages[0].end_offset}
            rolled = {each: zones for each, zones in rolled.items() if each not in part}
            yield part, self._mark_in_page(pages[0], part)

    def _mark_in_tail(self, head: Head, marks: Marks) -> int | None:
        """None if the tail was rolled, or one of the refs changed, since `head` was read."""
        tail, found = with_zones_marked(head.tail_base, head.tail, marks)
        changed = [index for index, (old, new) in enumerate(zip(head.tail, tail, strict=True)) if old != new]
        if not changed:
            return found
        values: Item = {":base": number(head.tail_base), ":none": number(0)}
        for index in changed:
            values[f":new{index}"] = {"B": encode_ref(tail[index])}
            values[f":old{index}"] = {"B": encode_ref(head.tail[index])}
        # The stream has carried each value of under_replicated when an append wrote it. So clearing it here hides
        # nothing, and keeps this update from waking the function `replicate`.
        sets = [*(f"tail[{index}] = :new{index}" for index in changed), "under_replicated = :none"]
        conditions = ["tail_base = :base", *(f"tail[{index}] = :old{index}" for index in changed)]
        update = ConditionalUpdate(
            key=head_key(self._key), update=f"SET {', '.join(sets)}", condition=" AND ".join(conditions), values=values
        )
        return found if self._client.update_if(self._table, update) else None

    def _mark_in_page(self, page: Page, marks: Marks) -> int | None:
        """None if the page changed since it was read."""
        refs, found = with_zones_marked(page.base_offset, page.refs, marks)
        if refs == page.refs:
            return found
        values: Item = {":new": {"B": encode_refs(refs)}, ":old": {"B": encode_refs(page.refs)}}
        update = ConditionalUpdate(
            key=page_item_key(self._key, page.end_offset),
            update="SET refs = :new",
            condition="refs = :old",
            values=values,
        )
        return found if self._client.update_if(self._table, update) else None
