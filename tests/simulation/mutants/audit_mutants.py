"""Defects put into the audit trail, each of which the workload `auditing` must find."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any
from unittest.mock import patch

from penstock_core.audit.audit_entry import AuditEntry, AuditResult
from penstock_core.errors import PenstockError
from penstock_service.adapters.dynamodb.audit import DynamoDbAuditStore
from penstock_service.audit import note_change as note_module
from penstock_service.audit import settle_audit as settle_module
from penstock_service.instance.instance import Instance
from tests.simulation.mutants.mutant import Mutant, Patch
from tests.simulation.workloads import auditing as workload_module


def _note_after_the_change() -> Patch:
    def audited(instance: Instance, caller: Any, change: Any, make: Callable[[], Any], after: Any) -> Any:
        made = make()
        entry = note_module.begin_change(instance, caller, change)
        note_module.end_change(instance, entry, after(made))
        return made

    return patch.object(workload_module, "audited", audited)


def _unknown_changes_are_dropped() -> Patch:
    def end(instance: Instance, entry: AuditEntry, after: Any, *, is_known: bool = True) -> None:
        if is_known:
            original(instance, entry, after)
        else:
            note_module.drop_change(instance, entry)

    original = note_module.end_change
    return patch.object(note_module, "end_change", end)


def _change_without_its_note() -> Patch:
    def begin(instance: Instance, caller: Any, change: Any) -> AuditEntry:
        try:
            return original(instance, caller, change)
        except PenstockError:
            entry = AuditEntry(
                audit_id=settle_audit_id, time_ms=0, caller=caller, action="", kind=change.kind, name=change.name
            )
            return replace(entry, result=AuditResult.BEGUN)

    settle_audit_id: Any = "0" * 15
    original = note_module.begin_change
    return patch.object(note_module, "begin_change", begin)


def _refused_changes_are_done() -> Patch:
    def drop(instance: Instance, entry: AuditEntry) -> None:
        note_module.end_change(instance, entry, None)

    return patch.object(note_module, "drop_change", drop)


def _notes_go_before_the_append() -> Patch:
    def append(instance: Instance, topic: Any, entries: list[AuditEntry]) -> None:
        instance.executor.map(instance.stores.audit.forget, [each.audit_id for each in entries]).all_ok()
        original(instance, topic, entries)

    original = settle_module._append
    return patch.object(settle_module, "_append", append)


def _notes_of_dead_requests_go() -> Patch:
    def append(instance: Instance, topic: Any, entries: list[AuditEntry]) -> None:
        done = [each for each in entries if each.result is AuditResult.DONE]
        if done:
            original(instance, topic, done)

    original = settle_module._append
    return patch.object(settle_module, "_append", append)


def _dead_requests_wait_for_ever() -> Patch:
    return patch.object(settle_module, "_is_ripe", lambda entry, _: entry.result is not AuditResult.BEGUN)


def _settled_as_begun() -> Patch:
    return patch.object(settle_module, "_settled", lambda entry: entry)


def _all_is_unknown() -> Patch:
    return patch.object(settle_module, "_settled", lambda entry: replace(entry, result=AuditResult.UNKNOWN))


def _newest_first() -> Patch:
    original = DynamoDbAuditStore.entries

    def entries(self: DynamoDbAuditStore, limit: int) -> Sequence[AuditEntry]:
        return original(self, limit)[::-1]

    return patch.object(DynamoDbAuditStore, "entries", entries)


AUDIT_MUTANTS = tuple(
    Mutant(f"audit: {name}", "auditing", patched)
    for name, patched in (
        ("note after the change", _note_after_the_change),
        ("unknown changes dropped", _unknown_changes_are_dropped),
        ("change without its note", _change_without_its_note),
        ("refused changes are done", _refused_changes_are_done),
        ("notes go before the append", _notes_go_before_the_append),
        ("notes of dead requests go", _notes_of_dead_requests_go),
        ("dead requests wait for ever", _dead_requests_wait_for_ever),
        ("settled as begun", _settled_as_begun),
        ("all is unknown", _all_is_unknown),
        ("newest first", _newest_first),
    )
)
