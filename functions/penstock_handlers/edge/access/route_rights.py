"""The check of a request by its row of `penstock_core.routes`, before its handler runs.

`tests/handlers/test_rights.py` takes each right of a row away from a caller who has all others, and gives a caller
exactly the rights of a route.
"""

from penstock_core.acls.access import Access
from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.routes import ROUTE_BY_KEY, Need, Route, Where
from penstock_handlers.edge.http import Event, unknown_route


def checked_route(event: Event, access: Access) -> Route:
    """The row of the request's route.

    Raises NOT_AUTHORIZED for the subject of a token on a route that takes none, and for a right that the caller does
    not have on what the path names. Raises UNKNOWN_ROUTE for a route without a row.
    """
    key, parameters = event["routeKey"], event.get("pathParameters") or {}
    route = ROUTE_BY_KEY.get(key)
    if route is None:
        raise unknown_route(*key.partition(" ")[::2])
    if access.principal.is_token and not route.tokens:
        raise PenstockError(ErrorCode.NOT_AUTHORIZED, f"{key} takes no tokens: sign it by AWS Signature Version 4")
    either: list[Need] = []
    for need in route.needs:
        if need.where is Where.PATH:
            access.require(need.operation, need.kind, parameters[need.field] if need.field else "")
        elif need.where in (Where.NEW, Where.CHANGED):
            either.append(need)
    if either:
        create, alter = either
        access.require_either(create.operation, alter.operation, create.kind, parameters[create.field])
    return route
