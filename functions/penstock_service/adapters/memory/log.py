"""LogIndex in memory, as faithful as the one on DynamoDB, with DynamoDB's limits and the stream of its table."""

import threading
from bisect import insort
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import partial, reduce

from penstock_core.compaction.tail_move import TailMove, moved
from penstock_core.ids import Offset, PartitionKey
from penstock_core.log.delivery import Delivery
from penstock_core.log.index import (
    EMPTY_HEAD,
    Head,
    HeadAppend,
    HeadJump,
    Page,
    appended,
    appended_in_sequence,
    armed,
    in_layout,
    jumped,
    partition_closed,
    push_armed,
    unknown_partition,
    with_log_start,
    with_zones_marked,
    without_waiter,
)
from penstock_core.log.push_event import PushEvent, push_event
from penstock_core.log.ref import LocatedRef, Ref
from penstock_core.log.roll import shortened, without_producers
from penstock_core.records.producer_state import ProducerSequence, ProducerState
from penstock_core.storage.dynamodb_limits import check_item, check_update
from penstock_core.storage.head_item import head_item
from penstock_core.storage.head_updates import (
    arming,
    jumping,
    layout_move,
    producers_removal,
    push_arming,
    tail_moving,
    tail_shortening,
)
from penstock_core.storage.page_item import page_item
from penstock_service.adapters.memory.contention import Contention

_SMALL = 2_000  # refs and producers: with fewer, a head is far from DynamoDB's bound


