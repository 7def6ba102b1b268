"""The fetch call: one try, which never raises an error. fetch_buffer.py takes the answer and decides about a retry."""

import json
import logging
from collections.abc import Generator

from penstock.consumer.fetch_buffer import FetchAnswer, FetchRequest
from penstock.errors import UnavailableError
from penstock.http.http_message import (
    BATCHES_TYPE,
    JSON_TYPE,
    HttpRequest,
    Response,
    framed_answer,
    misunderstood,
)
from penstock_core.errors import ErrorCode, PenstockError


def fetch(wanted: FetchRequest) -> Generator[HttpRequest, Response, FetchAnswer | PenstockError]:
    """The answer, or the failure of the whole request. It calls nothing if another reader has the answer."""
    log = logging.getLogger("penstock.consumer")
    if wanted.kept is not None:
        return wanted.kept
    try:
        request = fetch_request(wanted)
        return fetch_answer(request, (yield request), len(wanted.cursors))
    except PenstockError as error:
        if error.code.is_retriable:
            log.warning("fetch will be tried again: %s", error)
        return error
    except Exception as error:  # the driver's edge: a defect must not leave the consumer waiting for ever
        log.exception("fetch failed in an unexpected way")
        return UnavailableError(ErrorCode.INTERNAL, f"fetch failed: {error!r}")


def fetch_request(wanted: FetchRequest) -> HttpRequest:
    """The request that reads these partitions."""
    return HttpRequest(
        method="POST",
        path="/v1/fetch",
        headers={"Content-Type": JSON_TYPE, "Accept": BATCHES_TYPE},
        body=json.dumps(wanted.body, separators=(",", ":")).encode(),
        is_read=True,
        is_repeatable=True,
    )


def fetch_answer(request: HttpRequest, response: Response, count: int) -> FetchAnswer:
    """The answer for `count` partitions."""
    header, batches = framed_answer(request, response)
    if len(header["partitions"]) != count:
        raise misunderstood(request)
    return FetchAnswer(header["partitions"], batches, int(header.get("retry_after_ms", 0)))
