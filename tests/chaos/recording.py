"""A transport that writes every produce request into the history, the SDK's hidden retries included.

Each partition of each request is one operation. It is a `fail` only if its answer says that nothing was applied.
"""

import json
import threading
import time
from collections import Counter
from collections.abc import Mapping

from penstock.errors import ConnectionFailedError, error_from_json, error_from_response
from penstock.http.http_message import Response
from penstock.http.transport import Transport
from penstock_core.records import frame
from penstock_core.records.codec import decode
from tests.chaos.clients.values import name_of
from tests.history.format import Acks, Function, Send
from tests.history.recorder import OpenOperation, Recorder

_PRODUCE = "/v1/produce"


class RecordingTransport:
    """Passes requests to `inner`. `process` names the producer in the history. Its sends to a partition do not overlap.

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
        if path != _PRODUCE:
            return self._carry(method, path, query, headers, body)
        began = time.monotonic()
        sends, acks = _sends(body)
        operations = [self._recorder.invoke(self._process, Function.SEND, ops, acks=acks) for ops in sends]
        try:
            answer = self._carry(method, path, query, headers, body)
        except ConnectionFailedError as error:
            self._unanswered(operations, maybe_applied=error.maybe_applied)
            self._took(began, is_ok=False)
            raise
        self._answered(operations, sends, answer, began)
        return answer

    def close(self) -> None:
        self._inner.close()

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

    def _answered(
        self, operations: list[OpenOperation], sends: list[list[Send]], answer: Response, began: float
    ) -> None:
        if answer.status != 200:
            error = error_from_response(answer.status, answer.headers, answer.body, is_read=False)
            self._unanswered(operations, maybe_applied=error.maybe_applied)
            self._took(began, is_ok=False)
            return
        results = json.loads(answer.body)["results"]
        for operation, ops, result in zip(operations, sends, results, strict=True):
            if "error" in result:
                self._unanswered([operation], maybe_applied=error_from_json(result["error"]).maybe_applied)
            else:
                base_offset = result["base_offset"]
                acknowledged = [Send(op.where, op.value, base_offset + index) for index, op in enumerate(ops)]
                self._recorder.ok(operation, acknowledged)
        self._took(began, is_ok=all("error" not in result for result in results))

    def _unanswered(self, operations: list[OpenOperation], *, maybe_applied: bool) -> None:
        for operation in operations:
            if maybe_applied:
                self._recorder.maybe(operation, attempts=1)
            else:
                self._recorder.fail(operation)

    def _took(self, began: float, *, is_ok: bool) -> None:
        with self._lock:
            self.appends.append((began, time.monotonic(), is_ok))


def _sends(body: bytes) -> tuple[list[list[Send]], Acks]:
    """Return the records of a produce request, by partition in the order of the request."""
    header, data = frame.decode(body)
    sends: list[list[Send]] = []
    start = 0
    for entry in header["batches"]:  # type: ignore[attr-defined]  # the SDK's own header
        end = start + entry["length"]
        where = entry["topic"], entry["partition"]
        sends.append([Send(where, name_of(record.value)) for record in decode(data[start:end])])
        start = end
    return sends, Acks(str(header["acks"]))