class MemoryLogIndex:
    """LogIndex: the port documents its methods.

    `push_events` stands for the table's stream, and for its filter on push waiters.
    """

    def __init__(self, contention: Contention | None = None) -> None:
        self._contention = contention
        self._lock = threading.RLock()
        self._heads: dict[PartitionKey, Head] = {}
        self._pages: dict[PartitionKey, list[Page]] = {}
        self._marks: dict[PartitionKey, set[Offset]] = {}  # the ends of pages that were merged
        self._evicted: dict[tuple[PartitionKey, int], tuple[ProducerState, int]] = {}
        self._push_events: list[PushEvent] = []

    def held(self) -> AbstractContextManager[object]:
        """A context in which no other thread changes this store."""
        return self._lock

    def push_events(self) -> Sequence[PushEvent]:
        """What writes took push waiters out of heads, in order, up to `forget_push_events`."""
        with self._lock:
            return tuple(self._push_events)

    def forget_push_events(self, count: int) -> None:
        """Forgets the first events, which have been handled. A process that dies before meets them again."""
        with self._lock:
            del self._push_events[:count]

    def create_head(self, key: PartitionKey, has_push_waiter: bool = False) -> None:
        with self._lock:
            self._heads.setdefault(key, replace(EMPTY_HEAD, has_push_waiter=has_push_waiter))

    def delete_head(self, key: PartitionKey) -> None:
        with self._lock:
            self._heads.pop(key, None)

    def heads(self, partitions: Sequence[PartitionKey]) -> Mapping[PartitionKey, Head]:
        with self._lock:
            return {key: self._heads[key] for key in partitions if key in self._heads}

    def append(self, key: PartitionKey, ref: Ref, unconfirmed_zones: int) -> HeadAppend:  # noqa: ARG002 - unread here
        done = self._append(key, lambda head: None if head.is_closed else appended(head, ref))
        if not done.is_appended:
            raise partition_closed(key)
        return done

    def append_in_sequence(
        self,
        key: PartitionKey,
        ref: Ref,
        unconfirmed_zones: int,  # noqa: ARG002 - nothing reads it here
        sequence: ProducerSequence,
        looked_at: Offset | None,
    ) -> HeadAppend:
        return self._append(key, lambda head: appended_in_sequence(head, ref, sequence, looked_at))

    def arm(self, key: PartitionKey, seen_next_offset: Offset, now_ms: int) -> tuple[bool, Head | None]:
        check_update(arming(key, seen_next_offset, now_ms))
        return self._change_if(key, lambda head: armed(head, seen_next_offset, now_ms))

    def arm_push(self, key: PartitionKey, seen_next_offset: Offset) -> tuple[bool, Head | None]:
        check_update(push_arming(key, seen_next_offset))
        return self._change_if(key, lambda head: push_armed(head, seen_next_offset))

    def move_to_layout(self, key: PartitionKey, layout: int, closed_ms: int | None) -> Head | None:
        check_update(layout_move(key, layout, closed_ms))
        return self._change_if(key, lambda head: in_layout(head, layout, closed_ms))[1]

    def jump(self, key: PartitionKey, jump: HeadJump, unconfirmed_zones: int) -> tuple[bool, Head | None]:
        check_update(jumping(key, jump, unconfirmed_zones))
        return self._change_if(key, lambda head: jumped(head, jump))

    def evicted_producer(self, key: PartitionKey, producer_id: int) -> ProducerState | None:
        there = self._evicted.get((key, producer_id))
        return None if there is None else there[0]

    def put_page(self, key: PartitionKey, page: Page) -> Page | None:
        with self._lock:
            if page.end_offset in self._marks.get(key, ()):
                return None
            pages = self._pages.setdefault(key, [])
            there = next((each for each in pages if each.end_offset == page.end_offset), None)
            if there is None:
                check_item(page_item(key, page))
                insort(pages, page, key=_end)
            return there or page

    def replace_page(self, key: PartitionKey, old: Page, new: Page) -> bool:
        with self._lock:
            pages = self._pages.get(key, [])
            for number, page in enumerate(pages):
                if (page.base_offset, page.refs) == (old.base_offset, old.refs):
                    pages[number] = replace(page, refs=new.refs)
                    return True
            return False

    def shorten_tail(self, key: PartitionKey, page: Page) -> tuple[bool, Head | None]:
        check_update(tail_shortening(key, page))
        return self._change_if(key, lambda head: shortened(head, page))

    def put_evicted(self, key: PartitionKey, producer_id: int, state: ProducerState, evicted_ms: int) -> None:
        with self._lock:
            there = self._evicted.get((key, producer_id))
            if there is None or _precedence(*there) <= _precedence(state, evicted_ms):
                self._evicted[key, producer_id] = state, evicted_ms

    def remove_producers(self, key: PartitionKey, leaving: Mapping[int, ProducerState]) -> tuple[bool, Head | None]:
        check_update(producers_removal(key, leaving))
        return self._change_if(key, lambda head: without_producers(head, leaving))

    def pages(self, key: PartitionKey, offset: Offset, limit: int) -> Sequence[Page]:
        with self._lock:
            return [page for page in self._pages.get(key, ()) if page.end_offset > offset][:limit]

    def pages_before(self, key: PartitionKey, offset: Offset, limit: int) -> Sequence[Page]:
        with self._lock:
            return [page for page in reversed(self._pages.get(key, ())) if page.end_offset <= offset][:limit]

    def raise_log_start(self, key: PartitionKey, offset: Offset) -> Head:
        self._wait(key)
        return self._change(key, lambda head: with_log_start(head, offset))

    def mark_stored(self, key: PartitionKey, marks: Mapping[LocatedRef, int]) -> int:
        self._wait(key)
        with self._lock:
            head = self._heads.get(key)
            if head is None:
                return 0
            tail, found = with_zones_marked(head.tail_base, head.tail, marks)
            self._heads[key] = replace(head, tail=tail)
            rolled = {located: zones for located, zones in marks.items() if located.base_offset < head.tail_base}
            pages = self._pages.get(key, [])
            for number, page in enumerate(pages):
                covered = {located: zones for located, zones in rolled.items() if located.base_offset < page.end_offset}
                rolled = {located: zones for located, zones in rolled.items() if located not in covered}
                refs, count = with_zones_marked(page.base_offset, page.refs, covered)
                pages[number] = replace(page, refs=refs)
                found += count
            return found

    def note_log_start(self, key: PartitionKey, offset: Offset, seen_ms: int) -> None:
        self._wait(key)
        self._change(key, lambda head: replace(head, noted_log_start=offset, log_start_noted_ms=seen_ms))

    def delete_page(self, key: PartitionKey, end_offset: Offset) -> None:
        with self._lock:
            self._pages[key] = [page for page in self._pages.get(key, ()) if page.end_offset != end_offset]

    def swap_pages(self, key: PartitionKey, old: Sequence[Page], new: Sequence[Page]) -> bool:
        """Exchanges pages, and leaves a mark in the place of each that has no successor with the same end.

        False, and nothing is changed, unless all of `old` are stored as they are given, and the tail base is not below
        their end.
        """
        with self._lock:
            pages, head = self._pages.get(key, []), self._heads.get(key)
            if head is None or head.tail_base < old[-1].end_offset or any(page not in pages for page in old):
                return False
            ends = {page.end_offset for page in new}
            self._marks[key] = (self._marks.get(key, set()) | {page.end_offset for page in old}) - ends
            self._pages[key] = sorted([*(page for page in pages if page not in old), *new], key=_end)
            return True

    def append_held(self, key: PartitionKey, refs: Sequence[Ref]) -> None:
        """Appends, for a transaction that holds the head. One write."""
        self._change(key, lambda head: reduce(appended, refs, head))

    def deliver_held(self, delivery: Delivery) -> bool:
        """Appends the refs of timers, for a transaction that holds the head. False if a rolling delivery is refused."""
        key, roll = delivery.key, delivery.roll
        if roll is not None:
            head = self._heads.get(key)
            if head is None or (head.tail_base, head.tail) != (roll.before.tail_base, roll.before.tail):
                return False
            ends = {page.end_offset for page in roll.pages}
            if ends & ({page.end_offset for page in self._pages.get(key, ())} | self._marks.get(key, set())):
                return False
        self.append_held(key, delivery.refs)
        for page in () if roll is None else roll.pages:
            self.put_page(key, page)
            self._change_if(key, partial(shortened, page=page), is_held=True)
        return True

    def move_held(self, key: PartitionKey, move: TailMove) -> bool:
        """Exchanges refs of the tail, for a transaction that holds the head."""
        check_update(tail_moving(key, move))
        return self._change_if(key, lambda head: moved(head, move), is_held=True)[0]

    def _append(self, key: PartitionKey, append: Callable[[Head], Head | None]) -> HeadAppend:
        self._wait(key)
        with self._lock:
            before = self._heads.get(key)
            is_appended, head = self._change_if(key, lambda head: _untaken(append(head)), is_held=True)
        if before is None or head is None:
            raise unknown_partition(key)
        return HeadAppend(is_appended=is_appended, head=head, took_waiter=is_appended and before.waiter_ms is not None)

    def _wait(self, key: PartitionKey) -> None:
        """Waits while a transaction holds the head."""
        if self._contention is not None:
            self._contention.write(key)

    def _change(self, key: PartitionKey, change: Callable[[Head], Head]) -> Head:
        _, head = self._change_if(key, change, is_held=True)
        if head is None:
            raise unknown_partition(key)
        return head

    def _change_if(
        self, key: PartitionKey, change: Callable[[Head], Head | None], *, is_held: bool = False
    ) -> tuple[bool, Head | None]:
        """Whether `change` gave a new head, and the head then; None if there is none."""
        if not is_held:
            self._wait(key)
        with self._lock:
            head = self._heads.get(key)
            changed = None if head is None else change(head)
            if head is None or changed is None:
                return False, head
            if len(changed.tail) + len(changed.producers) > _SMALL:
                check_item(head_item(key, changed))
            self._heads[key] = changed
            if event := push_event(key, head, changed):
                self._push_events.append(event)
            return True, changed


def _untaken(head: Head | None) -> Head | None:
    return None if head is None else without_waiter(head)


def _end(page: Page) -> Offset:
    return page.end_offset


def _precedence(state: ProducerState, evicted_ms: int) -> tuple[int, int, int]:
    return state.epoch, state.last_sequence, evicted_ms
