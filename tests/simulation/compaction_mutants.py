"""Defects put into compaction (see mutants.py)."""

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from typing import Any
from unittest.mock import patch

from penstock_broker import clean as clean_module
from penstock_broker import compact as compact_module
from penstock_broker import rewrite_run as rewrite_module
from penstock_broker.adapters.memory_compaction import MemoryCompactionStore
from penstock_broker.adapters.memory_log import MemoryLogIndex
from penstock_core.cleaning import LatestOffsets
from penstock_core.index import Page
from penstock_core.keys import PartitionKey
from tests.simulation.mutants import Mutant

Patch = AbstractContextManager[Any]


def _swap_without_condition() -> Patch:
    """What stands at the new pages' keys is written over, and what stood at the old ones' is gone, whatever it was."""

    def swap_pages(log: Any, key: PartitionKey, old: Sequence[Page], new: Sequence[Page]) -> bool:
        ends = {page.end_offset for page in (*old, *new)}
        kept = [page for page in log._pages.get(key, []) if page.end_offset not in ends]
        log._pages[key] = sorted((*kept, *new), key=lambda page: page.end_offset)
        return True

    @contextmanager
    def patched() -> Iterator[None]:
        with _swap_under_any_lease(), patch.object(MemoryLogIndex, "swap_pages", swap_pages):
            yield

    return patched()


def _swap_in_two_steps() -> Patch:
    """Of the new pages only the first is written: what a crash between two writes would leave."""
    original = MemoryLogIndex.swap_pages

    def swap_pages(log: Any, key: PartitionKey, old: Sequence[Page], new: Sequence[Page]) -> bool:
        return original(log, key, old, new[:1])

    return patch.object(MemoryLogIndex, "swap_pages", swap_pages)


def _swap_under_any_lease() -> Patch:
    original = MemoryCompactionStore.swap

    def swap(store: Any, key: PartitionKey, wanted: Any) -> bool:
        return original(store, key, replace(wanted, epoch=store._states[key].epoch))

    return patch.object(MemoryCompactionStore, "swap", swap)


def _sweep_does_not_know_what_was_retired() -> Patch:
    return patch.object(MemoryCompactionStore, "retired", lambda *_: [])


def _merge_loses_a_batch() -> Patch:
    def transform(batches: Iterator[tuple[int, Any]]) -> Iterator[tuple[int, Any]]:
        held: list[tuple[int, Any]] = [*batches]
        yield from held[:3] + held[4:]

    original = rewrite_module.rewrite_run
    return patch.object(compact_module, "rewrite_run", lambda *arguments: original(*arguments[:5], transform))


def _merged_offsets_begin_at_0() -> Patch:
    original = rewrite_module.new_pages

    def pages(old: Sequence[Page], refs: Any) -> Any:
        made = original(old, refs)
        return tuple(
            replace(page, base_offset=type(page.base_offset)(page.base_offset - old[0].base_offset)) for page in made
        )

    return patch.object(rewrite_module, "new_pages", pages)


def _tombstones_go_at_once() -> Patch:
    return patch.object(clean_module, "tombstone_horizon", lambda *_: 1_000_000)


def _older_record_is_kept() -> Patch:
    def is_superseded(latest: Any, key: bytes, offset: int) -> bool:
        return latest._offsets.get(key, -1) == offset

    return patch.object(LatestOffsets, "is_superseded", is_superseded)


def _pass_is_noted_before_its_swaps() -> Patch:
    original = clean_module.clean

    def clean(broker: Any, key: Any, head: Any, state: Any, config: Any, *rest: Any) -> Any:
        cleaned = clean_module.with_cleaned(
            state.cleaned, head.tail_base, broker.clock.now_ms(), config.delete_retention_ms
        )
        noted = replace(state, cleaned=cleaned)
        broker.compaction.save(key, noted)
        yield from original(broker, key, head, state, config, *rest)

    return patch.object(compact_module, "clean", clean)


COMPACTION_MUTANTS = [
    Mutant("swap without its conditions", "compaction", _swap_without_condition),
    Mutant("swap not at once", "compaction", _swap_in_two_steps),
    Mutant("sweep ignores what was retired", "compaction,sweep", _sweep_does_not_know_what_was_retired),
    Mutant("merge loses a batch", "compaction", _merge_loses_a_batch),
    Mutant("merged offsets begin at 0", "compaction", _merged_offsets_begin_at_0),
    Mutant("tombstones go at once", "cleaning", _tombstones_go_at_once),
    Mutant("older record kept", "cleaning", _older_record_is_kept),
    Mutant("pass noted before its swaps", "cleaning", _pass_is_noted_before_its_swaps),
]
