"""Records the doctor's own calls: what each took, when the service's clock said so, and what AWS charges for it.

Every answer of a deployed function tells its storage calls and its time (`Penstock-Storage-Calls`, `Server-Timing`).
So the cost is computed from calls that were made, not from a list that somebody keeps up to date. It is an upper bound:
each call is priced at the dearest that it may be.
"""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from threading import Lock
from typing import Any

from penstock import prices
from penstock.doctor.finding import Cost
from penstock.http.abilities import event_signer
from penstock.http.http_message import Response
from penstock.http.transport import Transport
from penstock.system import monotonic_ms, wall_clock_ms

FUNCTION_GB_MAX = 1.0  # no function that answers requests is larger (infra/penstock_cdk/settings.py)
LOGGED_BYTES_MAX = 4_000  # of one request, in all logs
_COLD_START_MS = 3_000  # of each function at most, once
_FUNCTIONS = 5  # that the doctor calls
_STORAGE_CALLS = "penstock-storage-calls"
_LOST_CALLS = "dynamodb.UpdateItem=2,s3.PutObject=4"  # of an append that has tried once more
_TOTAL_MS = re.compile(r"total;dur=([\d.]+)")
# Units that one call may take. The head of a partition that is written fast is below 4 KB, other items below 2 KB.
_WRITE_UNITS_MAX = {"UpdateItem": 4, "PutItem": 2, "DeleteItem": 2, "BatchWriteItem": 50, "TransactWriteItems": 40}
_READ_UNITS_MAX = {"GetItem": 1, "Query": 8, "Scan": 8, "BatchGetItem": 100, "TransactGetItems": 50}
_S3_FREE = {"DeleteObject", "DeleteObjects"}
_UNKNOWN_CALL_USD = prices.S3_PUTS.of(1)  # dearer than any other call


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchange:
    """One request and its answer. Times are of this machine."""

    method: str
    path: str
    began_ms: int
    ended_ms: int
    began_at_ms: int
    response: Response

    @property
    def duration_ms(self) -> int:
        """How long the answer took."""
        return self.ended_ms - self.began_ms

    @property
    def function_ms(self) -> float | None:
        """How long the function took, as the answer tells; None if it tells nothing."""
        took = _TOTAL_MS.search(self._header("server-timing"))
        return float(took[1]) if took else None

    @property
    def storage_calls(self) -> dict[str, int]:
        """The storage calls that the answer tells, by `service.Operation`."""
        calls = (each.partition("=") for each in self._header(_STORAGE_CALLS).split(",") if each)
        return {name: int(count) for name, _, count in calls}

    def _header(self, wanted: str) -> str:
        return next((value for name, value in self.response.headers.items() if name.lower() == wanted), "")


class RecordingTransport:
    """A Transport that keeps every exchange, and the sum of what all requests cost at most. Threads may share one."""

    def __init__(self, inner: Transport) -> None:
        self._inner = inner
        self._lock = Lock()
        self._usd, self._requests = 0.0, 0
        self.exchanges: list[Exchange] = []

    def call(
        self, method: str, path: str, query: Mapping[str, str], headers: Mapping[str, str], body: bytes
    ) -> Response:
        """Send one request, and keep what came back."""
        return self.exchange(method, path, query, headers, body).response

    def exchange(
        self,
        method: str,
        path: str,
        query: Mapping[str, str],
        headers: Mapping[str, str],
        body: bytes,
        *,
        by: Transport | None = None,
    ) -> Exchange:
        """As `call`, with the times of the answer. `by` is the transport of another caller."""
        began_at_ms, began_ms = wall_clock_ms(), monotonic_ms()
        lost = Response(0, {_STORAGE_CALLS: _LOST_CALLS}, b"")  # a request without an answer may have been served
        response = lost
        try:
            response = (by or self._inner).call(method, path, query, headers, body)
        finally:
            exchange = Exchange(
                method=method,
                path=path,
                began_ms=began_ms,
                ended_ms=monotonic_ms(),
                began_at_ms=began_at_ms,
                response=response,
            )
            with self._lock:
                self._requests += 1
                self._usd += _usd_max(exchange, max(len(body), len(response.body), 1))
        with self._lock:
            self.exchanges.append(exchange)
        return exchange

    def event_headers(self, host: str, body: bytes) -> Mapping[str, str]:
        """Signed headers for wake-ups. Raises NotConfiguredError if the inner transport cannot sign them."""
        return event_signer(self._inner).event_headers(host, body)

    def close(self) -> None:
        """Close the inner transport."""
        self._inner.close()

    def cost(self, aws_calls: int) -> Cost:
        """The most that AWS charges for the exchanges, and for as many calls to AWS itself."""
        usd = self._usd
        usd += prices.LAMBDA_GB_SECONDS.of(_FUNCTIONS * _COLD_START_MS / 1_000 * FUNCTION_GB_MAX)
        usd += prices.CLOUDWATCH_REQUESTS.of(aws_calls)  # the others are free, or cheaper
        return Cost(usd_max=usd, requests=self._requests, aws_calls=aws_calls)


class AwsCalls:
    """The calls that clients of botocore send, by name (`lambda.GetAlias`), in order."""

    def __init__(self) -> None:
        self.names: list[str] = []

    @property
    def count(self) -> int:
        """The number of calls."""
        return len(self.names)

    def watch(self, client: Any) -> None:
        """Note every call that `client` sends from now on."""
        client.meta.events.register("before-send", self._note)

    def _note(self, event_name: str, **_: Any) -> None:
        self.names.append(event_name.partition(".")[2])


def _usd_max(exchange: Exchange, moved_bytes: int) -> float:
    function_ms = exchange.duration_ms if exchange.function_ms is None else exchange.function_ms
    usd = prices.API_REQUESTS.of(math.ceil(moved_bytes / prices.API_REQUEST_BYTES))
    usd += prices.LAMBDA_REQUESTS.of(1) + prices.LAMBDA_GB_SECONDS.of(function_ms / 1_000 * FUNCTION_GB_MAX)
    usd += prices.LOGGED_BYTES.of(LOGGED_BYTES_MAX) + prices.INTERNET_BYTES_OUT.of(moved_bytes)
    for name, count in exchange.storage_calls.items():
        usd += count * _call_usd_max(name.partition(".")[2], moved_bytes)
    return usd


def _call_usd_max(operation: str, moved_bytes: int) -> float:
    if operation in _WRITE_UNITS_MAX:
        return prices.WRITE_UNITS.of(_WRITE_UNITS_MAX[operation])
    if operation in _READ_UNITS_MAX:
        return prices.READ_UNITS.of(_READ_UNITS_MAX[operation])
    if operation in _S3_FREE:
        return 0.0
    return _UNKNOWN_CALL_USD + prices.EXPRESS_UPLOADED_BYTES.of(moved_bytes)
