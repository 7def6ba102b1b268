"""Requests that change something leave a trail (docs/adr/0047): a note before the change, and its result after it.

A resource's own answer tells the state after the change. A dry run changes nothing and leaves nothing.
"""

import json
from collections.abc import Callable, Mapping
from typing import Any

from penstock_core.audit.audit_entry import AuditEntry, Caller
from penstock_core.errors import PenstockError
from penstock_core.routes import Route
from penstock_handlers.edge.access.audited_changes import AuditedChange, change_of, kind_of, name_of
from penstock_handlers.edge.access.request_access import access_of, principal_of
from penstock_handlers.edge.http import Event, Result, text_of
from penstock_service.audit.note_change import Change, begin_change, drop_change, end_change
from penstock_service.instance.instance import Instance

_REFUSED = 400  # the first status of an error


def with_trail(serve: Callable[[Event, Instance], Result], event: Event, instance: Instance, route: Route) -> Result:
    """The result of `serve`. Costs two puts and the read of the state before. The route has an `audit`.

    A caller without a right that path and body tell leaves no note, and neither does a request that names no topic to
    create. Only a redrive to where its records came from may take its note back. Raises NOT_AUTHORIZED, what `serve`
    raises, and the error of storage if the note cannot be written. Nothing was done then.
    """
    body, audited = _body_of(event), change_of(route)
    if audited.has_dry_run and isinstance(body, Mapping) and body.get("dry_run") is True:
        return serve(event, instance)
    name = name_of(route, event, body)
    if not name and kind_of(route) == "topic":
        return serve(event, instance)  # which refuses a request that names nothing
    if audited.check_body is not None and (isinstance(body, Mapping) or not route.parameter):
        audited.check_body(access_of(event, instance), instance, name, body)
    change = Change(action=route.audit, kind=kind_of(route), name=name, before=_before(audited, instance, name))
    entry = begin_change(instance, caller_of(event, instance), change)
    try:
        result = serve(event, instance)
    except PenstockError as error:
        _end_refused(instance, entry, maybe_applied=error.maybe_applied)
        raise
    answer = _parsed(result.get("body") or "")
    if result["statusCode"] >= _REFUSED:
        _end_refused(instance, entry, maybe_applied=_may_have_applied(answer))
    else:
        end_change(instance, entry, answer)
    return result


def caller_of(event: Event, instance: Instance) -> Caller:
    """The principal, the address and the id of a request."""
    context = event["requestContext"]
    return Caller(
        principal=principal_of(event, instance).name,
        address=str((context.get("http") or {}).get("sourceIp", "")),
        request_id=str(context.get("requestId", "")),
    )


def _before(audited: AuditedChange, instance: Instance, name: str) -> Any:
    """The state before, None for a resource that is not there, and where it cannot be read: `serve` tells why."""
    if audited.read is None:
        return None
    try:
        return audited.read(instance, name) or None
    except PenstockError:
        return None


def _end_refused(instance: Instance, entry: AuditEntry, *, maybe_applied: bool) -> None:
    if maybe_applied:
        end_change(instance, entry, None, is_known=False)
    else:
        drop_change(instance, entry)


def _may_have_applied(answer: Any) -> bool:
    error = answer.get("error") if isinstance(answer, Mapping) else None
    return bool(error.get("maybe_applied", True)) if isinstance(error, Mapping) else True


def _body_of(event: Event) -> Any:
    try:
        return _parsed(text_of(event))
    except PenstockError:  # `serve` refuses it
        return None


def _parsed(text: str) -> Any:
    try:
        return json.loads(text) if text else None
    except (ValueError, RecursionError):
        return None
