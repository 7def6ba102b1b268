"""The real handlers in memory, under a fuzzer's requests: no 5xx, and no answer that Lambda cannot return."""

import json
import time
from collections import Counter
from dataclasses import dataclass, field

from penstock_core.ids import TransactionalId
from penstock_core.limits import MIB
from penstock_core.transaction import TransactionState
from penstock_handlers.router import dispatch
from penstock_service.adapters.memory.service import memory_instance
from penstock_service.instance.instance import Instance
from penstock_service.topics.create_topic import create_topic
from tests.fuzz.broken_requests import FuzzedRequest, RequestFuzzer

LAMBDA_ANSWER_BYTES_MAX = 6 * MIB
SLOW_S = 1.0
_REQUESTS_OF_ONE_SERVICE = 5_000  # then a new one: a store that only grows would hide slow answers behind slow stores


@dataclass(slots=True)
class RequestReport:
    """What a run has found. Broken promises are (what, request) pairs."""

    statuses: Counter[int] = field(default_factory=Counter)
    slowest_s: float = 0.0
    largest_bytes: int = 0
    slow: list[FuzzedRequest] = field(default_factory=list)
    broken: list[tuple[str, FuzzedRequest]] = field(default_factory=list)

    @property
    def inputs(self) -> int:
        """Requests that were answered."""
        return self.statuses.total()


def fuzz_requests(count: int, seed: int) -> RequestReport:
    """Send so many requests to the handlers, to a new service now and then."""
    fuzzer, report = RequestFuzzer(seed), RequestReport()
    instance = _service()
    for number in range(count):
        if number and number % _REQUESTS_OF_ONE_SERVICE == 0:
            instance = _service()
        send_fuzzed(instance, fuzzer.request(), report)
    return report


def send_fuzzed(instance: Instance, request: FuzzedRequest, report: RequestReport) -> None:
    """Send one request, and note its answer."""
    started = time.process_time()
    try:
        status, headers, body = dispatch(
            request.method, request.path, request.query, request.headers, request.body, instance
        )
    except Exception as error:
        report.broken.append((f"raised {error!r:.300}", request))
        return
    took_s = time.process_time() - started
    size = answer_bytes(status, headers, body)
    report.statuses[int(status)] += 1
    report.slowest_s = max(report.slowest_s, took_s)
    report.largest_bytes = max(report.largest_bytes, size)
    if took_s > SLOW_S:
        report.slow.append(request)
    if status >= 500:
        report.broken.append((f"{status} {body[:300]!r}", request))
    if size > LAMBDA_ANSWER_BYTES_MAX:
        report.broken.append((f"an answer of {size} bytes", request))


def answer_bytes(status: int, headers: dict[str, str], body: bytes) -> int:
    """The answer as Lambda counts it: text inside JSON, and binary as base64 inside JSON."""
    if headers.get("Content-Type", "").startswith("application/json"):
        text = body.decode()
        return len(json.dumps({"statusCode": status, "headers": headers, "body": text}, ensure_ascii=False).encode())
    return len(body) * 4 // 3 + len(json.dumps(headers)) + 100


def _service() -> Instance:
    instance = memory_instance()
    create_topic(instance, "orders", 3, {})
    create_topic(instance, "bills", 1, {})
    create_topic(instance, "strict", 2, {"validate_records": True})
    counting = TransactionState(producer_id=7, epoch=0, number=0, expires_at_s=2**33)  # the fuzzer knows no clock
    instance.stores.transactions.begin_epoch(TransactionalId("tx"), None, counting)
    return instance
