"""`penstock bench`, against the service in memory."""

import signal
import threading
from collections.abc import Callable, Mapping

import pytest

from penstock.cli.bench import TOPIC_PREFIX, BenchLoad, BenchRun, Latencies, MeteredTransport
from penstock.http.http_message import Response
from penstock.http.transport import Transport
from penstock.testing import MemoryPenstock
from penstock_core.limits import KIB, MIB
from tests.sdk.cli.command import run, run_json


def test_bench_measures_both_ways_and_leaves_no_topic(service: MemoryPenstock) -> None:
    found = run_json(service.transport, "bench", "--seconds", "0.5", "--producers", "2", "--record-bytes", "100")
    stored, polled = found["stored"], found["polled"]
    assert stored["records"] == polled["records"] > 0
    assert 0 <= polled["p50_ms"] <= polled["p99_ms"]
    assert stored["megabytes_per_s"] == pytest.approx(stored["records_per_s"] * 100 / 1e6)
    assert found["requests"]["produce"] > 0
    assert found["requests"]["fetch"] > 0
    assert (found["errors"], found["stopped_by"], found["usd"] > 0) == ({}, None, True)
    assert service.admin().list_topics() == []


def test_rate_is_that_of_all_producers(service: MemoryPenstock) -> None:
    found = run_json(service.transport, "bench", "--seconds", "1", "--rate", "40", "--producers", "2")
    assert 2 <= found["stored"]["records"] <= 42


def test_table_fits_a_terminal(service: MemoryPenstock) -> None:
    result = run(service.transport, "bench", "--seconds", "0.2", "--rate", "20")
    assert result.exit_code == 0, result.output
    assert "send to polled" in result.stdout
    assert "about $" in result.stdout
    assert max(map(len, result.stdout.splitlines())) <= 80
    assert "Ctrl-C ends it" in result.stderr


def test_bound_of_bytes_ends_the_run(service: MemoryPenstock) -> None:
    found = run_json(service.transport, "bench", "--seconds", "3600", "--bytes-max", "10KB", "--record-bytes", "1000")
    assert (found["stopped_by"], found["stored"]["records"]) == ("bytes", 10)


def test_bound_of_dollars_ends_the_run(service: MemoryPenstock) -> None:
    found = run_json(service.transport, "bench", "--seconds", "3600", "--dollars-max", "0.001", "--record-bytes", "16")
    assert found["stopped_by"] == "dollars"
    assert found["usd"] >= 0.001
    assert found["polled"]["records"] == found["stored"]["records"]


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (("--record-bytes", "15"), "15: give 16 to 786,432 bytes"),
        (("--record-bytes", "1MiB"), "1048576: give 16"),
        (("--rate", "1e6", "--seconds", "60"), "61,440 MB, above --bytes-max 1,074 MB"),
        (("--seconds", "0"), "0 s: give 0.1 s at least"),
        (("--seconds", "x"), "'x' is not a duration: write a number with ms, s, m, h or d"),
        (("--dollars-max", "0"), "0.0: give a number from 0.001 up"),
        (("--producers", "65"), "65: give a whole number from 1 to 64"),
        (("--producers", "x"), "'x': give a whole number from 1 to 64"),
    ],
)
def test_wrong_load_is_refused_before_anything_is_made(
    service: MemoryPenstock, arguments: tuple[str, ...], error: str
) -> None:
    result = run(service.transport, "bench", *arguments)
    assert result.exit_code == 2
    assert error in " ".join(result.stderr.replace("│", " ").split())
    assert service.admin().list_topics() == []


class Refusing:
    """Refuses to produce, or to delete."""

    def __init__(self, inner: Transport, method: str, path: str) -> None:
        self._inner, self._method, self._path = inner, method, path

    def call(
        self, method: str, path: str, query: Mapping[str, str], headers: Mapping[str, str], body: bytes
    ) -> Response:
        if method == self._method and path.startswith(self._path):
            return Response(403, {}, b'{"message": "Forbidden"}')
        return self._inner.call(method, path, query, headers, body)

    def close(self) -> None:
        pass


