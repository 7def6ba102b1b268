"""Defects put into what runs by schedule and by events: retention, sweep, scrub, replicate, keeper (see mutants.py)."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any
from unittest.mock import patch

from handlers import replicate as replicate_module
from penstock_broker import keep_zones as keep_module
from penstock_broker import mark_live
from penstock_broker import repair_segment as repair_module
from penstock_broker import retain as retain_module
from penstock_broker import scrub as scrub_module
from penstock_broker import sweep as sweep_module
from penstock_broker.adapters.memory import MemoryLogIndex
from penstock_broker.ensure_copies import EnsuredCopies
from penstock_core import catch_up as catch_up_module
from penstock_core.errors import PenstockError
from penstock_core.ids import Offset
from penstock_core.index import Head
from penstock_core.retention import Expiry
from penstock_core.zone_state import ZoneStatus
from tests.simulation.mutants import Mutant

Patch = AbstractContextManager[Any]


def _retention_does_not_wait() -> Patch:
    return patch.object(retain_module, "settled_offset", lambda head, *_: head.log_start_offset)


def _retention_takes_one_ref_more() -> Patch:
    original = retain_module.expire

    def expire(head: Head, *rest: Any) -> Expiry:
        expiry = original(head, *rest)
        after = [each.end_offset for each in head.located_tail() if each.end_offset > expiry.log_start_offset]
        return Expiry(log_start_offset=after[0], refs=expiry.refs + 1) if expiry.refs and after else expiry

    return patch.object(retain_module, "expire", expire)


def _retention_cuts_a_ref() -> Patch:
    original = retain_module.expire

    def expire(*arguments: Any) -> Expiry:
        expiry = original(*arguments)
        return replace(expiry, log_start_offset=Offset(expiry.log_start_offset - 1)) if expiry.refs else expiry

    return patch.object(retain_module, "expire", expire)


def _retention_never_notes() -> Patch:
    return patch.object(MemoryLogIndex, "note_log_start", lambda *_: None)


def _retention_dates_its_notes_back() -> Patch:
    original = MemoryLogIndex.note_log_start
    return patch.object(
        MemoryLogIndex,
        "note_log_start",
        lambda log, key, offset, seen_ms: original(log, key, offset, seen_ms - 60_000),
    )


def _retention_deletes_newest_pages_first() -> Patch:
    original = retain_module._delete_pages

    class NewestFirst:
        def __init__(self, log: Any) -> None:
            self._log = log

        def __getattr__(self, name: str) -> Any:
            return getattr(self._log, name)

        def pages(self, *arguments: Any) -> Sequence[Any]:
            return list(reversed(self._log.pages(*arguments)))

    return patch.object(
        retain_module,
        "_delete_pages",
        lambda broker, *rest: original(replace(broker, log=NewestFirst(broker.log)), *rest),
    )


def _deleted_topic_leaves_its_heads() -> Patch:
    def remove(broker: Any, note: Any, *_: Any) -> Any:
        broker.topics.forget_deleted(note.topic_id)
        return retain_module.Retained(topics_removed=1)

    return patch.object(retain_module, "_remove", remove)


def _sweep_without_grace() -> Patch:
    original = sweep_module.sweep
    return patch(
        "tests.simulation.workloads.sweep.sweep", lambda broker, **how: original(broker, **{**how, "grace_ms": 0})
    )


def _sweep_takes_the_log_start_for_settled() -> Patch:
    return patch.object(mark_live, "settled_offset", lambda head, *_: head.log_start_offset)


def _sweep_reads_pages_before_the_head() -> Patch:
    def mark(broker: Any, key: Any, _: Any, live: Any, __: int) -> None:
        pages = broker.log.pages(key, Offset(0), 10_000)
        live.add(ref.segment_id for page in pages for ref in page.refs)
        live.add(ref.segment_id for head in broker.log.heads([key]).values() for ref in head.tail)

    return patch.object(mark_live, "_mark_partition", mark)


def _sweep_marks_one_zone_only() -> Patch:
    """It goes by the tails alone, as if no page were needed."""
    return patch.object(mark_live, "walk_pages", lambda *_: [])


def _scrub_trusts_every_copy() -> Patch:
    def ensure(broker: Any, segment_id: Any, zones: int) -> EnsuredCopies:
        return EnsuredCopies(good=zones, copied=0, healed=0, bytes_read=0, errors=())

    return patch.object(scrub_module, "ensure_copies", ensure)


def _scrub_passes_over_a_ref() -> Patch:
    original = scrub_module.refs_of
    return patch.object(scrub_module, "refs_of", lambda *arguments: list(original(*arguments))[1:])


def _replicate_marks_without_copying() -> Patch:
    def ensure(broker: Any, segment_id: Any, zones: int) -> EnsuredCopies:
        return EnsuredCopies(good=zones, copied=0, healed=0, bytes_read=0, errors=())

    return patch.object(repair_module, "ensure_copies", ensure)


def _replicate_copies_without_marking() -> Patch:
    original = repair_module.repair_segment
    return patch.object(replicate_module, "repair_segment", lambda to, repair: original(to, replace(repair, refs=())))


def _replicate_drops_what_fails() -> Patch:
    original = replicate_module.repair_segment

    def repair(*arguments: Any) -> None:
        try:
            original(*arguments)
        except PenstockError:
            return

    return patch.object(replicate_module, "repair_segment", repair)


def _keeper_rejoins_early() -> Patch:
    return patch.object(catch_up_module, "may_end_pass", lambda state, _: bool(state.status is ZoneStatus.CATCHING_UP))


def _keeper_forgets_its_failures() -> Patch:
    original: Callable[..., Any] = catch_up_module.zones_caught_up
    return patch.object(
        keep_module,
        "zones_caught_up",
        lambda ended, states: original(replace(ended, progress=replace(ended.progress, failures=0)), states),
    )


def _keeper_passes_over_a_ref() -> Patch:
    original = keep_module.refs_of
    return patch.object(keep_module, "refs_of", lambda *arguments: list(original(*arguments))[1:])


JOB_MUTANTS = [
    Mutant("retention does not wait until nobody reads", "rolling,retention", _retention_does_not_wait),
    Mutant("retention takes one ref more", "traffic,retention", _retention_takes_one_ref_more),
    Mutant("retention cuts a ref", "traffic,retention", _retention_cuts_a_ref),
    Mutant("retention never notes a log start", "rolling,retention", _retention_never_notes),
    Mutant("retention dates its notes back", "rolling,retention", _retention_dates_its_notes_back),
    Mutant("retention deletes the newest pages first", "rolling,retention", _retention_deletes_newest_pages_first),
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
    Mutant("keeper rejoins early", "traffic,keeper", _keeper_rejoins_early),
    Mutant("keeper forgets its failures", "traffic,keeper", _keeper_forgets_its_failures),
    Mutant("keeper passes over a ref", "traffic,keeper", _keeper_passes_over_a_ref),
]
