"""Operators mend: they redrive dead letters, and release a transactional id."""

from collections.abc import Callable, Mapping

from penstock_core.acls.rule import Kind, Operation
from penstock_core.errors import ErrorCode, PenstockError
from penstock_handlers.edge.access.request_access import access_of
from penstock_handlers.edge.http import Event, Result, body_of, json_object_of, json_result
from penstock_handlers.edge.share_requests import parse_redrive
from penstock_service.instance.instance import Instance
from penstock_service.share.dead_letters.redrive import redrive
from penstock_service.transactions.begin_transactions import release_transactional_id


def serve(event: Event, instance: Instance) -> Result:
    """Move dead letters of a topic back, or let a transactional id belong to nobody."""
    return _BY_ROUTE[event["routeKey"]](event, instance)


def _redrive(event: Event, instance: Instance) -> Result:
    wish = parse_redrive(json_object_of(event))
    access = access_of(event, instance)
    if wish.to is not None:
        access.require(Operation.WRITE, Kind.TOPIC, wish.to)
    if wish.is_drop:
        access.require(Operation.DELETE, Kind.TOPIC, event["pathParameters"]["topic"])
    done = redrive(instance, event["pathParameters"]["topic"], wish, access)
    return json_result(
        {
            "moved": done.moved,
            "remaining": done.remaining,
            "skipped": done.skipped,
            "skipped_by": {reason.value: count for reason, count in done.skipped_by.items()},
            "cursor": None if done.cursor is None else str(done.cursor),
        }
    )


def _release(event: Event, instance: Instance) -> Result:
    if body_of(event):
        raise PenstockError(ErrorCode.INVALID_REQUEST, "a release takes no body: send none")
    release_transactional_id(instance.stores.transactions, event["pathParameters"]["transactional_id"])
    return json_result({})


_BY_ROUTE: Mapping[str, Callable[[Event, Instance], Result]] = {
    "POST /v1/topics/{topic}/redrive": _redrive,
    "POST /v1/producers/{transactional_id}/release": _release,
}
