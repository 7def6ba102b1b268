"""A request that a client has sent by Lambda's API, past API Gateway (docs/adr/0065).

Lambda tells a function by which alias it was invoked, and IAM lets clients invoke the aliases of direct calls alone.
Such an event is the client's own text, so the function believes nothing that it says of its caller. It gives a request
and a proof, and STS tells who signed the proof. The event:

    {"penstock": 1, "method": "POST", "path": "/v1/produce", "query": {}, "body": "<base64>",
     "proof": {"key": "AKIA…", "time": "20261128T130000Z", "token": "", "signature": "<64 hexadecimal digits>"}}
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote, urlencode

from penstock_core.direct.caller_proof import parse_proof
from penstock_core.direct.function_arn import FunctionsPlace, parse_functions_place, qualifier_of
from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.limits import DIRECT_PATH_LENGTH_MAX
from penstock_core.routes import ROUTES_OF_ALIAS, Route, RouteMatch, match_route
from penstock_handlers.edge.http import Event, unknown_route
from penstock_service.instance.instance import Instance

VERSION = 1
ADDRESS = "lambda"  # in the audit trail: Lambda tells a function no address of its caller
_FIELDS = frozenset({"penstock", "method", "path", "query", "body", "proof"})


@dataclass(frozen=True, slots=True, kw_only=True)
class DirectCall:
    """The event of a direct call, not yet looked at, and what Lambda tells with it. `payload` may hold secrets."""

    arn: str
    request_id: str
    payload: object = field(repr=False)

    @property
    def alias(self) -> str:
        """The alias by which the function was invoked."""
        return qualifier_of(self.arn)


def direct_call(payload: object, context: Any) -> DirectCall | None:
    """The call, if it came by an alias of direct calls. None for other events: API Gateway invokes no such alias."""
    arn = str(context.invoked_function_arn)
    if qualifier_of(arn) not in ROUTES_OF_ALIAS:
        return None
    return DirectCall(arn=arn, request_id=str(context.aws_request_id), payload=payload)


def event_of(call: DirectCall, instance: Instance) -> Event:
    """The request of the call as API Gateway's events have it, with the caller that STS names.

    Costs a call of STS for a proof that this instance has not seen. Raises INVALID_REQUEST, UNKNOWN_ROUTE for a route
    that this alias of this function does not serve, NOT_AUTHORIZED, and IDENTITY_UNAVAILABLE. Nothing was done then.
    """
    callers = instance.proven_callers
    if callers is None:
        raise PenstockError(ErrorCode.NOT_AUTHORIZED, "this stage takes no direct calls: use transport='http'")
    method, path, query, body, proof = _fields_of(call.payload)
    match = _served(call, callers.stage, method, path)
    arn = callers.arn_of(parse_proof(proof), _place_of(call, match.route))
    return {
        "version": "2.0",
        "routeKey": match.route.key,
        "rawPath": unquote(path),
        "rawQueryString": urlencode(query),
        "queryStringParameters": query,
        "pathParameters": match.parameters,
        "headers": {},
        "requestContext": {
            "authorizer": {"iam": {"userArn": arn}},
            "http": {"method": method, "path": unquote(path), "sourceIp": ADDRESS},
            "requestId": call.request_id,
            "stage": "$default",
        },
        "body": body,
        "isBase64Encoded": True,
    }


def _fields_of(payload: object) -> tuple[str, str, dict[str, str], str, object]:
    if not isinstance(payload, Mapping) or set(payload) != _FIELDS or payload["penstock"] != VERSION:
        raise _invalid(f"it must have {', '.join(sorted(_FIELDS))} and nothing else, with penstock={VERSION}")
    method, path, query, body = payload["method"], payload["path"], payload["query"], payload["body"]
    if not (isinstance(method, str) and isinstance(path, str) and isinstance(body, str)):
        raise _invalid("method, path and body must be texts")
    if not isinstance(query, Mapping) or not all(isinstance(each, str) for pair in query.items() for each in pair):
        raise _invalid("query must be an object of texts")
    try:
        "".join((method, path, body, *query, *query.values())).encode()
    except UnicodeEncodeError:
        raise _invalid("half a surrogate pair is no text") from None
    length = len(path) + sum(len(name) + len(value) for name, value in query.items())
    if length > DIRECT_PATH_LENGTH_MAX:
        raise _invalid(f"path and query have {length} characters: {DIRECT_PATH_LENGTH_MAX} are allowed")
    return method, path, dict(query), body, payload["proof"]


def _served(call: DirectCall, stage: str, method: str, path: str) -> RouteMatch:
    """The route of the request, if this alias of this function serves it: IAM has allowed no other one."""
    match = match_route(method, path)
    if match is None or match.route.key not in ROUTES_OF_ALIAS[call.alias]:
        raise unknown_route(method[:10], path)
    if not call.arn.endswith(f":function:{stage}-{_hyphenated(match.route)}:{call.alias}"):
        raise unknown_route(method[:10], path)
    return match


def _place_of(call: DirectCall, route: Route) -> FunctionsPlace:
    """The stage of this function, by the ARN that Lambda tells."""
    try:
        return parse_functions_place(call.arn.removesuffix(f"-{_hyphenated(route)}:{call.alias}"))
    except ValueError as error:
        raise PenstockError(ErrorCode.INTERNAL, f"the function's own ARN: {error}") from error


def _hyphenated(route: Route) -> str:
    return route.function.replace("_", "-")


def _invalid(why: str) -> PenstockError:
    return PenstockError(ErrorCode.INVALID_REQUEST, f"the event of a direct call: {why}")
