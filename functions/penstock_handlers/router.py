"""All functions with routes, for programs that run the service in one process: tests and `penstock.testing`.

In AWS, API Gateway routes requests by the same table (penstock_core/routes.py).
"""

import base64
from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote, urlencode

from penstock_core.limits import REQUEST_BYTES_MAX
from penstock_core.routes import match_route
from penstock_handlers import admin, fetch, groups, produce, share, transactions
from penstock_handlers.edge.entry import Serve, answer
from penstock_handlers.edge.http import BYTES_MAX, Event, error_result, unknown_route
from penstock_service.instance.instance import Instance

SERVES: Mapping[str, Serve] = {
    "admin": admin.serve,
    "fetch": fetch.serve,
    "groups": groups.serve,
    "produce": produce.serve,
    "share": share.serve,
    "transactions": transactions.serve,
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
