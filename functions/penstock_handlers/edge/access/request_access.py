"""The rights of the caller of a request.

The principal that calls, as API Gateway tells it: by IAM's signature, or by a token on the API that takes tokens.

Only `requestContext.authorizer` counts. API Gateway writes it, and no header, query or body reaches it.

The check of a request by its row of `penstock_core.routes`, before its handler runs.

`tests/handlers/test_rights.py` takes each right of a row away from a caller who has all others, and gives a caller
exactly the rights of a route.
"""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from penstock_core.acls.principal import Principal, iam_principal
from penstock_core.acls.rule import Kind, Operation
from penstock_core.acls.rule_set import Access
from penstock_core.acls.tokens import token_principal
from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.outcomes import Outcome, Outcomes
from penstock_core.routes import ROUTE_BY_KEY, Need, Route, Where
from penstock_handlers.edge.http import Event, unknown_route
from penstock_service.instance.instance import Instance

E = TypeVar("E")
R = TypeVar("R")
_ARN = "arn:"


def access_of(event: Event, instance: Instance) -> Access:
    """The caller's rights. Reads no storage if the rules were looked at lately (`acl_cache`).

    Raises NOT_AUTHORIZED, as `principal_of`.
    """
    return instance.acl_cache.access_of(principal_of(event, instance))


def where_allowed(
    access: Access,
    operation: Operation,
    entries: Sequence[E],
    topic_of: Callable[[E], str],
    call: Callable[[list[E]], Outcomes[R]],
) -> Outcomes[R]:
    """The outcome of each entry: NOT_AUTHORIZED, or that of `call`, which gets the entries whose topics are allowed.

    `call` is not made if all entries are refused.
    """
    refusals = {name: access.refusal(operation, Kind.TOPIC, name) for name in {topic_of(each) for each in entries}}
    allowed = [each for each in entries if refusals[topic_of(each)] is None]
    found = iter(call(allowed) if allowed or not entries else ())
    outcomes: list[Outcome[R]] = [refusals[topic_of(each)] or next(found) for each in entries]
    return Outcomes(outcomes)


def principal_of(event: Event, instance: Instance) -> Principal:
    """The caller's role, user, or token's subject.

    Raises NOT_AUTHORIZED if the event names no caller, two of them, or one by claims that name none.
    """
    authorizer = _fields(event["requestContext"].get("authorizer"))
    arn, token = _fields(authorizer.get("iam")).get("userArn"), authorizer.get("jwt")
    if arn and token:
        raise _refused("the request has a signature and a token: send one of them")
    if token:
        return token_principal(_fields(token).get("claims"), instance.acl_cache.settings.tokens)
    if not isinstance(arn, str) or not arn.startswith(_ARN):
        raise _refused("the request names no caller: it did not come by the API")
    return iam_principal(arn)


def _fields(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _refused(why: str) -> PenstockError:
    return PenstockError(ErrorCode.NOT_AUTHORIZED, why)


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
