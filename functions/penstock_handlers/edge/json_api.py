"""The resolver of the JSON functions. It validates with pydantic and answers errors in our form."""

import json
import threading
from collections.abc import Callable, Sequence
from http import HTTPStatus
from typing import Annotated, Any, TypeVar

from aws_lambda_powertools.event_handler import APIGatewayHttpResolver, Response
from aws_lambda_powertools.event_handler.exceptions import NotFoundError
from aws_lambda_powertools.event_handler.middlewares import NextMiddleware
from aws_lambda_powertools.event_handler.openapi.exceptions import RequestValidationError
from aws_lambda_powertools.event_handler.openapi.params import Query
from aws_lambda_powertools.utilities.typing import LambdaContext
from pydantic import BeforeValidator

from penstock_core.acls.rule_set import Access
from penstock_core.errors import ErrorCode, PenstockError, shown
from penstock_core.limits import EXPLAINED_MISTAKES_MAX, JSON_RESPONSE_BYTES_MAX, NAME_LENGTH_MAX
from penstock_core.text import escaped_json
from penstock_handlers.edge.access.request_access import access_of
from penstock_handlers.edge.entry import Serve
from penstock_handlers.edge.fields import whole_number
from penstock_handlers.edge.http import (
    Event,
    Result,
    bytes_in_envelope,
    error_headers,
    parse_body,
    routed_path,
    text_of,
    unknown_route,
)
from penstock_handlers.edge.models.answer_models import Error
from penstock_service.instance.instance import Instance

# Powertools keeps the current event in an attribute of a class. A Lambda function serves one request at a time. A
# process that gets many at once (router.py) must resolve them one after the other.
_resolving = threading.Lock()


def _digits(value: object) -> object:
    if isinstance(value, str) and value != str(whole_number(value)):
        raise ValueError("a whole number must be written in the digits 0 to 9")
    return value


# A number in a path or a query. pydantic alone takes " 1", "+1", "1.0" and "1_0" for one, too.
Digits = Annotated[int, BeforeValidator(_digits)]

# The place behind which a page of a list starts: a name or the text of a partition. A key of DynamoDB can be as long.
After = Annotated[str, Query(max_length=NAME_LENGTH_MAX)]
PAGED = ("limit", "after")
_TARGET = "target"  # of a subscription: wherever its secret is by mistake, no answer shows it

_Handler = TypeVar("_Handler", bound=Callable[..., Any])
Item = TypeVar("Item")


class JsonApp(APIGatewayHttpResolver):
    """The JSON routes of a function. `tag` names them in the OpenAPI document.

    It answers errors in our form: 400 INVALID_REQUEST names each wrong field and its value.
    """

    def __init__(self, tag: str) -> None:
        super().__init__(enable_validation=True, json_body_deserializer=parse_body, serializer=to_json)
        self._tag = tag
        self.exception_handler(PenstockError)(_error_response)
        self.exception_handler(RequestValidationError)(_on_invalid)
        self.not_found(self._on_unknown_route)

    def operation(
        self,
        place: str,
        operation_id: str,
        summary: str,
        *,
        parameters: Sequence[str] = (),
        status_code: int = 200,
        tag: str | None = None,
    ) -> Callable[[_Handler], _Handler]:
        """Decorate the handler of one route. `place` is its method and path, such as "GET /v1/groups".

        The route refuses query parameters other than `parameters`: a typo must not act as the default.
        """
        method, path = place.split(" ")
        return self.route(
            path,
            method,
            operation_id=operation_id,
            summary=summary,
            tags=[tag or self._tag],
            status_code=status_code,
            middlewares=[_only_parameters(parameters)],
        )

    def _on_unknown_route(self, _error: NotFoundError) -> Response[dict[str, Any]]:
        http = self.current_event.request_context.http
        return _error_response(unknown_route(http.method, http.path))


