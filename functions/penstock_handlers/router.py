"""All functions with routes, for programs that run the service in one process: tests and `penstock.testing`.

In AWS, API Gateway routes requests by the same table (penstock_core/routes.py).
"""

import base64
from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote, urlencode

from penstock_core.limits import REQUEST_BYTES_MAX
from penstock_core.routes import match_route
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

SERVES: Mapping[str, Serve] = {
    "acls": acls.serve,
    "fetch": fetch.serve,
    "group_admin": group_admin.serve,
    "groups": groups.serve,
    "produce": produce.serve,
    "quotas": quotas.serve,
    "records_fetch": records_fetch.serve,
    "records_produce": records_produce.serve,
    "share": share.serve,
    "share_admin": share_admin.serve,
    "subscriptions": subscriptions.serve,
    "topics": topics.serve,
    "transactions": transactions.serve,
    "zones": zones.serve,
}
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
    match = match_route(method, path)
    if match is None:
        result = error_result(unknown_route(method, path))
    else:
        event = _event(match.route.key, method, path, query, headers, body, caller)
        event = {**event, "pathParameters": match.parameters, BYTES_MAX: request_bytes_max}
        result = answer(SERVES[match.route.function], event, instance)
    content = result.get("body") or ""
    data = base64.b64decode(content) if result.get("isBase64Encoded") else content.encode()
    return result["statusCode"], result["headers"], data


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
