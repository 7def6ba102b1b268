"""One partition of the local stack behind its rule `throughput`: many producers of the SDK, in a few processes.

The rule admits so many write units a second of a partition key. The emulator is slower than DynamoDB, so it admits
a small part of what AWS does.
"""

import multiprocessing
import secrets
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial

from bench.hot_partition.simulated import cuts
from bench.report.result import Row
from localstack.rules_client import set_rules
from penstock import Admin, Producer
from penstock.http.abilities import event_signer
from penstock.http.http_message import Response
from penstock.http.transport import Transport, open_transport
from penstock_core.errors import ErrorCode

UNITS_PER_S = 10
WARM_UP_S = 5.0  # until the instances of the functions run
PROCESSES = 2
_PATH = "/v1/produce"


@dataclass(frozen=True, slots=True, kw_only=True)
class StackCase:
    """So many producers, each with `records_per_s`."""

    producers: int
    linger_ms: int
    records_per_s: float
    seconds: float
    is_paced: bool
    topic: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """The latencies, answers and records of one process."""

    latencies_ms: list[float]
    answers: Counter[str]
    sent: int


class NotingRefusals:
    """A transport that counts produce requests from a time on, and those whose entry was refused."""

    def __init__(self, inner: Transport, from_s: float) -> None:
        self._inner = inner
        self._from_s = from_s
        self._lock = threading.Lock()
        self.answers: Counter[str] = Counter()

    def note(self, answer: str) -> None:
        with self._lock:
            self.answers[answer] += time.monotonic() >= self._from_s

    def call(
        self, method: str, path: str, query: Mapping[str, str], headers: Mapping[str, str], body: bytes
    ) -> Response:
        answer = self._inner.call(method, path, query, headers, body)
        if path == _PATH:
            self.note("refused" if ErrorCode.THROTTLED.name.encode() in answer.body else "appended")
        return answer

    def event_headers(self, host: str, body: bytes) -> Mapping[str, str]:
        return event_signer(self._inner).event_headers(host, body)

    def close(self) -> None:
        self._inner.close()


def measure(case: StackCase, port: int) -> Row:
    """The row of one case, on a topic of its own."""
    with _hot_topic(port) as topic, multiprocessing.get_context("spawn").Pool(PROCESSES) as pool:
        shares = [case.producers // PROCESSES + (each < case.producers % PROCESSES) for each in range(PROCESSES)]
        seen = pool.starmap(_produce, [(replace(case, topic=topic, producers=each),) for each in shares if each])
    latencies_ms = [each for one in seen for each in one.latencies_ms]
    answers = sum((one.answers for one in seen), Counter[str]())
    sent = sum(one.sent for one in seen)
    return {
        "producers": case.producers,
        "linger_ms": case.linger_ms,
        "rests": "yes" if case.is_paced else "no",
        "appends_per_s": round(answers["appended"] / case.seconds, 1),
        "refused_percent": round(100 * answers["refused"] / max(1, answers.total()), 1),
        "records_per_append": round(len(latencies_ms) / max(1, answers["appended"]), 1),
        "taken_percent": round(100 * len(latencies_ms) / max(1, sent)),
        "p50_p99_ms": cuts(latencies_ms),
    }


@contextmanager
def _hot_topic(port: int) -> Iterator[str]:
    topic = f"hot-{secrets.token_hex(4)}"
    with Admin() as admin, Producer() as producer:
        admin.create_topic(topic, partitions=1)
        producer.send(topic, b"first").result()
        set_rules(port, f"throughput,throughput.write_units_per_key={UNITS_PER_S}")
        try:
            yield topic
        finally:
            set_rules(port, "none")
            admin.delete_topic(topic)


def _produce(case: StackCase) -> Seen:
    from_s = time.monotonic() + WARM_UP_S
    transport = NotingRefusals(open_transport(), from_s)
    latencies_ms: list[float] = []
    sent: list[int] = []
    times_s = from_s, from_s + case.seconds
    threads = [
        threading.Thread(target=_one, args=(case, transport, times_s, latencies_ms, sent))
        for _ in range(case.producers)
    ]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    transport.close()
    return Seen(latencies_ms=latencies_ms, answers=transport.answers, sent=sum(sent))


def _one(
    case: StackCase, transport: Transport, times_s: tuple[float, float], latencies_ms: list[float], sent: list[int]
) -> None:
    """One producer, until the time is over. Records that are not delivered then do not count as taken."""
    from_s, ends_s = times_s

    def note(begun_s: float, _: object) -> None:
        now_s = time.monotonic()
        if begun_s >= from_s and now_s <= ends_s:
            latencies_ms.append((now_s - begun_s) * 1_000)

    count = 0
    with Producer(transport=transport, linger_ms=case.linger_ms, max_in_flight=1) as producer:
        if not case.is_paced:
            accumulator = producer._core.accumulator  # there is no setting for what was before
            accumulator._settings = replace(accumulator._settings, pacing=None)
        while time.monotonic() < ends_s:
            begun_s = time.monotonic()
            future = producer.send(case.topic, b"x" * 100)
            future.add_done_callback(partial(note, begun_s))
            count += begun_s >= from_s
            time.sleep(1 / case.records_per_s)
        sent.append(count)
