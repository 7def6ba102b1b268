"""Defects put into rolls and evictions (see mutant.py)."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any
from unittest.mock import patch

from penstock_core.ids import Offset, PartitionKey
from penstock_core.limits import EVICTION_PRODUCERS_MAX, HEAD_PRODUCERS_KEPT
from penstock_core.log.index import Head, Page
from penstock_core.log.ref import Ref
from penstock_core.log.roll import next_page
from penstock_core.records.producer_state import ProducerState
from penstock_service.adapters.dynamodb.compaction import DynamoDbCompactionStore
from penstock_service.adapters.dynamodb.log import DynamoDbLogIndex
from penstock_service.records import shorten_head as shorten_module
from tests.simulation.mutants.mutant import Mutant, Patch


def _found_page_keeps_its_bits() -> Patch:
    """A roller that finds its page leaves it as it is, and goes on."""
    return patch.object(DynamoDbLogIndex, "replace_page", lambda *_: True)


def _roll_drops_a_ref() -> Patch:
    original = DynamoDbLogIndex.put_page

    def put_page(log: Any, key: PartitionKey, page: Page) -> Page | None:
        rest = replace(page, base_offset=Offset(page.base_offset + page.refs[0].offset_span), refs=page.refs[1:])
        return None if original(log, key, rest) is None else page

    return patch.object(DynamoDbLogIndex, "put_page", put_page)


def _roll_never() -> Patch:
    return patch.object(shorten_module, "is_roll_due", lambda *_: False)


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
    original = DynamoDbCompactionStore._actions

    def actions(store: Any, key: PartitionKey, swap: Any) -> Iterator[dict[str, Any]]:
        for action in original(store, key, swap):
            put = action.get("Put", {})
            if "marks_before" in put.get("Item", {}):
                item = put.pop("Item")
                yield {"Delete": {**put, "Key": {name: item[name] for name in ("pk", "sk")}}}
            else:
                yield action

    return patch.object(DynamoDbCompactionStore, "_actions", actions)


def _evicted_producers_are_forgotten() -> Patch:
    return patch.object(DynamoDbLogIndex, "evicted_producer", lambda *_: None)


def _old_look_is_believed() -> Patch:
    original = DynamoDbLogIndex.append_in_sequence

    def append(log: Any, key: PartitionKey, ref: Ref, unconfirmed: int, sequence: Any, looked_at: Offset | None) -> Any:
        return original(log, key, ref, unconfirmed, sequence, None if looked_at is None else Offset(10**9))

    return patch.object(DynamoDbLogIndex, "append_in_sequence", append)


def _own_item_is_not_put() -> Patch:
    return patch.object(DynamoDbLogIndex, "put_evicted", lambda *_: None)


def _producers_with_refs_in_the_tail_are_evicted() -> Patch:
    """The newest leave first. So most have a ref in the tail, and an attempt that looked before they wrote follows."""

    def newest(head: Head) -> Mapping[int, ProducerState]:
        by_time = sorted(head.producers.items(), key=lambda item: item[1].written_ms, reverse=True)
        return dict(by_time[: min(EVICTION_PRODUCERS_MAX, max(0, len(by_time) - HEAD_PRODUCERS_KEPT))])

    return patch.object(shorten_module, "producers_to_evict", newest)


ROLL_MUTANTS = [
    Mutant("found page keeps its bits", "zone_loss,rolling,repair,replicate", _found_page_keeps_its_bits),
    Mutant("roll drops a ref", "rolling", _roll_drops_a_ref),
    Mutant("no roll", "rolling", _roll_never),
    Mutant("head shortened before its page is put", "rolling", _head_is_shortened_before_the_page_is_put),
    Mutant("merge leaves no marks", "crowding", _merge_leaves_no_marks),
    Mutant("evicted producers forgotten", "numbering", _evicted_producers_are_forgotten),
    Mutant("old look believed", "crowding", _old_look_is_believed),
    Mutant("own item not put", "numbering", _own_item_is_not_put),
    Mutant("producers with refs in the tail evicted", "crowding", _producers_with_refs_in_the_tail_are_evicted),
]
