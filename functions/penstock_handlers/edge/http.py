"""API Gateway's events and results (HTTP API, payload format 2.0) to and from bytes.

Binary bodies travel as base64. pybase64 encodes them, because the standard library would take most of a handler's CPU.
"""

import json
import re
from collections.abc import Mapping
from math import ceil
from typing import Any
from urllib.parse import quote

import pybase64

from penstock_core.errors import Category, ErrorCode, PenstockError, shown
from penstock_core.limits import REQUEST_BYTES_MAX, RESPONSE_BYTES_MAX
from penstock_core.text import parse_json, why_no_json

Event = Mapping[str, Any]
Result = dict[str, Any]

TOLD = "told"  # a field of a result that is no part of the answer: facts for the request's log line
BYTES_MAX = "bytesMax"  # a field of an event that no gateway made: the bytes that its body may have
BATCHES = "application/vnd.penstock.batches"
_JSON = "application/json"
_PARAMETER = re.compile(r"\{(\w+)\}")
_UNSAFE = re.compile(r"[^-._~()'!*:@,;=+&$<> \[\]{}|^\w]")  # what no parameter of Powertools' routes may have
_RETRY_AFTER_S = 1
_ESCAPED_BYTES_MAX = 6  # of one character in JSON


def routed_path(event: Event) -> str:
    """The path of the route by which API Gateway entered the function, with the values of its parameters.

    IAM has allowed that route. `rawPath` is decoded, so a slash or a newline in a parameter can make it look like
    another route. Here such a character stays percent-encoded, in a parameter that then is no name.
    """
    parameters = event.get("pathParameters") or {}

    def value_of(name: re.Match[str]) -> str:
        return _UNSAFE.sub(lambda found: quote(found[0], safe="", errors="replace"), parameters.get(name[1], ""))

    return _PARAMETER.sub(value_of, event["routeKey"].partition(" ")[2])


def unknown_route(method: str, path: str) -> PenstockError:
    """The error for a request that no route takes."""
    return PenstockError(ErrorCode.UNKNOWN_ROUTE, f"{method} {path:.100} is no route of this API")


def body_of(event: Event) -> bytes:
    """The request's body, at most `REQUEST_BYTES_MAX`. Raises REQUEST_TOO_LARGE, and INVALID_REQUEST for bad base64.

    The event of a program that runs the service has bytes, and its own bound.
    """
    text = event.get("body") or ""
    bytes_max = event.get(BYTES_MAX, REQUEST_BYTES_MAX)
    if isinstance(text, bytes):
        body = text
    elif not event.get("isBase64Encoded"):
        body = text.encode()
    else:
        try:
            body = pybase64.b64decode(text, validate=True)
        except ValueError as error:
            raise PenstockError(ErrorCode.INVALID_REQUEST, f"the body is not the announced base64: {error}") from error
    if len(body) > bytes_max:
        raise PenstockError(
            ErrorCode.REQUEST_TOO_LARGE,
            f"a request body of {len(body)} bytes: at most {bytes_max} are allowed, send less at once",
            limit=bytes_max,
        )
    return body


def text_of(event: Event) -> str:
    """The request's body as text. Raises as `body_of`, and INVALID_REQUEST if it is not UTF-8."""
    try:
        return body_of(event).decode()
    except UnicodeDecodeError as error:
        raise PenstockError(ErrorCode.INVALID_REQUEST, f"the body is not UTF-8: {why_no_json(error)}") from error


def json_object_of(event: Event) -> dict[str, Any]:
    """The request's body as a JSON object. Raises as `text_of` and `parse_body`, and INVALID_REQUEST for other JSON."""
    fields = parse_body(text_of(event))
    if not isinstance(fields, dict):
        raise PenstockError(ErrorCode.INVALID_REQUEST, f"the body must be a JSON object, not {shown(fields)}")
    return fields


def parse_body(text: str) -> Any:
    """The value that a body of JSON holds. Raises INVALID_REQUEST for what `penstock_core.text` refuses.

    Raises it also for half a surrogate pair: that is no text, and no storage takes it.
    """
    try:
        content = parse_json(text)
        if "\\u" in text:
            json.dumps(content, ensure_ascii=False).encode()
    except ValueError as error:
        raise PenstockError(ErrorCode.INVALID_REQUEST, f"the body is not JSON: {why_no_json(error)}") from error
    return content


def json_result(content: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Result:
    """Build an answer whose body is JSON."""
    return {
        "statusCode": status,
        "headers": {"Content-Type": _JSON, **(headers or {})},
        "body": json.dumps(content, separators=(",", ":")),  # ASCII, because a refused name may be no text
        "isBase64Encoded": False,
    }


def batches_result(frame: bytes) -> Result:
    """Build an answer whose body is a frame of batches."""
    return {
        "statusCode": 200,
        "headers": {"Content-Type": BATCHES},
        "body": pybase64.b64encode_as_string(frame),
        "isBase64Encoded": True,
    }


def error_headers(error: PenstockError) -> dict[str, str]:
    """`Retry-After` if trying again can help."""
    is_passing = (
        error.code.category in (Category.THROTTLED, Category.UNAVAILABLE) and error.code is not ErrorCode.INTERNAL
    )
    if not is_passing:
        return {}
    return {"Retry-After": str(max(_RETRY_AFTER_S, ceil(error.facts.get("retry_after_ms", 0) / 1_000)))}


def error_result(error: PenstockError) -> Result:
    """Build the answer of an error, with its HTTP status and its headers."""
    return json_result({"error": error.to_json()}, error.code.http_status, error_headers(error))


def within_bounds(event: Event, result: Result) -> Result:
    """The result, if Lambda can return it. Else raises RESPONSE_TOO_LARGE: Lambda's own error would say nothing.

    Each answer is bounded where it is made: this is the last resort.
    """
    body = result.get("body") or ""
    if len(body) * _ESCAPED_BYTES_MAX <= RESPONSE_BYTES_MAX:
        return result
    # base64 has nothing to escape: to look for it would take more CPU than all else in a large fetch
    size = len(body) + 2 if result.get("isBase64Encoded") else bytes_in_envelope(body)
    if size > RESPONSE_BYTES_MAX:
        raise PenstockError(
            ErrorCode.RESPONSE_TOO_LARGE,
            f"the answer takes {size} bytes: at most {RESPONSE_BYTES_MAX} can be returned, so ask for less at once",
            maybe_applied=not event["routeKey"].startswith("GET "),
            limit=RESPONSE_BYTES_MAX,
        )
    return result


def bytes_in_envelope(text: str) -> int:
    """Bytes of a body as Lambda counts them. It is text inside JSON there, so quotes and newlines are escaped again."""
    return len(json.dumps(text, ensure_ascii=False).encode(errors="surrogatepass"))
