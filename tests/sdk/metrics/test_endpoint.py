"""The endpoint for Prometheus, over a socket."""

import threading
from collections.abc import Iterator
from http import HTTPStatus

import pytest
import urllib3

from penstock.endpoint.listening import is_foreign
from penstock.errors import UnavailableError
from penstock.metrics.collector import Collector
from penstock.metrics.endpoint import PATH, MetricsServer, answer
from penstock.metrics.exposition import CONTENT_TYPE, Family, Sample, exposition
from penstock.testing import MemoryPenstock
from penstock_core.errors import ErrorCode


@pytest.fixture
def collector() -> Iterator[Collector]:
    with MemoryPenstock() as service:
        service.create_topic("orders")
        yield Collector(service.transport)


def test_scrape_gets_the_text_with_its_content_type(collector: Collector) -> None:
    with MetricsServer(collector, "127.0.0.1", 0) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            host, port = server.server_address[:2]
            response = urllib3.request("GET", f"http://{host!s}:{port}{PATH}")
            foreign = urllib3.request("GET", f"http://{host!s}:{port}{PATH}", headers={"Host": "evil.example"})
        finally:
            server.shutdown()
            thread.join()
    assert (response.status, response.headers["Content-Type"]) == (200, CONTENT_TYPE)
    assert 'penstock_topic_partitions{topic="orders"} 1\n' in response.data.decode()
    assert (foreign.status, foreign.data) == (403, b"this is another host\n")


@pytest.mark.parametrize(
    ("address", "host", "foreign"),
    [
        ("127.0.0.1", "localhost:9464", False),
        ("127.0.0.1", "127.0.0.1:9464", False),
        ("::1", "[::1]:9464", False),
        ("127.0.0.1", "evil.example:9464", True),
        ("127.0.0.1", "", True),
        ("0.0.0.0", "metrics.internal:9464", False),
    ],
)
def test_server_of_this_machine_alone_answers_its_own_names_only(address: str, host: str, foreign: bool) -> None:
    assert is_foreign(address, host) is foreign


@pytest.mark.parametrize("path", ["/", "/metrics/other", "/metricsx"])
def test_other_path_is_not_found(collector: Collector, path: str) -> None:
    status, _, text = answer(collector, path)
    assert (status, text) == (HTTPStatus.NOT_FOUND, "metrics are at /metrics\n")


def test_path_with_a_query_is_answered(collector: Collector) -> None:
    assert answer(collector, "/metrics?name=x")[0] is HTTPStatus.OK


def test_service_that_cannot_be_read_is_unavailable(collector: Collector, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> str:
        raise UnavailableError(ErrorCode.STORAGE_UNAVAILABLE, "it is down")

    monkeypatch.setattr(collector, "text", fail)
    status, _, text = answer(collector, PATH)
    assert (status, text) == (HTTPStatus.SERVICE_UNAVAILABLE, "STORAGE_UNAVAILABLE: it is down\n")


def test_text_has_help_type_and_a_line_for_each_value() -> None:
    family = Family(
        name="penstock_lag_records",
        kind="gauge",
        help="Records that wait.",
        samples=[Sample(value=7, labels={"kind": "group", "consumer": "billing"}), Sample(value=0.25)],
    )
    assert exposition([family]) == (
        "# HELP penstock_lag_records Records that wait.\n"
        "# TYPE penstock_lag_records gauge\n"
        'penstock_lag_records{kind="group",consumer="billing"} 7\n'
        "penstock_lag_records 0.25\n"
    )


def test_label_that_could_end_its_text_is_escaped() -> None:
    family = Family(name="a", kind="gauge", help="b", samples=[Sample(value=1, labels={"c": 'x"\n\\y'})])
    assert exposition([family]).splitlines()[-1] == 'a{c="x\\"\\n\\\\y"} 1'