def test_errors_are_counted_and_told_and_the_topic_still_goes(service: MemoryPenstock) -> None:
    transport = Refusing(service.transport, "POST", "/v1/produce")
    result = run(transport, "bench", "--seconds", "0.2", "--rate", "20")
    assert result.exit_code == 1
    assert "times" in result.stdout
    assert "refused" in result.stdout or "Forbidden" in result.stdout or "not allow" in result.stdout
    assert service.admin().list_topics() == []


def test_topic_that_cannot_be_deleted_is_named(service: MemoryPenstock) -> None:
    transport = Refusing(service.transport, "DELETE", "/v1/topics/")
    result = run(transport, "bench", "--seconds", "0.2", "--rate", "20")
    [topic] = service.admin().list_topics()
    assert topic.name.startswith(TOPIC_PREFIX)
    assert topic.config["retention_ms"] == 3_600_000
    assert f"penstock topics delete {topic.name} --yes" in result.stderr


class Calling:
    """Calls something before and after each request of a method and path."""

    def __init__(
        self, inner: Transport, place: tuple[str, str], before: Callable[[], object], after: Callable[[], object]
    ) -> None:
        self._inner, self._place, self._before, self._after = inner, place, before, after

    def call(
        self, method: str, path: str, query: Mapping[str, str], headers: Mapping[str, str], body: bytes
    ) -> Response:
        if (method, path) != self._place:
            return self._inner.call(method, path, query, headers, body)
        self._before()
        answer = self._inner.call(method, path, query, headers, body)
        self._after()
        return answer

    def close(self) -> None:
        pass


def nothing() -> None:
    pass


def test_signal_while_the_topic_is_made_leaves_no_topic(service: MemoryPenstock) -> None:
    made: list[int] = []

    def interrupt() -> None:
        made.append(len(service.admin().list_topics()))
        signal.raise_signal(signal.SIGINT)

    transport = Calling(service.transport, ("POST", "/v1/topics"), nothing, interrupt)
    found = run_json(transport, "bench", "--seconds", "3600")
    assert (made, found["stopped_by"]) == ([1], "signal")
    assert service.admin().list_topics() == []


def test_little_waits_in_a_producer_when_the_run_is_stopped(service: MemoryPenstock) -> None:
    service.create_topic("t")
    stopped = threading.Event()
    transport = Calling(service.transport, ("POST", "/v1/produce"), stopped.wait, nothing)
    load = BenchLoad(
        seconds=3_600,
        record_bytes=64 * KIB,
        rate=None,
        producers=1,
        partitions=1,
        bytes_max=10**9,
        dollars_max=1,
        profile="express3",
        transport="http",
    )
    bench = BenchRun(transport, "t", load)

    def stop() -> None:
        bench.stop()
        stopped.set()

    timer = threading.Timer(0.5, stop)
    timer.start()
    stored = bench.run()["stored"]["records"]
    timer.join()
    assert 0 < stored * 64 * KIB < 2 * MIB


def test_signal_ends_the_run_with_its_figures(service: MemoryPenstock) -> None:
    service.create_topic("t")
    load = BenchLoad(
        seconds=3_600,
        record_bytes=100,
        rate=100,
        producers=1,
        partitions=1,
        bytes_max=10**9,
        dollars_max=1,
        profile="express3",
        transport="http",
    )
    bench = BenchRun(service.transport, "t", load)
    timer = threading.Timer(0.2, bench.stop)
    timer.start()
    assert bench.run()["stopped_by"] == "signal"
    timer.join()


def test_percentile_is_the_latency_that_so_many_do_not_exceed() -> None:
    found = Latencies()
    assert found.percentile(50) is None
    for ms in range(1, 101):
        found.add(ms)
    found.add(-5)
    assert (found.percentile(50), found.percentile(99), found.percentile(100)) == (50, 99, 100)


def test_price_grows_with_each_kind_of_request(service: MemoryPenstock) -> None:
    metered = MeteredTransport(service.transport)
    seen = [metered.usd("express3", "http")]
    for kind in ("produce", "fetch", "other"):
        metered.requests[kind] += 1_000
        seen.append(metered.usd("express3", "http"))
    assert seen[0] == 0
    assert seen == sorted(set(seen))
