"""What the JSON functions share: a resolver that validates with pydantic and answers errors in our form."""

import json
import threading
from collections.abc import Callable
from http import HTTPStatus
from typing import Any

from aws_lambda_powertools.event_handler import APIGatewayHttpResolver, Response
from aws_lambda_powertools.event_handler.exceptions import NotFoundError
from aws_lambda_powertools.event_handler.middlewares import NextMiddleware
from aws_lambda_powertools.event_handler.openapi.exceptions import RequestValidationError
from aws_lambda_powertools.utilities.typing import LambdaContext

from handlers.entry import Serve
from handlers.http import Event, Result, error_headers, parse_json, text_of
from handlers.models import Error
from penstock_broker.broker import Broker
from penstock_core.errors import ErrorCode, PenstockError

_EXPLAINED_MAX = 20  # mistakes told in one answer, which must stay within what Lambda returns

# Powertools keeps the current event in an attribute of a class. A function serves one request at a time; a process
# that serves many (router.py) must do so one after the other.
_resolving = threading.Lock()


def json_app() -> APIGatewayHttpResolver:
    """A resolver whose errors are ours: 400 INVALID_REQUEST names each field that is wrong and its value."""
    app = APIGatewayHttpResolver(enable_validation=True, json_body_deserializer=parse_json, serializer=_to_json)

    def on_invalid(error: RequestValidationError) -> Response[dict[str, Any]]:
        return _error_response(PenstockError(ErrorCode.INVALID_REQUEST, _explain(error)))

    def on_unknown_route(_error: NotFoundError) -> Response[dict[str, Any]]:
        http = app.current_event.request_context.http
        return _error_response(
            PenstockError(ErrorCode.UNKNOWN_ROUTE, f"{http.method} {http.path} is no route of this API")
        )

    app.exception_handler(PenstockError)(_error_response)
    app.exception_handler(RequestValidationError)(on_invalid)
    app.not_found(on_unknown_route)
    return app


def only_parameters(*known: str) -> Callable[[APIGatewayHttpResolver, NextMiddleware], Response[Any]]:
    """Middleware that refuses query parameters other than `known`: a typo must not be taken for a default."""

    def check(app: APIGatewayHttpResolver, next_middleware: NextMiddleware) -> Response[Any]:
        for name in app.current_event.query_string_parameters:
            if name not in known:
                raise PenstockError(
                    ErrorCode.INVALID_REQUEST,
                    f"unknown parameter {name!r:.100}: "
                    + (f"known are {', '.join(known)}" if known else "none is known"),
                )
        return next_middleware(app)

    return check


def serve_with(app: APIGatewayHttpResolver) -> Serve:
    """The `serve` of a function whose routes are on `app`; they find the broker by `broker_of`."""

    def serve(event: Event, broker: Broker) -> Result:
        # All bodies are JSON, whatever a client calls them: curl's default is a form.
        headers = {**event.get("headers", {}), "content-type": "application/json"}
        as_json = {**event, "headers": headers, "body": text_of(event), "isBase64Encoded": False}
        with _resolving:
            app.append_context(broker=broker)  # type: ignore[no-untyped-call] # Powertools leaves it untyped
            result: Result = app.resolve(as_json, LambdaContext())
        result["body"] = result.get("body") or ""  # MiniStack takes no null body, which API Gateway does
        result["headers"] = {
            name: values[0] if isinstance(values, list) else values
            for name, values in result.get("headers", {}).items()
        }
        return result

    return serve


def broker_of(app: APIGatewayHttpResolver) -> Broker:
    broker: Broker = app.context["broker"]
    return broker


def error_json(error: PenstockError) -> Error:
    """The error object of an answer."""
    return error.to_json()  # type: ignore[return-value] # facts vary by code


def _error_response(error: PenstockError) -> Response[dict[str, Any]]:
    return Response(
        status_code=HTTPStatus(error.code.http_status),
        content_type="application/json",
        body={"error": error.to_json()},
        headers=error_headers(error),
    )


def _explain(error: RequestValidationError) -> str:
    details = error.errors()
    shown = [
        f"{'.'.join(map(str, detail['loc'])):.200}: {detail['msg']}"
        + (f", got {detail['input']!r:.100}" if "input" in detail else "")
        for detail in details[:_EXPLAINED_MAX]
    ]
    more = len(details) - len(shown)
    return "; ".join(shown) + (f"; and {more} more" if more else "")


def _to_json(content: Any) -> str:
    """Text as it is: escaped to ASCII it would be three times as long."""
    return json.dumps(content, separators=(",", ":"), ensure_ascii=False)
