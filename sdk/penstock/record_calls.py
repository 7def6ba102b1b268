"""Produce and fetch: the request, and what its answer says of each partition.

One try each, which never raises an error: whether to try again is decided per partition, by accumulator.py and
fetch_buffer.py, to which the results go.
"""

import json
import logging
from collections.abc import Generator, Sequence

from penstock.accumulator import Entry
from penstock.errors import UnavailableError, error_from_json
from penstock.fetch_buffer import FetchAnswer, FetchRequest
from penstock.http_message import (
    BATCHES_TYPE,
    JSON_TYPE,
    Request,
    Response,
    json_document,
    misunderstood,
    raise_for_status,
)
from penstock_core import frame
from penstock_core.errors import ErrorCode, PenstockError

ProduceResults = list[int | PenstockError]


def produce(entries: Sequence[Entry], acks: str) -> Generator[Request, Response, ProduceResults]:
    """For each entry the first record's offset, or the error. Builds the batches that are not built yet."""
    try:
        request = produce_request(entries, acks)
        return produce_results(request, (yield request), len(entries))
    except PenstockError as error:
        return [error] * len(entries)
    except Exception as error:  # the driver's edge: a defect must not leave records waiting for ever
        logging.getLogger("penstock.producer").exception("produce failed in an unexpected way")
        defect = UnavailableError(ErrorCode.INTERNAL, f"produce failed: {error!r}", maybe_applied=True)
        return [defect] * len(entries)


def fetch(wanted: FetchRequest) -> Generator[Request, Response, FetchAnswer | PenstockError]:
    """The answer, or the failure of the whole request."""
    log = logging.getLogger("penstock.consumer")
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


def produce_request(entries: Sequence[Entry], acks: str) -> Request:
    """Store these. Not repeatable."""
    chunks = [[batch.build() for batch in entry.batches] for entry in entries]
    header = {
        "acks": acks,
        "batches": [
            {"topic": entry.queue.topic.name, "partition": entry.queue.partition, "length": sum(map(len, chunk))}
            for entry, chunk in zip(entries, chunks, strict=True)
        ],
    }
    body = frame.encode(header, [data for chunk in chunks for data in chunk])
    return Request(method="POST", path="/v1/produce", headers={"Content-Type": BATCHES_TYPE}, body=body)


def produce_results(request: Request, response: Response, count: int) -> ProduceResults:
    """For each of `count` partitions, in request order: the first record's offset, or the error."""
    results = json_document(request, response).get("results")
    if not isinstance(results, list) or len(results) != count:
        raise misunderstood(request)
    return [error_from_json(each["error"]) if "error" in each else int(each["base_offset"]) for each in results]


def fetch_request(wanted: FetchRequest) -> Request:
    """Read these."""
    return Request(
        method="POST",
        path="/v1/fetch",
        headers={"Content-Type": JSON_TYPE, "Accept": BATCHES_TYPE},
        body=json.dumps(wanted.body, separators=(",", ":")).encode(),
        is_read=True,
        is_repeatable=True,
    )


def fetch_answer(request: Request, response: Response, count: int) -> FetchAnswer:
    """The answer for `count` partitions."""
    raise_for_status(request, response)
    try:
        header, batches = frame.decode(response.body)
    except PenstockError as error:
        raise misunderstood(request) from error
    partitions = header.get("partitions")
    if not isinstance(partitions, list) or len(partitions) != count:
        raise misunderstood(request)
    return FetchAnswer(partitions, batches)
