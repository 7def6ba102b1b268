"""LogIndex in memory, as faithful as the one on DynamoDB."""

import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace

from penstock_core.ids import Offset
from penstock_core.index import (
    EMPTY_HEAD,
    Head,
    Page,
    Roll,
    appended,
    appended_in_sequence,
    rolled,
    unknown_partition,
    with_log_start,
    with_zones_marked,
)
from penstock_core.keys import PartitionKey
from penstock_core.producer_state import ProducerSequence, ProducerState
from penstock_core.ref import LocatedRef, Ref


class MemoryLogIndex:
    """LogIndex."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._heads: dict[PartitionKey, Head] = {}
        self._pages: dict[PartitionKey, list[Page]] = {}
        self._evicted: dict[tuple[PartitionKey, int], ProducerState] = {}

    def held(self) -> AbstractContextManager[object]:
        """While it is entered, nobody else changes anything."""
        return self._lock

    def create_head(self, key: PartitionKey) -> None:
        with self._lock:
            self._heads.setdefault(key, EMPTY_HEAD)

    def delete_head(self, key: PartitionKey) -> None:
        with self._lock:
            self._heads.pop(key, None)

    def heads(self, partitions: Sequence[PartitionKey]) -> Mapping[PartitionKey, Head]:
        with self._lock:
            return {key: self._heads[key] for key in partitions if key in self._heads}

    def append(self, key: PartitionKey, ref: Ref, unconfirmed_zones: int) -> Head:  # noqa: ARG002 - nothing reads it here
        return self._change(key, lambda head: appended(head, ref))

    def append_in_sequence(
        self,
        key: PartitionKey,
        ref: Ref,
        unconfirmed_zones: int,  # noqa: ARG002 - nothing reads it here
        sequence: ProducerSequence,
        unlisted_since: int,
    ) -> tuple[bool, Head]:
        with self._lock:
            if key not in self._heads:
                raise unknown_partition(key)
            head = self._heads[key]
            changed = appended_in_sequence(head, ref, sequence, unlisted_since)
            self._heads[key] = changed or head
            return changed is not None, self._heads[key]

    def evicted_producer(self, key: PartitionKey, producer_id: int) -> ProducerState | None:
        return self._evicted.get((key, producer_id))

    def roll(self, key: PartitionKey, roll: Roll) -> bool:
        with self._lock:
            head = self._heads.get(key)
            changed = rolled(head, roll) if head is not None else None
            if changed is None:
                return False
            self._heads[key] = changed
            self._pages.setdefault(key, []).append(roll.page)
            self._evicted.update({(key, producer_id): state for producer_id, state in roll.evicted.items()})
            return True

    def pages(self, key: PartitionKey, offset: Offset, limit: int) -> Sequence[Page]:
        with self._lock:
            return [page for page in self._pages.get(key, ()) if page.end_offset > offset][:limit]

    def pages_before(self, key: PartitionKey, offset: Offset, limit: int) -> Sequence[Page]:
        with self._lock:
            return [page for page in reversed(self._pages.get(key, ())) if page.end_offset <= offset][:limit]

    def raise_log_start(self, key: PartitionKey, offset: Offset) -> Head:
        return self._change(key, lambda head: with_log_start(head, offset))

    def mark_stored(self, key: PartitionKey, located: LocatedRef, zones: int) -> bool:
        with self._lock:
            head = self._heads.get(key)
            if head is None:
                return False
            marked = with_zones_marked(head.tail_base, head.tail, located, zones)
            if marked is not None:
                self._heads[key] = replace(head, tail=_with(head.tail, *marked))
                return True
            pages = self._pages.get(key, [])
            for number, page in enumerate(pages):
                marked = with_zones_marked(page.base_offset, page.refs, located, zones)
                if marked is not None:
                    pages[number] = replace(page, refs=_with(page.refs, *marked))
                    return True
            return False

    def note_log_start(self, key: PartitionKey, offset: Offset, seen_ms: int) -> None:
        self._change(key, lambda head: replace(head, settling_offset=offset, settling_since_ms=seen_ms))

    def delete_page(self, key: PartitionKey, end_offset: Offset) -> None:
        with self._lock:
            self._pages[key] = [page for page in self._pages.get(key, ()) if page.end_offset != end_offset]

    def swap_pages(self, key: PartitionKey, old: Sequence[Page], new: Sequence[Page]) -> bool:
        """Exchanges pages; False, and nothing changed, unless the old ones stand there as they are given."""
        with self._lock:
            pages = self._pages.get(key, [])
            if key not in self._heads or any(page not in pages for page in old):
                return False
            kept = [page for page in pages if page not in old]
            self._pages[key] = sorted((*kept, *new), key=lambda page: page.end_offset)
            return True

    def _change(self, key: PartitionKey, change: Callable[[Head], Head]) -> Head:
        with self._lock:
            if key not in self._heads:
                raise unknown_partition(key)
            self._heads[key] = change(self._heads[key])
            return self._heads[key]


def _with(refs: tuple[Ref, ...], index: int, ref: Ref) -> tuple[Ref, ...]:
    return (*refs[:index], ref, *refs[index + 1 :])
