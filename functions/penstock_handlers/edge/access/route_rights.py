"""The rights that each route needs: the one table that the handlers, their test and the reference go by.

A right on a resource that the path names is checked here, before the handler runs. All other rights are the handler's:
it knows the resources only once it has read the body, or the list that it is to show. `tests/handlers/test_rights.py`
takes each right of this table away from a caller who has all others, and gives a caller exactly the rights of a route.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from penstock_core.acls.access import Access
from penstock_core.acls.right import Kind, Operation
from penstock_handlers.edge.access.token_routes import check_caller
from penstock_handlers.edge.http import Event, unknown_route


class Where(Enum):
    """The place where a route finds the resources that it needs a right on, and the answer without the right."""

    PATH = "path"  # one resource: the call is refused
    BODY = "body"  # resources that the request names: the call is refused, or those parts of it that have an error each
    SHOWN = "shown"  # resources in the answer: it leaves out those without the right
    NEW = "new"  # the resource of the path, if the call makes it
    CHANGED = "changed"  # the resource of the path, if it is there


@dataclass(frozen=True, slots=True, kw_only=True)
class Need:
    """A right that a route needs on each resource of this kind that it finds there. `field` names it in the request."""

    operation: Operation
    kind: Kind
    where: Where
    field: str = ""


def _needs(where: Where, operation: Operation, kind: Kind, field: str = "") -> Need:
    return Need(operation=operation, kind=kind, where=where, field=field)


def _path(operation: Operation, kind: Kind, field: str | None = None) -> Need:
    return _needs(Where.PATH, operation, kind, kind.value if field is None else field)


def _body(operation: Operation, kind: Kind, field: str) -> Need:
    return _needs(Where.BODY, operation, kind, field)


_READ, _WRITE, _CREATE = Operation.READ, Operation.WRITE, Operation.CREATE
_DESCRIBE, _ALTER, _DELETE = Operation.DESCRIBE, Operation.ALTER, Operation.DELETE
_TOPIC, _GROUP, _ID = Kind.TOPIC, Kind.GROUP, Kind.TRANSACTIONAL_ID
_SHARE_GROUP, _SUBSCRIPTION, _SERVICE = Kind.SHARE_GROUP, Kind.SUBSCRIPTION, Kind.SERVICE
_READ_SHARED = (
    _path(_READ, _SHARE_GROUP, "group"),
    _body(_READ, _TOPIC, "topics, and those of acknowledge"),
)

ROUTE_RIGHTS: Mapping[str, tuple[Need, ...]] = {
    "POST /v1/produce": (_body(_WRITE, _TOPIC, "batches"),),
    "POST /v1/fetch": (_body(_READ, _TOPIC, "partitions"),),
    "POST /v1/producers": (_body(_WRITE, _ID, "transactional_id"),),
    "POST /v1/producers/{transactional_id}/release": (_path(_ALTER, _ID),),
    "POST /v1/transactions": (
        _body(_WRITE, _ID, "transactional_id"),
        _body(_WRITE, _TOPIC, "batches"),
        _body(_READ, _GROUP, "offsets"),
        _body(_READ, _TOPIC, "offsets"),
        _body(_READ, _SHARE_GROUP, "acknowledgements"),
        _body(_READ, _TOPIC, "acknowledgements"),
    ),
    "POST /v1/topics/{topic}/records": (_path(_WRITE, _TOPIC),),
    "GET /v1/topics/{topic}/partitions/{partition}/records": (_path(_READ, _TOPIC),),
    "POST /v1/topics": (_body(_CREATE, _TOPIC, "name"),),
    "GET /v1/topics": (_needs(Where.SHOWN, _DESCRIBE, _TOPIC),),
    "GET /v1/metadata": (_body(_DESCRIBE, _TOPIC, "topic"),),
    "GET /v1/wake-ups": (),
    "GET /v1/topics/{topic}": (_path(_DESCRIBE, _TOPIC),),
    "PATCH /v1/topics/{topic}": (_path(_ALTER, _TOPIC),),
    "DELETE /v1/topics/{topic}": (_path(_DELETE, _TOPIC),),
    "GET /v1/topics/{topic}/offsets": (_path(_DESCRIBE, _TOPIC),),
    "POST /v1/topics/{topic}/truncate": (_path(_DELETE, _TOPIC),),
    "GET /v1/topics/{topic}/scheduled": (_path(_DESCRIBE, _TOPIC),),
    "DELETE /v1/topics/{topic}/scheduled/{timer}": (_path(_WRITE, _TOPIC),),
    "POST /v1/topics/{topic}/redrive": (_path(_READ, _TOPIC), _body(_WRITE, _TOPIC, "to, or where a record came from")),
    "GET /v1/groups": (_needs(Where.SHOWN, _DESCRIBE, _GROUP),),
    "GET /v1/groups/{group}": (_path(_DESCRIBE, _GROUP), _needs(Where.SHOWN, _DESCRIBE, _TOPIC)),
    "PATCH /v1/groups/{group}": (_path(_ALTER, _GROUP),),
    "DELETE /v1/groups/{group}": (_path(_DELETE, _GROUP),),
    "POST /v1/groups/{group}/reset": (_path(_ALTER, _GROUP), _body(_READ, _TOPIC, "topic")),
    "POST /v1/groups/{group}/offsets/delete": (_path(_DELETE, _GROUP), _body(_READ, _TOPIC, "topic")),
    "POST /v1/groups/{group}/heartbeat": (_path(_READ, _GROUP), _body(_READ, _TOPIC, "subscription")),
    "POST /v1/groups/{group}/offsets": (_path(_READ, _GROUP), _body(_READ, _TOPIC, "offsets")),
    "GET /v1/groups/{group}/offsets": (_path(_DESCRIBE, _GROUP), _needs(Where.SHOWN, _DESCRIBE, _TOPIC)),
    "GET /v1/groups/{group}/document": (_path(_READ, _GROUP),),
    "PUT /v1/groups/{group}/document": (_path(_READ, _GROUP),),
    "GET /v1/share-groups": (_needs(Where.SHOWN, _DESCRIBE, _SHARE_GROUP),),
    "PUT /v1/share-groups/{group}": (
        _needs(Where.NEW, _CREATE, _SHARE_GROUP, "group"),
        _needs(Where.CHANGED, _ALTER, _SHARE_GROUP, "group"),
        _body(_READ, _TOPIC, "topics"),
        _body(_WRITE, _TOPIC, "dead_letter_topic"),
    ),
    "GET /v1/share-groups/{group}": (
        _path(_DESCRIBE, _SHARE_GROUP, "group"),
        _needs(Where.SHOWN, _DESCRIBE, _TOPIC),
    ),
    "DELETE /v1/share-groups/{group}": (_path(_DELETE, _SHARE_GROUP, "group"),),
    "POST /v1/share-groups/{group}/reset": (_path(_ALTER, _SHARE_GROUP, "group"), _body(_READ, _TOPIC, "topic")),
    "POST /v1/share-groups/{group}/records": _READ_SHARED,
    "POST /v1/share-groups/{group}/acquire": _READ_SHARED,
    "POST /v1/share-groups/{group}/acknowledge": (
        _path(_READ, _SHARE_GROUP, "group"),
        _body(_READ, _TOPIC, "acknowledge"),
    ),
    "GET /v1/subscriptions": (_needs(Where.SHOWN, _DESCRIBE, _SUBSCRIPTION),),
    "PUT /v1/subscriptions/{name}": (
        _needs(Where.NEW, _CREATE, _SUBSCRIPTION, "name"),
        _needs(Where.CHANGED, _ALTER, _SUBSCRIPTION, "name"),
        _body(_READ, _TOPIC, "topics"),
        _body(_WRITE, _TOPIC, "target"),
        _body(_WRITE, _TOPIC, "dead_letter_topic"),
    ),
    "GET /v1/subscriptions/{name}": (
        _path(_DESCRIBE, _SUBSCRIPTION, "name"),
        _needs(Where.SHOWN, _DESCRIBE, _TOPIC),
    ),
    "DELETE /v1/subscriptions/{name}": (_path(_DELETE, _SUBSCRIPTION, "name"),),
    "POST /v1/subscriptions/{name}/pause": (_path(_ALTER, _SUBSCRIPTION, "name"),),
    "POST /v1/subscriptions/{name}/resume": (_path(_ALTER, _SUBSCRIPTION, "name"),),
    "GET /v1/zones": (_path(_DESCRIBE, _SERVICE, ""),),
    "POST /v1/zones/{zone}": (_path(_ALTER, _SERVICE, ""),),
    "GET /v1/quotas": (_path(_DESCRIBE, _SERVICE, ""),),
    "PUT /v1/quotas": (_path(_ALTER, _SERVICE, ""),),
    "DELETE /v1/quotas": (_path(_ALTER, _SERVICE, ""),),
    "GET /v1/acls": (_path(_DESCRIBE, _SERVICE, ""),),
    "POST /v1/acls": (_path(_ALTER, _SERVICE, ""),),
    "DELETE /v1/acls": (_path(_ALTER, _SERVICE, ""),),
    "POST /v1/acls/check": (_body(_DESCRIBE, _SERVICE, "principal, if it is another one"),),
}


def check_path(event: Event, access: Access) -> None:
    """Raises NOT_AUTHORIZED for a right that the caller does not have on what the path names, and as `check_caller`.

    A route that the table does not have is none: UNKNOWN_ROUTE refuses each call of it.
    """
    route, parameters = event["routeKey"], event.get("pathParameters") or {}
    if route not in ROUTE_RIGHTS:
        raise unknown_route(*route.partition(" ")[::2])
    check_caller(route, access)
    either: list[Need] = []
    for need in ROUTE_RIGHTS[route]:
        if need.where is Where.PATH:
            access.require(need.operation, need.kind, parameters[need.field] if need.field else "")
        elif need.where in (Where.NEW, Where.CHANGED):
            either.append(need)
    if either:
        create, alter = either
        access.require_either(create.operation, alter.operation, create.kind, parameters[create.field])
