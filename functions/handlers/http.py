"""API Gateway's events and results (HTTP API, payload format 2.0) to and from bytes.

Binary bodies come and go as base64, which by the standard library would be most of a handler's CPU; hence pybase64.
"""

import json
from collections.abc import Mapping
from typing import Any

import pybase64

from penstock_core.errors import Category, ErrorCode, PenstockError
from penstock_core.limits import REQUEST_BYTES_MAX

Event = Mapping[str, Any]
Result = dict[str, Any]

BATCHES = "application/vnd.penstock.batches"
_JSON = "application/json"
_RETRY_AFTER_S = 1


def body_of(event: Event) -> bytes:
    """The request's body. Raises REQUEST_TOO_LARGE and INVALID_REQUEST."""
    text = event.get("body") or ""
    if not event.get("isBase64Encoded"):
        body = text.encode()
    else:
        try:
            body = pybase64.b64decode(text, validate=True)
        except ValueError as error:
            raise PenstockError(ErrorCode.INVALID_REQUEST, f"the body is not base64 as announced: {error}") from error
    if len(body) > REQUEST_BYTES_MAX:
        raise PenstockError(
            ErrorCode.REQUEST_TOO_LARGE,
            f"a request body of {len(body)} bytes: at most {REQUEST_BYTES_MAX} are allowed, send less at once",
            limit=REQUEST_BYTES_MAX,
        )
    return body


def text_of(event: Event) -> str:
    """The request's body as text. Raises as `body_of`, and INVALID_REQUEST if it is not UTF-8."""
    try:
        return body_of(event).decode()
    except UnicodeDecodeError as error:
        raise PenstockError(ErrorCode.INVALID_REQUEST, f"the body is not UTF-8: {error}") from error


def parse_json(text: str) -> Any:
    """Raises INVALID_REQUEST, as for half a surrogate pair: it is no text, and could not be stored."""
    try:
        content = json.loads(text)
        if "\\u" in text:
            json.dumps(content, ensure_ascii=False).encode()
    except (ValueError, RecursionError) as error:  # not JSON, an endless number, nested without end
        raise PenstockError(ErrorCode.INVALID_REQUEST, f"the body is not JSON: {error}") from error
    return content


def json_result(content: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Result:
    return {
        "statusCode": status,
        "headers": {"Content-Type": _JSON, **(headers or {})},
        "body": json.dumps(content, separators=(",", ":")),  # ASCII: a name that was refused may be no text
        "isBase64Encoded": False,
    }


def batches_result(frame: bytes) -> Result:
    return {
        "statusCode": 200,
        "headers": {"Content-Type": BATCHES},
        "body": pybase64.b64encode_as_string(frame),
        "isBase64Encoded": True,
    }


def error_headers(error: PenstockError) -> dict[str, str]:
    """`Retry-After` where trying again can help."""
    is_passing = (
        error.code.category in (Category.THROTTLED, Category.UNAVAILABLE) and error.code is not ErrorCode.INTERNAL
    )
    return {"Retry-After": str(_RETRY_AFTER_S)} if is_passing else {}


def error_result(error: PenstockError) -> Result:
    return json_result({"error": error.to_json()}, error.code.http_status, error_headers(error))
