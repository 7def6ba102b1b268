"""Defects put into rolls and evictions (see mutant.py)."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any
from unittest.mock import patch

from penstock_core.ids import Offset, PartitionKey
from penstock_core.limits import EVICTION_PRODUCERS_MAX, HEAD_PRODUCERS_KEPT
from penstock_core.log.index import Head, Page, appended_in_sequence
from penstock_core.log.ref import Ref
from penstock_core.log.roll import next_page, shortened
from penstock_core.records.producer_state import ProducerSequence, ProducerState
from penstock_service.adapters.memory import log as memory_log
from penstock_service.adapters.memory.log import MemoryLogIndex
from penstock_service.records import shorten_head as shorten_module
from tests.simulation.mutants.mutant import Mutant, Patch


def _roll_without_condition() -> Patch:
    def without(head: Head, page: Page) -> Head:
        return replace(
            head,
            tail_base=page.end_offset,
            tail=head.tail[len(page.refs) :],
            rolled_max_timestamp_ms=page.max_timestamp_ms,
        )

    return patch.object(memory_log, "shortened", without)


def _roll_without_bits() -> Patch:
    """The update of the head looks at the tail base only."""

    def by_base(head: Head, page: Page) -> Head | None:
        return shortened(replace(head, tail=(*page.refs, *head.tail[len(page.refs) :])), page)

    return patch.object(memory_log, "shortened", by_base)


def _found_page_keeps_its_bits() -> Patch:
    """A roller that finds its page leaves it as it is, and goes on."""
    return patch.object(MemoryLogIndex, "replace_page", lambda *_: True)


def _roll_drops_a_ref() -> Patch:
    original = MemoryLogIndex.put_page

    def put_page(log: Any, key: PartitionKey, page: Page) -> Page | None:
        rest = replace(page, base_offset=Offset(page.base_offset + page.refs[0].offset_span), refs=page.refs[1:])
        return None if original(log, key, rest) is None else page

    return patch.object(MemoryLogIndex, "put_page", put_page)


def _roll_never() -> Patch:
    return patch.object(shorten_module, "is_roll_due", lambda *_: False)


def _page_is_put_over_another() -> Patch:
    def put_page(log: Any, key: PartitionKey, page: Page) -> Page:
        with log.held():
            kept = [each for each in log._pages.get(key, ()) if each.end_offset != page.end_offset]
            log._pages[key] = sorted([*kept, page], key=lambda each: each.end_offset)
        return page

    return patch.object(MemoryLogIndex, "put_page", put_page)


def _head_is_shortened_before_the_page_is_put() -> Patch:
    original = shorten_module._roll

    def roll(instance: Any, key: PartitionKey, look: Any) -> Any:
        page = None if look.head is None else next_page(look.head)
        if page is None or not instance.stores.log.shorten_tail(key, page)[0]:
            return None
        instance.stores.log.put_page(key, page)
        return original(instance, key, shorten_module._look(instance, key))

    return patch.object(shorten_module, "_roll", roll)


def _merge_leaves_no_marks() -> Patch:
    original = MemoryLogIndex.swap_pages

    def swap_pages(log: Any, key: PartitionKey, old: Sequence[Page], new: Sequence[Page]) -> bool:
        is_done = original(log, key, old, new)
        log._marks.clear()
        return is_done

    return patch.object(MemoryLogIndex, "swap_pages", swap_pages)


def _evicted_producers_are_forgotten() -> Patch:
    return patch.object(MemoryLogIndex, "evicted_producer", lambda *_: None)


def _old_look_is_believed() -> Patch:
    def in_sequence(head: Head, ref: Ref, sequence: ProducerSequence, looked_at: Offset | None) -> Head | None:
        return appended_in_sequence(head, ref, sequence, None if looked_at is None else head.next_offset)

    return patch.object(memory_log, "appended_in_sequence", in_sequence)


def _own_item_is_not_put() -> Patch:
    return patch.object(MemoryLogIndex, "put_evicted", lambda *_: None)


def _changed_producers_are_evicted() -> Patch:
    def without(head: Head, leaving: Mapping[int, ProducerState]) -> Head:
        staying = {each: state for each, state in head.producers.items() if each not in leaving}
        return replace(head, producers=staying, evictions=head.evictions + 1)

    return patch.object(memory_log, "without_producers", without)


def _producers_with_refs_in_the_tail_are_evicted() -> Patch:
    """The newest leave first. So most have a ref in the tail, and an attempt that looked before they wrote follows."""

    def newest(head: Head) -> Mapping[int, ProducerState]:
        by_time = sorted(head.producers.items(), key=lambda item: item[1].written_ms, reverse=True)
        return dict(by_time[: min(EVICTION_PRODUCERS_MAX, max(0, len(by_time) - HEAD_PRODUCERS_KEPT))])

    return patch.object(shorten_module, "producers_to_evict", newest)


ROLL_MUTANTS = [
    Mutant("roll without its condition", "rolling", _roll_without_condition),
    Mutant("roll without the bits", "zone_loss,rolling,repair,replicate", _roll_without_bits),
    Mutant("found page keeps its bits", "zone_loss,rolling,repair,replicate", _found_page_keeps_its_bits),
    Mutant("roll drops a ref", "rolling", _roll_drops_a_ref),
    Mutant("no roll", "rolling", _roll_never),
    Mutant("page put over another", "crowding", _page_is_put_over_another),
    Mutant("head shortened before its page is put", "rolling", _head_is_shortened_before_the_page_is_put),
    Mutant("merge leaves no marks", "crowding", _merge_leaves_no_marks),
    Mutant("evicted producers forgotten", "numbering", _evicted_producers_are_forgotten),
    Mutant("old look believed", "crowding", _old_look_is_believed),
    Mutant("own item not put", "numbering", _own_item_is_not_put),
    Mutant("changed producers evicted", "numbering", _changed_producers_are_evicted),
    Mutant("producers with refs in the tail evicted", "crowding", _producers_with_refs_in_the_tail_are_evicted),
]