def serve_with(app: APIGatewayHttpResolver) -> Serve:
    """The `serve` of a function whose routes are on `app`; they find the broker by `instance_of`."""

    def serve(event: Event, instance: Instance) -> Result:
        # All bodies are JSON, whatever a client calls them: curl's default is a form.
        headers = {**event.get("headers", {}), "content-type": "application/json"}
        as_json = {
            **event,
            "headers": headers,
            "rawPath": routed_path(event),
            "body": text_of(event),
            "isBase64Encoded": False,
        }
        with _resolving:
            access = access_of(event, instance)
            app.append_context(instance=instance, access=access)  # type: ignore[no-untyped-call] # Powertools leaves it untyped
            result: Result = app.resolve(as_json, LambdaContext())
        result["body"] = result.get("body") or ""  # MiniStack takes no null body, which API Gateway does
        result["headers"] = {
            name: values[0] if isinstance(values, list) else values
            for name, values in result.get("headers", {}).items()
        }
        return result

    return serve


def instance_of(app: APIGatewayHttpResolver) -> Instance:
    """Return the instance that this request runs on."""
    instance: Instance = app.context["instance"]
    return instance


def principal_name(app: APIGatewayHttpResolver) -> str:
    """Return the name of the principal whose request this is."""
    return caller_of(app).principal.name


def caller_of(app: APIGatewayHttpResolver) -> Access:
    """Return the rights of the caller of this request."""
    access: Access = app.context["access"]
    return access


def error_json(error: PenstockError) -> Error:
    """The error object of an answer."""
    return error.to_json()  # type: ignore[return-value] # facts vary by code


def fitting_page(
    items: Sequence[Item], next_after: str | None, place_of: Callable[[int], str]
) -> tuple[list[Item], str | None]:
    """The items from the first on that fit into one page, at least one of them, and the `after` of the next page.

    That is `next_after` if all of them fit, and otherwise `place_of` the index of the last one that does.
    """
    size = 0
    for index, item in enumerate(items):
        size += bytes_in_envelope(to_json(item))
        if index and size > JSON_RESPONSE_BYTES_MAX:
            return [*items[:index]], place_of(index - 1)
    return [*items], next_after


def _only_parameters(known: Sequence[str]) -> Callable[[APIGatewayHttpResolver, NextMiddleware], Response[Any]]:
    def check(app: APIGatewayHttpResolver, next_middleware: NextMiddleware) -> Response[Any]:
        for name in app.current_event.query_string_parameters:
            if name not in known:
                raise PenstockError(
                    ErrorCode.INVALID_REQUEST,
                    f"unknown parameter {shown(name)}: "
                    + (f"known are {', '.join(known)}" if known else "this route takes none"),
                )
        return next_middleware(app)

    return check


def _on_invalid(error: RequestValidationError) -> Response[dict[str, Any]]:
    return _error_response(PenstockError(ErrorCode.INVALID_REQUEST, _explain(error)))


def _error_response(error: PenstockError) -> Response[dict[str, Any]]:
    return Response(
        status_code=HTTPStatus(error.code.http_status),
        content_type="application/json",
        body={"error": error.to_json()},
        headers=error_headers(error),
    )


def _explain(error: RequestValidationError) -> str:
    details = error.errors()
    told = [
        f"{'.'.join(map(str, detail['loc'])):.100}: {detail['msg'].replace(' after validation', '')}"
        + (f", got {shown(detail['input'])}" if "input" in detail and _TARGET not in detail["loc"] else "")
        for detail in details[:EXPLAINED_MISTAKES_MAX]
    ]
    more = len(details) - len(told)
    return "; ".join(told) + (f"; and {more} more" if more else "")


def to_json(content: Any) -> str:
    """The content as JSON, with text as it is, but for what a terminal obeys. In ASCII it would be far longer."""
    return escaped_json(json.dumps(content, separators=(",", ":"), ensure_ascii=False))
