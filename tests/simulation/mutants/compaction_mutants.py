"""Defects put into compaction (see mutant.py)."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any
from unittest.mock import patch

from penstock_core.compaction.cleaning import LatestOffsets, with_cleaned
from penstock_core.compaction.merging import new_pages
from penstock_core.ids import PartitionKey
from penstock_core.log.index import Page
from penstock_service.adapters.dynamodb.compaction import DynamoDbCompactionStore
from penstock_service.compaction import clean as clean_module
from penstock_service.compaction import compact as compact_module
from penstock_service.compaction import rewrite_run as rewrite_module
from tests.simulation.mutants.mutant import Mutant, Patch


def _swap_in_two_steps() -> Patch:
    """The swap is two transactions. Its instance may die in between."""

    def swap(store: Any, key: PartitionKey, wanted: Any) -> bool:
        actions = [*store._actions(key, wanted)]
        halves = actions[: len(actions) // 2], actions[len(actions) // 2 :]
        return all(store._client.transact(half) is None for half in halves)

    return patch.object(DynamoDbCompactionStore, "swap", swap)


def _sweep_does_not_know_what_was_retired() -> Patch:
    return patch.object(DynamoDbCompactionStore, "retired", lambda *_: [])


def _merge_loses_a_batch() -> Patch:
    def transform(batches: Iterator[tuple[int, Any]]) -> Iterator[tuple[int, Any]]:
        held: list[tuple[int, Any]] = [*batches]
        yield from held[:3] + held[4:]

    original: Callable[..., Any] = rewrite_module.rewrite_run
    return patch.object(compact_module, "rewrite_run", lambda run, row: original(run, row, transform))


def _merged_offsets_begin_at_0() -> Patch:
    def pages(old: Sequence[Page], refs: Any) -> Any:
        made = new_pages(old, refs)
        return tuple(
            replace(page, base_offset=type(page.base_offset)(page.base_offset - old[0].base_offset)) for page in made
        )

    return patch.object(rewrite_module, "new_pages", pages)


def _tombstones_go_at_once() -> Patch:
    return patch.object(clean_module, "tombstone_horizon", lambda *_: 1_000_000)


def _older_record_is_kept() -> Patch:
    def is_superseded(latest: Any, key: bytes, offset: int) -> bool:
        return bool(latest._offsets.get(key, -1) == offset)

    return patch.object(LatestOffsets, "is_superseded", is_superseded)


def _pass_is_noted_before_its_swaps() -> Patch:
    original = clean_module.clean

    def clean(run: Any, config: Any) -> Any:
        now_ms, lease = run.instance.clock.now_ms(), run.lease
        cleaned = with_cleaned(lease.cleaned, run.head.tail_base, now_ms, config.delete_retention_ms)
        run.instance.stores.compaction.save(run.key, replace(lease, cleaned=cleaned))
        yield from original(run, config)

    return patch.object(compact_module, "clean", clean)


COMPACTION_MUTANTS = [
    Mutant("swap not at once", "compaction", _swap_in_two_steps),
    Mutant("sweep ignores what was retired", "compaction,sweep", _sweep_does_not_know_what_was_retired),
    Mutant("merge loses a batch", "compaction", _merge_loses_a_batch),
    Mutant("merged offsets begin at 0", "compaction", _merged_offsets_begin_at_0),
    Mutant("tombstones go at once", "cleaning", _tombstones_go_at_once),
    Mutant("older record kept", "cleaning", _older_record_is_kept),
    Mutant("pass noted before its swaps", "cleaning", _pass_is_noted_before_its_swaps),
]
