"""A transport that counts requests, and the storage calls and CPU time that each answer reports."""

import threading
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from penstock.http.abilities import event_signer
from penstock.http.http_message import Response
from penstock.http.transport import Transport


@dataclass(slots=True, kw_only=True)
class Counts:
    """The traffic of a transport. The functions report `cpu_ms` and `storage_calls` in each answer."""

    requests: int = 0
    cpu_ms: float = 0.0
    storage_calls: Counter[str] = field(default_factory=Counter)

    def add(self, other: "Counts") -> None:
        self.requests += other.requests
        self.cpu_ms += other.cpu_ms
        self.storage_calls += other.storage_calls


class CountingTransport:
    """Passes requests on to `inner`, and counts them by path."""

    def __init__(self, inner: Transport) -> None:
        self._inner = inner
        self._lock = threading.Lock()
        self._by_path: dict[str, Counts] = {}

    def call(
        self, method: str, path: str, query: Mapping[str, str], headers: Mapping[str, str], body: bytes
    ) -> Response:
        answer = self._inner.call(method, path, query, headers, body)
        known = {name.lower(): value for name, value in answer.headers.items()}
        counts = Counts(
            requests=1,
            cpu_ms=_cpu_ms(known.get("server-timing", "")),
            storage_calls=storage_calls_of(answer),
        )
        with self._lock:
            self._by_path.setdefault(path, Counts()).add(counts)
        return answer

    def event_headers(self, host: str, body: bytes) -> Mapping[str, str]:
        return event_signer(self._inner).event_headers(host, body)

    def close(self) -> None:
        self._inner.close()

    def counts(self, path: str) -> Counts:
        """The counts of `path` since the last `reset`."""
        with self._lock:
            return self._by_path.get(path, Counts())

    def reset(self) -> None:
        with self._lock:
            self._by_path.clear()


def storage_calls_of(answer: Response) -> Counter[str]:
    """The storage calls that the answer reports, by `service.Operation`."""
    header = {name.lower(): value for name, value in answer.headers.items()}.get("penstock-storage-calls", "")
    pairs = (part.split("=") for part in header.split(",") if part)
    return Counter({name: int(count) for name, count in pairs})


def _cpu_ms(server_timing: str) -> float:
    for part in server_timing.split(","):
        name, _, duration = part.strip().partition(";dur=")
        if name == "cpu":
            return float(duration)
    return 0.0
