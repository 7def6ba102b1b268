"""Defects put into retention, sweep, scrub, replicate and recover_zones, which a schedule or an event starts."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any
from unittest.mock import patch

from penstock_core.ids import Offset
from penstock_core.log.index import Head
from penstock_core.log.repair import looks_due
from penstock_core.log.retention import Expiry, expire
from penstock_core.zones import catch_up as catch_up_module
from penstock_core.zones.zone_state import ZoneStatus
from penstock_handlers import replicate as replicate_module
from penstock_service.adapters.dynamodb.log import DynamoDbLogIndex
from penstock_service.index import refs as refs_from_module
from penstock_service.index.refs import refs_of
from penstock_service.repair import recover_zones as recover_module
from penstock_service.repair import repair_owed as owed_module
from penstock_service.repair import repair_segment as repair_module
from penstock_service.repair import scrub as scrub_module
from penstock_service.repair.ensure_copies import CopiesResult
from penstock_service.retention import mark_live
from penstock_service.retention import retain as retain_module
from penstock_service.retention import sweep as sweep_module
from penstock_service.retention.retention_run import RetentionResult
from tests.simulation.mutants.mutant import Mutant, Patch


def _retention_does_not_wait() -> Patch:
    return patch.object(retain_module, "safe_log_start", lambda head, *_: head.log_start_offset)


def _retention_takes_one_ref_more() -> Patch:
    def expire_more(head: Head, *rest: Any) -> Expiry:
        expiry = expire(head, *rest)
        after = [each.end_offset for each in head.located_tail() if each.end_offset > expiry.log_start_offset]
        return Expiry(log_start_offset=after[0], refs=expiry.refs + 1) if expiry.refs and after else expiry

    return patch.object(retain_module, "expire", expire_more)


def _retention_cuts_a_ref() -> Patch:
    def expire_less(*arguments: Any) -> Expiry:
        expiry = expire(*arguments)
        return replace(expiry, log_start_offset=Offset(expiry.log_start_offset - 1)) if expiry.refs else expiry

    return patch.object(retain_module, "expire", expire_less)


def _retention_never_notes() -> Patch:
    return patch.object(DynamoDbLogIndex, "note_log_start", lambda *_: None)


def _retention_dates_its_notes_back() -> Patch:
    original = DynamoDbLogIndex.note_log_start
    return patch.object(
        DynamoDbLogIndex,
        "note_log_start",
        lambda log, key, offset, seen_ms: original(log, key, offset, seen_ms - 60_000),
    )


def _deleted_topic_leaves_its_heads() -> Patch:
    def remove_topic(run: Any, note: Any) -> RetentionResult:
        run.instance.stores.topics.forget_deleted(note.topic_id)
        return RetentionResult(topics_removed=1)

    return patch.object(retain_module, "remove_topic", remove_topic)


def _sweep_without_grace() -> Patch:
    original = sweep_module.sweep
    return patch(
        "tests.simulation.workloads.jobs.sweep.sweep",
        lambda instance, **how: original(instance, **{**how, "grace_ms": 0}),
    )


def _sweep_takes_the_log_start_for_settled() -> Patch:
    return patch.object(mark_live, "safe_log_start", lambda head, *_: head.log_start_offset)


def _sweep_reads_pages_before_the_head() -> Patch:
    def mark(instance: Any, key: Any, _: Any, live: Any, __: int) -> None:
        pages = instance.stores.log.pages(key, Offset(0), 10_000)
        live.add(ref.segment_id for page in pages for ref in page.refs)
        live.add(ref.segment_id for head in instance.stores.log.heads([key]).values() for ref in head.tail)

    return patch.object(mark_live, "_mark_partition", mark)


def _sweep_marks_one_zone_only() -> Patch:
    """The sweep reads the tails alone, as if no page were needed."""
    return patch.object(mark_live, "pages_forward", lambda *_: [])


def _scrub_trusts_every_copy() -> Patch:
    def ensure(stores: Any, executor: Any, segment_id: Any, zones: int) -> CopiesResult:
        return CopiesResult(good=zones, copied=0, healed=0, bytes_read=0, errors=())

    return patch.object(scrub_module, "ensure_copies", ensure)


def _scrub_passes_over_a_ref() -> Patch:
    return patch.object(refs_from_module, "refs_of", lambda *arguments: list(refs_of(*arguments))[1:])


def _replicate_marks_without_copying() -> Patch:
    def ensure(stores: Any, executor: Any, segment_id: Any, zones: int) -> CopiesResult:
        return CopiesResult(good=zones, copied=0, healed=0, bytes_read=0, errors=())

    return patch.object(repair_module, "ensure_copies", ensure)


def _replicate_copies_without_marking() -> Patch:
    return patch.object(owed_module, "marks_by_partition", lambda repaired: {})


def _replicate_drops_what_fails() -> Patch:
    return patch.object(owed_module, "_postpone", lambda instance, repair, error: None)


def _look_passes_over_pages() -> Patch:
    def tail(log: Any, key: Any, offset: int) -> list[Any]:
        head = log.heads([key]).get(key)
        return [] if head is None else [each for each in head.located_tail() if each.end_offset > offset]

    return patch.object(owed_module, "refs_of", tail)


def _look_ends_one_ref_early() -> Patch:
    original = owed_module._refs_in
    return patch.object(owed_module, "_refs_in", lambda *arguments: original(*arguments)[:-1])


def _stream_tells_of_one_ref() -> Patch:
    return patch.object(replicate_module, "looks_due", lambda refs: looks_due(refs[:1]))


def _recover_zones_rejoins_early() -> Patch:
    return patch.object(catch_up_module, "may_end_pass", lambda state, _: bool(state.status is ZoneStatus.CATCHING_UP))


def _recover_zones_forgets_its_failures() -> Patch:
    original: Callable[..., Any] = catch_up_module.zones_caught_up
    return patch.object(
        recover_module,
        "zones_caught_up",
        lambda ended, states: original(replace(ended, progress=replace(ended.progress, failures=0)), states),
    )


def _recover_zones_passes_over_a_ref() -> Patch:
    return patch.object(refs_from_module, "refs_of", lambda *arguments: list(refs_of(*arguments))[1:])


JOB_MUTANTS = [
    Mutant("retention does not wait for readers", "rolling,retention", _retention_does_not_wait),
    Mutant("retention takes one ref more", "traffic,retention", _retention_takes_one_ref_more),
    Mutant("retention cuts a ref", "traffic,retention", _retention_cuts_a_ref),
    Mutant("retention never notes a log start", "rolling,retention", _retention_never_notes),
    Mutant("retention dates its notes back", "rolling,retention", _retention_dates_its_notes_back),
    Mutant("deleted topic leaves its heads", "recreation,retention", _deleted_topic_leaves_its_heads),
    Mutant("sweep without grace", "traffic,sweep", _sweep_without_grace),
    Mutant("sweep below a log start that is new", "traffic,retention,sweep", _sweep_takes_the_log_start_for_settled),
    Mutant("sweep reads pages before the head", "rolling,sweep", _sweep_reads_pages_before_the_head),
    Mutant("sweep goes by tails alone", "rolling,sweep", _sweep_marks_one_zone_only),
    Mutant("scrub trusts every copy", "zone_loss,traffic,scrub", _scrub_trusts_every_copy),
    Mutant("scrub passes over a ref", "zone_loss,traffic,scrub", _scrub_passes_over_a_ref),
    Mutant("replicate marks without copying", "traffic,replicate", _replicate_marks_without_copying),
    Mutant("replicate copies without marking", "traffic,replicate", _replicate_copies_without_marking),
    Mutant("replicate drops what fails", "zone_loss,traffic,replicate", _replicate_drops_what_fails),
    Mutant("look passes over pages", "rolling,replicate", _look_passes_over_pages),
    Mutant("look ends one ref early", "traffic,replicate", _look_ends_one_ref_early),
    Mutant("stream tells of one ref only", "traffic,replicate", _stream_tells_of_one_ref),
    Mutant("recover_zones rejoins early", "traffic,recover_zones", _recover_zones_rejoins_early),
    Mutant("recover_zones forgets its failures", "traffic,recover_zones", _recover_zones_forgets_its_failures),
    Mutant("recover_zones passes over a ref", "traffic,recover_zones", _recover_zones_passes_over_a_ref),
]
