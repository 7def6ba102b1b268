"""Every route in one place, for those who run the service in one process: tests and `penstock.testing`.

In AWS, API Gateway does this (infra/routes.py); a test holds that both know the same routes.
"""

import base64
import re
from collections.abc import Mapping
from urllib.parse import urlencode

from handlers import (
    fetch,
    group_admin,
    groups,
    produce,
    records_fetch,
    records_produce,
    topics,
    transactions,
    zones,
)
from handlers.entry import Serve, answer
from handlers.http import Event, error_result
from penstock_broker.broker import Broker
from penstock_core.errors import ErrorCode, PenstockError

ROUTES: Mapping[str, Serve] = {
    "POST /v1/produce": produce.serve,
    "POST /v1/fetch": fetch.serve,
    "POST /v1/producers": transactions.serve,
    "POST /v1/transactions": transactions.serve,
    "POST /v1/topics/{topic}/records": records_produce.serve,
    "GET /v1/topics/{topic}/partitions/{partition}/records": records_fetch.serve,
    "POST /v1/topics": topics.serve,
    "GET /v1/topics": topics.serve,
    "GET /v1/metadata": topics.serve,
    "GET /v1/topics/{topic}": topics.serve,
    "PATCH /v1/topics/{topic}": topics.serve,
    "DELETE /v1/topics/{topic}": topics.serve,
    "GET /v1/topics/{topic}/offsets": topics.serve,
    "POST /v1/topics/{topic}/truncate": topics.serve,
    "GET /v1/zones": zones.serve,
    "POST /v1/zones/{zone}": zones.serve,
    "GET /v1/groups": group_admin.serve,
    "GET /v1/groups/{group}": group_admin.serve,
    "PATCH /v1/groups/{group}": group_admin.serve,
    "DELETE /v1/groups/{group}": group_admin.serve,
    "POST /v1/groups/{group}/reset": group_admin.serve,
    "POST /v1/groups/{group}/heartbeat": groups.serve,
    "POST /v1/groups/{group}/offsets": groups.serve,
    "GET /v1/groups/{group}/offsets": groups.serve,
}
_PATTERNS = [(re.compile(re.sub(r"\{\w+\}", "[^/]+", route)), route, serve) for route, serve in ROUTES.items()]


def dispatch(
    method: str, path: str, query: Mapping[str, str], headers: Mapping[str, str], body: bytes, broker: Broker
) -> tuple[int, dict[str, str], bytes]:
    """What API Gateway and the functions behind it would answer: status, headers, body. Signatures are not checked."""
    for pattern, route, serve in _PATTERNS:
        if pattern.fullmatch(f"{method} {path}"):
            result = answer(serve, _event(route, method, path, query, headers, body), broker)
            break
    else:
        result = error_result(PenstockError(ErrorCode.UNKNOWN_ROUTE, f"{method} {path} is no route of this API"))
    content = result.get("body") or ""
    data = base64.b64decode(content) if result.get("isBase64Encoded") else content.encode()
    return result["statusCode"], result["headers"], data


def _event(
    route: str, method: str, path: str, query: Mapping[str, str], headers: Mapping[str, str], body: bytes
) -> Event:
    return {
        "version": "2.0",
        "routeKey": route,
        "rawPath": path,
        "rawQueryString": urlencode(query),
        "queryStringParameters": dict(query),
        "headers": {name.lower(): value for name, value in headers.items()},
        "requestContext": {"http": {"method": method, "path": path}, "stage": "$default"},
        "body": base64.b64encode(body).decode(),
        "isBase64Encoded": True,
    }
