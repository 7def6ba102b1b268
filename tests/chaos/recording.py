"""A transport that writes requests into the history, the SDK's hidden retries included.

Each try of a request is an operation, or several (`exchanges`). It is a `fail` only if its answer says that nothing was
applied.
"""

import threading
import time
from collections import Counter
from collections.abc import Mapping, Sequence

from penstock.errors import ConnectionFailedError, error_from_response
from penstock.http.abilities import event_signer
from penstock.http.http_message import Response
from penstock.http.transport import Transport
from penstock_core.errors import PenstockError
from tests.chaos.exchanges.cancels import CancelExchange
from tests.chaos.exchanges.exchange import Exchange
from tests.chaos.exchanges.sends import ProduceExchange, TransactionExchange
from tests.chaos.exchanges.shares import ShareExchange
from tests.history.recorder import OpenOperation, Recorder

_PRODUCE, _TRANSACTIONS, _SHARE_GROUPS = "/v1/produce", "/v1/transactions", "/v1/share-groups/"


class RecordingTransport:
    """Passes requests to `inner`. `process` names the client in the history. Its sends to a partition do not overlap.

    `requests` counts answers by path and status, with 0 for no answer. `appends` lists the begin and the end of every
    produce request in monotonic seconds, and whether all of it was acknowledged.
    """

    def __init__(self, inner: Transport, recorder: Recorder, process: str) -> None:
        self._inner = inner
        self._recorder = recorder
        self._process = process
        self._lock = threading.Lock()
        self.requests: Counter[str] = Counter()
        self.appends: list[tuple[float, float, bool]] = []

    def call(
        self, method: str, path: str, query: Mapping[str, str], headers: Mapping[str, str], body: bytes
    ) -> Response:
        exchange = _exchange_of(method, path, body)
        if exchange is None:
            return self._carry(method, path, query, headers, body)
        began = time.monotonic()
        operations = [
            self._recorder.invoke(self._process, each.function, each.ops, acks=each.acks, group=each.group)
            for each in exchange.planned
        ]
        is_ok = False
        try:
            answer = self._carry(method, path, query, headers, body)
            is_ok = self._answered(exchange, operations, answer)
        except ConnectionFailedError as error:
            self._unanswered(operations, error)
            raise
        finally:
            if path == _PRODUCE:
                with self._lock:
                    self.appends.append((began, time.monotonic(), is_ok))
        return answer

    def close(self) -> None:
        self._inner.close()

    def event_headers(self, host: str, body: bytes) -> Mapping[str, str]:
        """Sign for wake-ups as `inner` does."""
        return event_signer(self._inner).event_headers(host, body)

    def _carry(
        self, method: str, path: str, query: Mapping[str, str], headers: Mapping[str, str], body: bytes
    ) -> Response:
        status = 0
        try:
            answer = self._inner.call(method, path, query, headers, body)
            status = answer.status
            return answer
        finally:
            with self._lock:
                self.requests[f"{path} {status}"] += 1

    def _answered(self, exchange: Exchange, operations: Sequence[OpenOperation], answer: Response) -> bool:
        """Record the results. Return whether all operations succeeded."""
        if answer.status != 200:
            self._unanswered(operations, error_from_response(answer.status, answer.headers, answer.body, is_read=False))
            return False
        outcomes = exchange.outcomes(answer)
        for operation, outcome in zip(operations, outcomes, strict=True):
            if isinstance(outcome, PenstockError):
                self._unanswered([operation], outcome)
            else:
                self._recorder.ok(operation, outcome)
        return not any(isinstance(outcome, PenstockError) for outcome in outcomes)

    def _unanswered(self, operations: Sequence[OpenOperation], error: PenstockError) -> None:
        for operation in operations:
            if error.maybe_applied:
                self._recorder.maybe(operation, attempts=1)
            else:
                self._recorder.fail(operation)


def _exchange_of(method: str, path: str, body: bytes) -> Exchange | None:
    """The operations of a request, None for one that the history does not know."""
    if path == _PRODUCE:
        return ProduceExchange(body)
    if path == _TRANSACTIONS:
        return TransactionExchange(body)
    if path.startswith(_SHARE_GROUPS) and path.endswith(("/acquire", "/acknowledge")):
        return ShareExchange(path, body)
    if method == "DELETE" and "/scheduled/" in path:
        return CancelExchange(path)
    return None
