"""Note a change before it is made, and its result after that.

| the request                                | the note                                                               |
|--------------------------------------------|------------------------------------------------------------------------|
| cannot write the note                      | the change is refused: nothing was done                                |
| is refused, and nothing was done           | goes                                                                   |
| is done                                    | gets the state after it, and the result `done`                         |
| may have been done, by its error           | gets the result `unknown`                                              |
| dies, or cannot write the result           | stays `begun`, and counts as `unknown` after `AUDIT_UNKNOWN_MS`        |

So no change is made without a trace. `settle_audit` moves the notes into the topic.
"""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from penstock_core.audit.audit_entry import (
    AUDIT_ID_BYTES,
    AuditEntry,
    AuditResult,
    Caller,
    bounded_name,
    bounded_state,
    new_audit_id,
)
from penstock_core.errors import PenstockError
from penstock_service.instance.instance import Instance

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A change that is about to be made: an action such as `alter_topic`, on the resource with this kind and name."""

    action: str
    kind: str
    name: str
    before: Any = None


def begin_change(instance: Instance, caller: Caller, change: Change) -> AuditEntry:
    """The entry, noted. One put. Raises the error of storage: the caller must not make the change then."""
    now_ms = instance.clock.now_ms()
    entry = AuditEntry(
        audit_id=new_audit_id(now_ms, instance.entropy.random_bytes(AUDIT_ID_BYTES)),
        time_ms=now_ms,
        caller=caller,
        action=change.action,
        kind=change.kind,
        name=bounded_name(change.name),
        before=bounded_state(change.before),
    )
    instance.stores.audit.put(entry)
    return entry


def end_change(instance: Instance, entry: AuditEntry, after: Any, *, is_known: bool = True) -> None:
    """Notes the state after the change, or that its result is unknown. One put. Raises nothing.

    If the put fails, the entry stays as it began, and is settled with the result `unknown`.
    """
    result = AuditResult.DONE if is_known else AuditResult.UNKNOWN
    try:
        instance.stores.audit.put(replace(entry, after=bounded_state(after), result=result))
    except PenstockError as error:
        instance.telemetry.log("audit_incomplete", audit_id=entry.audit_id, action=entry.action, error=str(error))


def drop_change(instance: Instance, entry: AuditEntry) -> None:
    """Removes the note of a change that was refused. One delete. Raises nothing."""
    with suppress(PenstockError):  # it counts as unknown then, which is not wrong
        instance.stores.audit.forget(entry.audit_id)


def audited(instance: Instance, caller: Caller, change: Change, make: Callable[[], T], after: Callable[[T], Any]) -> T:
    """Makes the change, with its trail. `after` gives the state that the result of `make` tells."""
    entry = begin_change(instance, caller, change)
    try:
        made = make()
    except PenstockError as error:
        if error.maybe_applied:
            end_change(instance, entry, None, is_known=False)
        else:
            drop_change(instance, entry)
        raise
    end_change(instance, entry, after(made))
    return made
