"""The routes of the HTTP API, one row for each. All that asks something of a route reads this table.

| column      | read by                                                                                        |
|-------------|------------------------------------------------------------------------------------------------|
| `method`, `path` | API Gateway (infra), the router of one process, and the matcher of direct calls           |
| `function`  | infra, and clients that invoke functions by Lambda's API: a module of functions/penstock_handlers |
| `handler`   | the function, where it has several: a module of functions/penstock_handlers/routes            |
| `needs`     | the check of rights, before the handler and in it                                              |
| `audit`     | the trail: the action that its notes name, "" for a route that leaves none                     |
| `tokens`    | the API for tokens, which has no other routes, and the check of callers                        |
| `policies`  | the policies of clients, and the aliases of direct calls (docs/adr/0065)                       |

A right on a resource that the path names is checked before the handler runs. All other rights are the handler's: it
knows the resources only once it has read the body, or the list that it is to show.

A route without a trail reads, or carries records, or does the work of consumers and producers: the log itself is their
trail. A route without tokens operates the service: a rule that was meant for one team must not hand the whole service
to whoever its issuer gives a token. Subscriptions are among them, because a subscription calls functions, queues and
buses of the account (docs/protocol/push). Schedules are, because one writes for as long as it is there. So are
wake-ups, which come by AppSync to callers of IAM only.

IAM sees a function and its alias where API Gateway would show it a route. So each policy of clients has an alias of
its own, and the function behind it serves the routes of that policy alone.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple
from urllib.parse import unquote

from penstock_core.acls.rule import Kind, Operation


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """One method and path of the API. `segments` are the parts of the path, a parameter in braces."""

    method: str
    path: str
    function: str
    handler: str
    needs: tuple[Need, ...]
    audit: str
    tokens: bool
    policies: tuple[str, ...]
    segments: tuple[str, ...] = field(repr=False)

    @property
    def key(self) -> str:
        """The method and the path, as API Gateway names the route: `GET /v1/topics/{topic}`."""
        return f"{self.method} {self.path}"

    @property
    def parameter(self) -> str:
        """The first parameter of the path, which names the resource of the route; "" for a path that names none."""
        return next((each[1:-1] for each in self.segments if each.startswith("{")), "")


def _route(
    key: str, served_by: str, *needs: Need, audit: str = "", tokens: bool = True, policies: tuple[str, ...] = ()
) -> Route:
    method, path = key.split(" ")
    function, _, handler = served_by.partition("/")
    return Route(
        method=method,
        path=path,
        function=function,
        handler=handler or function,
        needs=needs,
        audit=audit,
        tokens=tokens,
        policies=policies,
        segments=tuple(path.split("/")),
    )


def _need(where: Where, operation: Operation, kind: Kind, name: str = "") -> Need:
    return Need(operation=operation, kind=kind, where=where, field=name)


def _path(operation: Operation, kind: Kind, name: str | None = None) -> Need:
    return _need(Where.PATH, operation, kind, kind.value if name is None else name)


def _body(operation: Operation, kind: Kind, name: str) -> Need:
    return _need(Where.BODY, operation, kind, name)


def _shown(kind: Kind) -> Need:
    return _need(Where.SHOWN, Operation.DESCRIBE, kind)


def _new_or_changed(kind: Kind, name: str) -> tuple[Need, Need]:
    return _need(Where.NEW, Operation.CREATE, kind, name), _need(Where.CHANGED, Operation.ALTER, kind, name)


PRODUCE, CONSUME, TRANSACT, ADMIN = "produce", "consume", "transact", "admin"
_READ, _WRITE, _CREATE = Operation.READ, Operation.WRITE, Operation.CREATE
_DESCRIBE, _ALTER, _DELETE = Operation.DESCRIBE, Operation.ALTER, Operation.DELETE
_TOPIC, _GROUP, _ID = Kind.TOPIC, Kind.GROUP, Kind.TRANSACTIONAL_ID
_SHARE_GROUP, _SUBSCRIPTION, _SERVICE = Kind.SHARE_GROUP, Kind.SUBSCRIPTION, Kind.SERVICE
_SCHEDULE, _IN_SCHEDULE = Kind.SCHEDULE, "/v1/schedules/{name}"
_READ_SHARED = (_path(_READ, _SHARE_GROUP, "group"), _body(_READ, _TOPIC, "topics, and those of acknowledge"))
_DESCRIBES_SERVICE, _ALTERS_SERVICE = _path(_DESCRIBE, _SERVICE, ""), _path(_ALTER, _SERVICE, "")
_IN_TOPIC, _IN_GROUP, _IN_SHARE_GROUP = "/v1/topics/{topic}", "/v1/groups/{group}", "/v1/share-groups/{group}"
_IN_SUBSCRIPTION = "/v1/subscriptions/{name}"

ROUTES: tuple[Route, ...] = (
    _route("POST /v1/topics", "admin/topics", _body(_CREATE, _TOPIC, "name"), audit="create_topic"),
    _route("GET /v1/topics", "admin/topics", _shown(_TOPIC)),
    _route(
        "GET /v1/metadata", "admin/topics", _body(_DESCRIBE, _TOPIC, "topic"), policies=(PRODUCE, CONSUME, TRANSACT)
    ),
    _route("GET /v1/wake-ups", "admin/topics", tokens=False, policies=(CONSUME,)),
    _route(f"GET {_IN_TOPIC}", "admin/topics", _path(_DESCRIBE, _TOPIC), policies=(CONSUME,)),
    _route(f"PATCH {_IN_TOPIC}", "admin/topics", _path(_ALTER, _TOPIC), audit="alter_topic"),
    _route(f"DELETE {_IN_TOPIC}", "admin/topics", _path(_DELETE, _TOPIC), audit="delete_topic"),
    _route(f"GET {_IN_TOPIC}/users", "admin/topics", _path(_DELETE, _TOPIC)),
    _route(f"GET {_IN_TOPIC}/offsets", "admin/topics", _path(_DESCRIBE, _TOPIC), policies=(CONSUME,)),
    _route(f"POST {_IN_TOPIC}/truncate", "admin/topics", _path(_DELETE, _TOPIC), audit="truncate_topic"),
    _route(f"GET {_IN_TOPIC}/scheduled", "admin/topics", _path(_DESCRIBE, _TOPIC), policies=(PRODUCE,)),
    _route(
        f"DELETE {_IN_TOPIC}/scheduled/{{timer}}",
        "admin/topics",
        _path(_WRITE, _TOPIC),
        audit="cancel_scheduled",
        policies=(PRODUCE,),
    ),
    _route("POST /v1/produce", "produce", _body(_WRITE, _TOPIC, "batches"), policies=(PRODUCE,)),
    # Transactions are no part of PRODUCE, because a transaction also commits offsets of groups.
    _route("POST /v1/producers", "transactions", _body(_WRITE, _ID, "transactional_id"), policies=(TRANSACT,)),
    _route(
        "POST /v1/producers/{transactional_id}/release",
        "admin/redrive",
        _path(_ALTER, _ID),
        audit="release_transactional_id",
        tokens=False,
    ),
    _route(
        "POST /v1/transactions",
        "transactions",
        _body(_WRITE, _ID, "transactional_id"),
        _body(_WRITE, _TOPIC, "batches"),
        _body(_READ, _GROUP, "offsets"),
        _body(_READ, _TOPIC, "offsets"),
        _body(_READ, _SHARE_GROUP, "acknowledgements"),
        _body(_READ, _TOPIC, "acknowledgements"),
        policies=(TRANSACT,),
    ),
    _route("POST /v1/fetch", "fetch", _body(_READ, _TOPIC, "partitions"), policies=(CONSUME,)),
    _route(f"POST {_IN_TOPIC}/records", "produce/records_produce", _path(_WRITE, _TOPIC), policies=(PRODUCE,)),
    _route(
        f"GET {_IN_TOPIC}/partitions/{{partition}}/records",
        "fetch/records_fetch",
        _path(_READ, _TOPIC),
        policies=(CONSUME,),
    ),
    _route("GET /v1/groups", "admin/group_admin", _shown(_GROUP)),
    # A consumer describes its group: so a gateway of Kafka clients takes members over (docs/protocol/gateway).
    _route(f"GET {_IN_GROUP}", "admin/group_admin", _path(_DESCRIBE, _GROUP), _shown(_TOPIC), policies=(CONSUME,)),
    _route(f"PATCH {_IN_GROUP}", "admin/group_admin", _path(_ALTER, _GROUP), audit="alter_group"),
    _route(f"DELETE {_IN_GROUP}", "admin/group_admin", _path(_DELETE, _GROUP), audit="delete_group"),
    _route(
        f"POST {_IN_GROUP}/reset",
        "admin/group_admin",
        _path(_ALTER, _GROUP),
        _body(_READ, _TOPIC, "topic"),
        audit="reset_group",
    ),
    _route(
        f"POST {_IN_GROUP}/offsets/delete",
        "admin/group_admin",
        _path(_DELETE, _GROUP),
        _body(_READ, _TOPIC, "topic"),
        audit="delete_offsets",
    ),
    _route(
        f"POST {_IN_GROUP}/heartbeat",
        "groups",
        _path(_READ, _GROUP),
        _body(_READ, _TOPIC, "subscription"),
        policies=(CONSUME,),
    ),
    _route(
        f"POST {_IN_GROUP}/offsets",
        "groups",
        _path(_READ, _GROUP),
        _body(_READ, _TOPIC, "offsets"),
        policies=(CONSUME,),
    ),
    _route(f"GET {_IN_GROUP}/offsets", "groups", _path(_DESCRIBE, _GROUP), _shown(_TOPIC), policies=(CONSUME,)),
    # of groups whose leader assigns (docs/protocol/gateway)
    _route(f"GET {_IN_GROUP}/document", "groups", _path(_READ, _GROUP), policies=(CONSUME,)),
    _route(f"PUT {_IN_GROUP}/document", "groups", _path(_READ, _GROUP), policies=(CONSUME,)),
    _route("GET /v1/share-groups", "admin/share_admin", _shown(_SHARE_GROUP)),
    _route(
        f"PUT {_IN_SHARE_GROUP}",
        "admin/share_admin",
        *_new_or_changed(_SHARE_GROUP, "group"),
        _body(_READ, _TOPIC, "topics"),
        _body(_WRITE, _TOPIC, "dead_letter_topic"),
        audit="put_share_group",
    ),
    # A consumer describes its share group, so that it knows whether to create it (docs/protocol/gateway).
    _route(
        f"GET {_IN_SHARE_GROUP}",
        "admin/share_admin",
        _path(_DESCRIBE, _SHARE_GROUP, "group"),
        _shown(_TOPIC),
        _body(_DESCRIBE, _TOPIC, "topic"),
        policies=(CONSUME,),
    ),
    _route(
        f"DELETE {_IN_SHARE_GROUP}",
        "admin/share_admin",
        _path(_DELETE, _SHARE_GROUP, "group"),
        audit="delete_share_group",
    ),
    _route(
        f"POST {_IN_SHARE_GROUP}/reset",
        "admin/share_admin",
        _path(_ALTER, _SHARE_GROUP, "group"),
        _body(_READ, _TOPIC, "topic"),
        audit="reset_share_group",
    ),
    _route(f"POST {_IN_SHARE_GROUP}/records", "share", *_READ_SHARED, policies=(CONSUME,)),
    _route(f"POST {_IN_SHARE_GROUP}/acquire", "share", *_READ_SHARED, policies=(CONSUME,)),
    _route(
        f"POST {_IN_SHARE_GROUP}/acknowledge",
        "share",
        _path(_READ, _SHARE_GROUP, "group"),
        _body(_READ, _TOPIC, "acknowledge"),
        policies=(CONSUME,),
    ),
    _route(f"GET {_IN_TOPIC}/dead-letters", "admin/topics", _path(_DESCRIBE, _TOPIC)),
    _route(
        f"POST {_IN_TOPIC}/redrive",
        "admin/redrive",
        _path(_READ, _TOPIC),
        _body(_WRITE, _TOPIC, "to, or where a record came from"),
        _body(_DELETE, _TOPIC, "the path, with drop"),
        audit="redrive",
    ),
    # Another stage pushes here, under a role of its own (docs/protocol/mirrors).
    _route(
        "POST /v1/mirrors/{name}/append",
        "admin/mirrors",
        _body(_ALTER, _TOPIC, "topic"),
        _body(_WRITE, _TOPIC, "topic"),
        tokens=False,
    ),
    _route(f"POST {_IN_TOPIC}/move", "admin/mirrors", _path(_ALTER, _TOPIC), audit="move_topic", tokens=False),
    _route(f"POST {_IN_TOPIC}/promote", "admin/mirrors", _path(_ALTER, _TOPIC), audit="promote_topic", tokens=False),
    _route(f"POST {_IN_TOPIC}/resync", "admin/mirrors", _path(_DELETE, _TOPIC), audit="resync_topic", tokens=False),
    _route("GET /v1/subscriptions", "admin/subscriptions", _shown(_SUBSCRIPTION), tokens=False),
    _route(
        f"PUT {_IN_SUBSCRIPTION}",
        "admin/subscriptions",
        *_new_or_changed(_SUBSCRIPTION, "name"),
        _body(_READ, _TOPIC, "topics"),
        _body(_WRITE, _TOPIC, "target"),
        _body(_WRITE, _TOPIC, "dead_letter_topic"),
        audit="put_subscription",
        tokens=False,
    ),
    _route(
        f"GET {_IN_SUBSCRIPTION}",
        "admin/subscriptions",
        _path(_DESCRIBE, _SUBSCRIPTION, "name"),
        _shown(_TOPIC),
        tokens=False,
    ),
    _route(
        f"DELETE {_IN_SUBSCRIPTION}",
        "admin/subscriptions",
        _path(_DELETE, _SUBSCRIPTION, "name"),
        audit="delete_subscription",
        tokens=False,
    ),
    *(
        _route(
            f"POST {_IN_SUBSCRIPTION}/{verb}",
            "admin/subscriptions",
            _path(_ALTER, _SUBSCRIPTION, "name"),
            audit=f"{verb}_subscription",
            tokens=False,
        )
        for verb in ("pause", "resume")
    ),
    _route("GET /v1/schedules", "admin/schedules", _shown(_SCHEDULE), tokens=False),
    _route(
        f"PUT {_IN_SCHEDULE}",
        "admin/schedules",
        *_new_or_changed(_SCHEDULE, "name"),
        _body(_WRITE, _TOPIC, "topic"),
        audit="put_schedule",
        tokens=False,
    ),
    _route(f"GET {_IN_SCHEDULE}", "admin/schedules", _path(_DESCRIBE, _SCHEDULE, "name"), tokens=False),
    _route(
        f"DELETE {_IN_SCHEDULE}",
        "admin/schedules",
        _path(_DELETE, _SCHEDULE, "name"),
        audit="delete_schedule",
        tokens=False,
    ),
    _route("GET /v1/quotas", "admin/quotas", _DESCRIBES_SERVICE, tokens=False),
    _route("PUT /v1/quotas", "admin/quotas", _ALTERS_SERVICE, audit="put_quota", tokens=False),
    _route("DELETE /v1/quotas", "admin/quotas", _ALTERS_SERVICE, audit="delete_quota", tokens=False),
    _route("GET /v1/zones", "admin/zones", _DESCRIBES_SERVICE, tokens=False),
    _route("POST /v1/zones/{zone}", "admin/zones", _ALTERS_SERVICE, audit="move_zone", tokens=False),
    # Who may not describe the service gets the rules that are about it.
    _route("GET /v1/acls", "admin/acls", _shown(_SERVICE), tokens=False),
    _route("POST /v1/acls", "admin/acls", _ALTERS_SERVICE, audit="change_acls", tokens=False),
    _route("DELETE /v1/acls", "admin/acls", _ALTERS_SERVICE, audit="delete_acl", tokens=False),
    _route(
        "POST /v1/acls/check", "admin/acls", _body(_DESCRIBE, _SERVICE, "principal, if it is another one"), tokens=False
    ),
)

ROUTE_BY_KEY: Mapping[str, Route] = {route.key: route for route in ROUTES}
_DIRECT = "direct-"
# Aliases are here in the order in which a client tries them.
ROUTES_OF_ALIAS: Mapping[str, tuple[str, ...]] = {
    **{
        f"{_DIRECT}{policy}": tuple(route.key for route in ROUTES if policy in route.policies)
        for policy in (PRODUCE, CONSUME, TRANSACT)
    },
    f"{_DIRECT}{ADMIN}": tuple(ROUTE_BY_KEY),
}


class RouteMatch(NamedTuple):
    """A route, and the parameters of its path."""

    route: Route
    parameters: dict[str, str]


def match_route(method: str, path: str) -> RouteMatch | None:
    """The route that a percent-encoded path takes, None if there is none."""
    parts = path.split("/")
    for route in ROUTES:
        if route.method == method and len(route.segments) == len(parts):
            given = list(zip(route.segments, parts, strict=True))
            if all(part == segment or (part and segment.startswith("{")) for segment, part in given):
                return RouteMatch(
                    route, {segment[1:-1]: unquote(part) for segment, part in given if segment.startswith("{")}
                )
    return None


def aliases_of(route: Route) -> tuple[str, ...]:
    """The aliases behind which a function serves the route, in the order in which a client tries them."""
    return tuple(alias for alias, routes in ROUTES_OF_ALIAS.items() if route.key in routes)


def functions_of(alias: str) -> tuple[str, ...]:
    """The functions that have the alias, sorted."""
    return tuple(sorted({ROUTE_BY_KEY[key].function for key in ROUTES_OF_ALIAS[alias]}))
