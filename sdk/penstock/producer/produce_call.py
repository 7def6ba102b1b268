"""The produce call: the request, and the outcome of each partition in its answer.

It makes one try and never raises an error. accumulator.py takes the results and decides per partition about a retry.
"""

import logging
from collections.abc import Generator, Mapping, Sequence
from typing import Any

from penstock.errors import UnavailableError, error_from_json
from penstock.http.http_message import (
    BATCHES_TYPE,
    HttpRequest,
    Response,
    json_document,
    misunderstood,
)
from penstock.producer.batching.accumulator import UNKNOWN_OFFSET, Entry
from penstock.producer.batching.producer_batch import entry_fields
from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.records import frame

ProduceResults = list[int | PenstockError]


def produce(entries: Sequence[Entry], acks: str) -> Generator[HttpRequest, Response, ProduceResults]:
    """The offset of each entry's first record, or the entry's error. Builds the batches that are not built yet."""
    try:
        request = produce_request(entries, acks)
        return produce_results(request, (yield request), len(entries))
    except PenstockError as error:
        return [error] * len(entries)
    except Exception as error:  # the driver's edge: a defect must not leave records waiting for ever
        logging.getLogger("penstock.producer").exception("produce failed in an unexpected way")
        defect = UnavailableError(ErrorCode.INTERNAL, f"produce failed: {error!r}", maybe_applied=True)
        return [defect] * len(entries)


def produce_request(entries: Sequence[Entry], acks: str) -> HttpRequest:
    """The request that stores these entries. Not repeatable."""
    chunks = [[batch.build() for batch in entry.batches] for entry in entries]
    header = {
        "acks": acks,
        "batches": [entry_fields(entry.queue.topic.name, entry.queue.partition, entry.batches) for entry in entries],
    }
    body = frame.encode(header, [data for chunk in chunks for data in chunk])
    return HttpRequest(method="POST", path="/v1/produce", headers={"Content-Type": BATCHES_TYPE}, body=body)


def produce_results(request: HttpRequest, response: Response, count: int) -> ProduceResults:
    """Of each of `count` entries, in request order: the offset of the first record, or the error.

    Delayed records have no offset yet: it is -1.
    """
    results = json_document(request, response).get("results")
    if not isinstance(results, list) or len(results) != count:
        raise misunderstood(request)
    return [_result(each) for each in results]


def _result(each: Mapping[str, Any]) -> int | PenstockError:
    if "error" in each:
        return error_from_json(each["error"])
    return UNKNOWN_OFFSET if "scheduled_id" in each else int(each["base_offset"])
