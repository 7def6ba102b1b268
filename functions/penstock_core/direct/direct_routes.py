"""The function and the aliases of each route, for clients that invoke the functions by Lambda's API.

IAM sees a function and its alias where API Gateway would show it a route. So each policy of clients has an alias of its
own, and the function behind it serves the routes of that policy alone:

| alias             | policy            | routes                                             |
|-------------------|-------------------|----------------------------------------------------|
| `direct-produce`  | `PenstockProduce` | produce, metadata, delayed records                 |
| `direct-consume`  | `PenstockConsume` | fetch, groups, share groups, and what they look up |
| `direct-transact` | `PenstockTransact`| transactions, metadata                             |
| `direct-admin`    | `PenstockAdmin`   | all                                                |

Aliases stand here in the order in which a client tries them. `function` names a module of functions/penstock_handlers.
"""

import re
from collections.abc import Mapping
from typing import NamedTuple
from urllib.parse import unquote

_TOPIC, _GROUP, _SHARE_GROUP = "/v1/topics/{topic}", "/v1/groups/{group}", "/v1/share-groups/{group}"

FUNCTION_OF_ROUTE: Mapping[str, str] = {
    "POST /v1/topics": "topics",
    "GET /v1/topics": "topics",
    "GET /v1/metadata": "topics",
    "GET /v1/wake-ups": "topics",
    f"GET {_TOPIC}": "topics",
    f"PATCH {_TOPIC}": "topics",
    f"DELETE {_TOPIC}": "topics",
    f"GET {_TOPIC}/offsets": "topics",
    f"POST {_TOPIC}/truncate": "topics",
    f"GET {_TOPIC}/scheduled": "topics",
    f"DELETE {_TOPIC}/scheduled/{{timer}}": "topics",
    "POST /v1/produce": "produce",
    "POST /v1/producers": "transactions",
    "POST /v1/producers/{transactional_id}/release": "transactions",
    "POST /v1/transactions": "transactions",
    "POST /v1/fetch": "fetch",
    f"POST {_TOPIC}/records": "records_produce",
    f"GET {_TOPIC}/partitions/{{partition}}/records": "records_fetch",
    "GET /v1/groups": "group_admin",
    f"GET {_GROUP}": "group_admin",
    f"PATCH {_GROUP}": "group_admin",
    f"DELETE {_GROUP}": "group_admin",
    f"POST {_GROUP}/reset": "group_admin",
    f"POST {_GROUP}/offsets/delete": "group_admin",
    f"POST {_GROUP}/heartbeat": "groups",
    f"POST {_GROUP}/offsets": "groups",
    f"GET {_GROUP}/offsets": "groups",
    f"GET {_GROUP}/document": "groups",
    f"PUT {_GROUP}/document": "groups",
    "GET /v1/share-groups": "share_admin",
    f"PUT {_SHARE_GROUP}": "share_admin",
    f"GET {_SHARE_GROUP}": "share_admin",
    f"DELETE {_SHARE_GROUP}": "share_admin",
    f"POST {_SHARE_GROUP}/reset": "share_admin",
    f"POST {_SHARE_GROUP}/records": "share",
    f"POST {_SHARE_GROUP}/acquire": "share",
    f"POST {_SHARE_GROUP}/acknowledge": "share",
    f"POST {_TOPIC}/redrive": "share",
    "GET /v1/subscriptions": "subscriptions",
    "PUT /v1/subscriptions/{name}": "subscriptions",
    "GET /v1/subscriptions/{name}": "subscriptions",
    "DELETE /v1/subscriptions/{name}": "subscriptions",
    "POST /v1/subscriptions/{name}/pause": "subscriptions",
    "POST /v1/subscriptions/{name}/resume": "subscriptions",
    "GET /v1/quotas": "quotas",
    "PUT /v1/quotas": "quotas",
    "DELETE /v1/quotas": "quotas",
    "GET /v1/zones": "zones",
    "POST /v1/zones/{zone}": "zones",
    "GET /v1/acls": "acls",
    "POST /v1/acls": "acls",
    "DELETE /v1/acls": "acls",
    "POST /v1/acls/check": "acls",
}

PRODUCE_ROUTES = (
    "GET /v1/metadata",
    "POST /v1/produce",
    f"POST {_TOPIC}/records",
    f"GET {_TOPIC}/scheduled",
    f"DELETE {_TOPIC}/scheduled/{{timer}}",
)
CONSUME_ROUTES = (
    "GET /v1/metadata",
    f"GET {_TOPIC}",
    f"GET {_TOPIC}/offsets",
    "POST /v1/fetch",
    "GET /v1/wake-ups",
    f"GET {_TOPIC}/partitions/{{partition}}/records",
    f"POST {_GROUP}/heartbeat",
    f"POST {_GROUP}/offsets",
    f"GET {_GROUP}/offsets",
    f"GET {_GROUP}/document",  # of groups whose leader assigns (docs/adr/0068)
    f"PUT {_GROUP}/document",
    f"GET {_GROUP}",  # by which a gateway of Kafka clients takes members over (docs/adr/0057)
    f"GET {_SHARE_GROUP}",  # so that it knows whether to create a share group (docs/adr/0062)
    f"POST {_SHARE_GROUP}/records",
    f"POST {_SHARE_GROUP}/acquire",
    f"POST {_SHARE_GROUP}/acknowledge",
)
# Not part of PRODUCE_ROUTES, because a transaction also commits offsets of groups.
TRANSACT_ROUTES = ("GET /v1/metadata", "POST /v1/producers", "POST /v1/transactions")
ADMIN_ROUTES = tuple(FUNCTION_OF_ROUTE)

ROUTES_OF_ALIAS: Mapping[str, tuple[str, ...]] = {
    "direct-produce": PRODUCE_ROUTES,
    "direct-consume": CONSUME_ROUTES,
    "direct-transact": TRANSACT_ROUTES,
    "direct-admin": ADMIN_ROUTES,
}

_PATTERNS = [
    (re.compile(re.sub(r"\{(\w+)\}", r"(?P<\1>[^/]+)", route), re.ASCII), route) for route in FUNCTION_OF_ROUTE
]


class RouteMatch(NamedTuple):
    """A route, and the parameters of its path."""

    route: str
    parameters: dict[str, str]


def match_route(method: str, path: str) -> RouteMatch | None:
    """The route that a percent-encoded path takes, None if there is none."""
    for pattern, route in _PATTERNS:
        if found := pattern.fullmatch(f"{method} {path}"):
            return RouteMatch(route, {name: unquote(value) for name, value in found.groupdict().items()})
    return None


def aliases_of(route: str) -> tuple[str, ...]:
    """The aliases behind which a function serves the route, in the order in which a client tries them."""
    return tuple(alias for alias, routes in ROUTES_OF_ALIAS.items() if route in routes)


def functions_of(alias: str) -> tuple[str, ...]:
    """The functions that have the alias, sorted."""
    return tuple(sorted({FUNCTION_OF_ROUTE[route] for route in ROUTES_OF_ALIAS[alias]}))
