"""Every route in one place, for programs that run the service in one process: tests and `penstock.testing`.

In AWS, API Gateway routes requests (infra/penstock_cdk/service/routes.py). A test holds that both know the same routes.
"""

import base64
import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote, urlencode

from penstock_core.limits import REQUEST_BYTES_MAX
from penstock_handlers import (
    acls,
    fetch,
    group_admin,
    groups,
    produce,
    quotas,
    records_fetch,
    records_produce,
    share,
    share_admin,
    subscriptions,
    topics,
    transactions,
    zones,
)
from penstock_handlers.edge.entry import Serve, answer
from penstock_handlers.edge.http import BYTES_MAX, Event, error_result, unknown_route
from penstock_service.instance.instance import Instance

ROUTES: Mapping[str, Serve] = {
    "POST /v1/produce": produce.serve,
    "POST /v1/fetch": fetch.serve,
    "POST /v1/producers": transactions.serve,
    "POST /v1/producers/{transactional_id}/release": transactions.serve,
    "POST /v1/transactions": transactions.serve,
    "POST /v1/topics/{topic}/records": records_produce.serve,
    "GET /v1/topics/{topic}/partitions/{partition}/records": records_fetch.serve,
    "POST /v1/topics": topics.serve,
    "GET /v1/topics": topics.serve,
    "GET /v1/metadata": topics.serve,
    "GET /v1/wake-ups": topics.serve,
    "GET /v1/topics/{topic}": topics.serve,
    "PATCH /v1/topics/{topic}": topics.serve,
    "DELETE /v1/topics/{topic}": topics.serve,
    "GET /v1/topics/{topic}/offsets": topics.serve,
    "POST /v1/topics/{topic}/truncate": topics.serve,
    "GET /v1/share-groups": share_admin.serve,
    "PUT /v1/share-groups/{group}": share_admin.serve,
    "GET /v1/share-groups/{group}": share_admin.serve,
    "DELETE /v1/share-groups/{group}": share_admin.serve,
    "POST /v1/share-groups/{group}/reset": share_admin.serve,
    "POST /v1/share-groups/{group}/records": share.serve,
    "POST /v1/share-groups/{group}/acquire": share.serve,
    "POST /v1/share-groups/{group}/acknowledge": share.serve,
    "GET /v1/subscriptions": subscriptions.serve,
    "PUT /v1/subscriptions/{name}": subscriptions.serve,
    "GET /v1/subscriptions/{name}": subscriptions.serve,
    "DELETE /v1/subscriptions/{name}": subscriptions.serve,
    "POST /v1/subscriptions/{name}/pause": subscriptions.serve,
    "POST /v1/subscriptions/{name}/resume": subscriptions.serve,
    "GET /v1/topics/{topic}/scheduled": topics.serve,
    "DELETE /v1/topics/{topic}/scheduled/{timer}": topics.serve,
    "POST /v1/topics/{topic}/redrive": share.serve,
    "GET /v1/quotas": quotas.serve,
    "PUT /v1/quotas": quotas.serve,
    "DELETE /v1/quotas": quotas.serve,
    "GET /v1/zones": zones.serve,
    "POST /v1/zones/{zone}": zones.serve,
    "GET /v1/acls": acls.serve,
    "POST /v1/acls": acls.serve,
    "DELETE /v1/acls": acls.serve,
    "POST /v1/acls/check": acls.serve,
    "GET /v1/groups": group_admin.serve,
    "GET /v1/groups/{group}": group_admin.serve,
    "PATCH /v1/groups/{group}": group_admin.serve,
    "DELETE /v1/groups/{group}": group_admin.serve,
    "POST /v1/groups/{group}/reset": group_admin.serve,
    "POST /v1/groups/{group}/offsets/delete": group_admin.serve,
    "POST /v1/groups/{group}/heartbeat": groups.serve,
    "POST /v1/groups/{group}/offsets": groups.serve,
    "GET /v1/groups/{group}/offsets": groups.serve,
    "GET /v1/groups/{group}/document": groups.serve,
    "PUT /v1/groups/{group}/document": groups.serve,
}
_PATTERNS = [(re.compile(re.sub(r"\{(\w+)\}", r"(?P<\1>[^/]+)", route)), route) for route in ROUTES]
Caller = str | Mapping[str, Any]
LOCAL_ADDRESS = "127.0.0.1"
LOCAL_PRINCIPAL = "arn:aws:iam::000000000000:user/local"


def dispatch(
    method: str,
    path: str,
    query: Mapping[str, str],
    headers: Mapping[str, str],
    body: bytes,
    instance: Instance,
    caller: Caller = LOCAL_PRINCIPAL,
    *,
    request_bytes_max: int = REQUEST_BYTES_MAX,
) -> tuple[int, dict[str, str], bytes]:
    """Answer as API Gateway and the functions behind it do: status, headers, body.

    Neither signatures nor tokens are checked: `caller` is an ARN, or the claims of a token.
    """
    route, parameters = route_of(method, path)
    if route in ROUTES:
        event = _event(route, method, path, query, headers, body, caller)
        result = answer(ROUTES[route], {**event, "pathParameters": parameters, BYTES_MAX: request_bytes_max}, instance)
    else:
        result = error_result(unknown_route(method, path))
    content = result.get("body") or ""
    data = base64.b64decode(content) if result.get("isBase64Encoded") else content.encode()
    return result["statusCode"], result["headers"], data


def route_of(method: str, path: str) -> tuple[str, dict[str, str]]:
    """The key of the route that a request takes, and its path's parameters. The key is "" if no route takes it."""
    for pattern, route in _PATTERNS:
        if found := pattern.fullmatch(f"{method} {path}"):
            return route, {name: unquote(value) for name, value in found.groupdict().items()}
    return "", {}


def _event(
    route: str,
    method: str,
    path: str,
    query: Mapping[str, str],
    headers: Mapping[str, str],
    body: bytes,
    caller: Caller,
) -> Event:
    return {
        "version": "2.0",
        "routeKey": route,
        "rawPath": unquote(path),
        "rawQueryString": urlencode(query),
        "queryStringParameters": dict(query),
        "headers": {name.lower(): value for name, value in headers.items()},
        "requestContext": {
            "authorizer": {"iam": {"userArn": caller}} if isinstance(caller, str) else {"jwt": {"claims": caller}},
            "http": {"method": method, "path": unquote(path), "sourceIp": LOCAL_ADDRESS},
            "stage": "$default",
        },
        "body": bytes(body),
        "isBase64Encoded": False,
    }
