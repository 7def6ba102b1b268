"""Requests of the HTTP API and their answers, as values."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from penstock.errors import InvalidError, UnavailableError, as_maybe_applied, error_from_response
from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.records import frame

JSON_TYPE = "application/json"
BATCHES_TYPE = "application/vnd.penstock.batches"

Document = dict[str, Any]  # JSON as it came: the caller parses it at once

Job = Literal["read", "write"]  # the right that a consumer or a producer needs in any case

_READS = ("GET", "HEAD")
_DESCRIBE = "describe"


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpRequest:
    """One call. A read changes nothing. `is_repeatable` says that doing it twice is the same as doing it once."""

    method: str
    path: str
    query: Mapping[str, str] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    is_read: bool = False
    is_repeatable: bool = False


class Response(NamedTuple):
    """An answer of any status. Header names are as the server wrote them."""

    status: int
    headers: Mapping[str, str]
    body: bytes


def json_request(
    method: str,
    path: str,
    query: Mapping[str, str] | None = None,
    *,
    body: Mapping[str, Any] | None = None,
    is_repeatable: bool = False,
    accept: str = JSON_TYPE,
) -> HttpRequest:
    """A request with a JSON body or none. Reads are repeatable: a GET, and what is answered in a frame."""
    headers = {"Accept": accept}
    data = b""
    if body is not None:
        headers["Content-Type"] = JSON_TYPE
        try:
            data = json.dumps(body, separators=(",", ":"), allow_nan=False).encode()
        except (TypeError, ValueError) as error:
            raise InvalidError(
                ErrorCode.INVALID_REQUEST, f"{body!r:.200} cannot be sent as JSON ({error}): use strings and numbers"
            ) from None
    is_read = method in _READS or accept == BATCHES_TYPE
    return HttpRequest(
        method=method,
        path=path,
        query=query or {},
        headers=headers,
        body=data,
        is_read=is_read,
        is_repeatable=is_repeatable or is_read,
    )


def json_document(request: HttpRequest, response: Response) -> Document:
    """The document of the answer, or the header of its frame. Raises the error that the answer is.

    Raises UnavailableError if the service cannot have given it.
    """
    if request.headers.get("Accept") == BATCHES_TYPE:
        return framed_answer(request, response)[0]
    raise_for_status(request, response)
    try:
        document = json.loads(response.body or b"{}")
    except ValueError as error:
        raise misunderstood(request) from error
    if not isinstance(document, dict):
        raise misunderstood(request)
    return document


def framed_answer(request: HttpRequest, response: Response) -> tuple[Document, memoryview]:
    """The header of an answer in a frame, with its list `partitions`, and the batches behind it.

    Raises the error that the answer is, and UnavailableError if the service cannot have given it.
    """
    raise_for_status(request, response)
    try:
        header, batches = frame.decode(response.body)
    except PenstockError as error:
        raise misunderstood(request) from error
    if not isinstance(header.get("partitions"), list):
        raise misunderstood(request)
    return header, batches


def raise_for_status(request: HttpRequest, response: Response) -> None:
    """Raise the error that an answer outside 2xx is."""
    if not 200 <= response.status < 300:
        raise error_from_response(response.status, response.headers, response.body, is_read=request.is_read)


def final_document(request: HttpRequest, document: Document, *, maybe_applied: bool) -> Document:
    """The last try's document. If an earlier try may have been applied, the errors of its entries say so too (G3)."""
    results = document.get("results")
    if maybe_applied and not request.is_read and isinstance(results, list):
        for each in results:
            if isinstance(each, dict) and isinstance(each.get("error"), dict):
                each["error"]["maybe_applied"] = True
    return document


def final_error(request: HttpRequest, error: PenstockError, *, maybe_applied: bool) -> PenstockError:
    """The last try's error. If an earlier try may have been applied, it says so too (G3)."""
    return as_maybe_applied(error) if maybe_applied and not request.is_read else error


def asking_for(error: PenstockError, job: Job | None) -> PenstockError:
    """The error, in which a refusal to describe asks for the right that the job needs in any case, and that implies it.

    Without this, a producer without rights would ask for `describe` first, and then for `write`.
    """
    is_grantable = error.facts.get("operation") == _DESCRIBE and error.message.endswith(" grants it")
    if job is None or not is_grantable:
        return error
    message = error.message.replace(f" {_DESCRIBE} ", f" {job} ")
    return type(error)(error.code, message, maybe_applied=error.maybe_applied, **{**error.facts, "operation": job})


def misunderstood(request: HttpRequest) -> PenstockError:
    """The error for an answer that the service cannot have given."""
    return UnavailableError(
        ErrorCode.INTERNAL,
        f"{request.method} {request.path} was answered by something that is not Penstock: check the URL",
        maybe_applied=not request.is_read,
    )
