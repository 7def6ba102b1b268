"""What all pages have in common."""

import pytest

from penstock.console.rendering import bytes_text, number_text, polyline, render, setting_text, span_text, time_text
from penstock.console.server import PAGES
from penstock.errors import AccessDeniedError, ConnectionFailedError
from penstock.http.http_message import Response
from penstock.testing import MemoryPenstock
from penstock_core.errors import ErrorCode
from tests.sdk.console.conftest import RunningConsole
from tests.sdk.console.visitor import Visitor

PLAIN = [route.path for page in PAGES for route in page.routes if route.method == "GET" and "{" not in route.path]


class FailingTransport:
    """A service that fails."""

    def __init__(self, error: Exception) -> None:
        self.error = error

    def call(self, *_: object) -> Response:
        raise self.error

    def close(self) -> None:
        pass


@pytest.mark.parametrize("path", PLAIN)
def test_page_of_an_empty_service_is_shown(visitor: Visitor, path: str) -> None:
    seen = visitor.get(path)
    assert seen.status == 200
    assert seen.html.count("<h1>") == 1
    assert 'lang="en"' in seen.html


def test_paths_of_pages_are_used_once() -> None:
    paths = [(route.method, route.path) for page in PAGES for route in page.routes]
    assert len(paths) == len(set(paths))


@pytest.mark.parametrize(
    ("error", "status", "said"),
    [
        (ConnectionFailedError("no answer from x: start it", maybe_applied=False), 503, "start it"),
        (AccessDeniedError(ErrorCode.ACCESS_DENIED, "the policy does not allow it"), 403, "other credentials"),
        (ValueError("a secret"), 500, "the console has a defect: ValueError"),
    ],
)
def test_failure_of_the_service_is_a_page_with_the_way_out(error: Exception, status: int, said: str) -> None:
    console = RunningConsole(FailingTransport(error))
    try:
        visitor = Visitor(console.origin)
        visitor.open(console.links[-1])
        seen = visitor.get("/topics")
        assert seen.status == status
        assert said in seen.text
        assert "Traceback" not in seen.text
        assert "a secret" not in seen.text
    finally:
        console.stop()


def test_unknown_page_says_so_within_the_frame(visitor: Visitor) -> None:
    seen = visitor.get("/no/such/<b>page")
    assert seen.status == 404
    assert "<b>" not in seen.html
    assert "Overview" in seen.text


def test_text_of_an_action_is_said_once(service: MemoryPenstock, visitor: Visitor) -> None:
    visitor.get("/new/topic")
    seen = visitor.post("/new/topic", name="orders", partitions=2)
    assert "Created orders." in seen.text
    assert "said=" not in seen.html
    assert "Created orders." not in visitor.get(seen.path).text
    assert service.admin().describe_topic("orders").topic.partitions == 2


def test_values_in_templates_are_text() -> None:
    facts = {"reason": "<script>alert(1)</script>\x1b[2J\u202e\x85"}
    html = render("refused.html", facts)
    assert "<script>alert" not in html
    assert "&lt;script&gt;" in html
    assert "\\x1b[2J\\u202e\\x85" in html


def test_numbers_and_times_are_written_for_people() -> None:
    assert [number_text(each) for each in (None, 0, 1234567, 0.25)] == ["–", "0", "1,234,567", "0.2"]
    assert [bytes_text(each) for each in (None, 0, 1023, 1024, 5 * 2**40)] == [
        "–",
        "0 B",
        "1023 B",
        "1.0 KiB",
        "5.0 TiB",
    ]
    assert [span_text(each) for each in (None, 0, 999, 61_000, 90_000_000)] == [
        "–",
        "0 ms",
        "999 ms",
        "1 min 1 s",
        "1 d 1 h",
    ]
    assert time_text(0) == "1970-01-01 00:00:00.000"
    assert time_text(-1) == "-1 ms"
    assert time_text(2**63 - 1) == f"{2**63 - 1} ms"


def test_line_of_a_series_begins_left_and_ends_right() -> None:
    assert polyline([(1_000, 0), (2_000, 4), (5_000, 1)]) == "0.0,50.0 75.0,0.0 300.0,37.5"
    assert polyline([(1_000, 0), (2_000, 0)]) == "0.0,50.0 300.0,50.0"
    assert polyline([(1_000, 3.5)]) == "0.0,0.0"


def test_setting_without_a_bound_has_no_minus_one() -> None:
    shown = [setting_text(name, -1) for name in ("retention_ms", "retention_bytes", "age_ms_max")]
    assert shown == ["forever", "unlimited", "unlimited"]
