"""Browsing: by offset, by time, by key, by filter; three fetches at most; hostile records are text."""

from collections.abc import Iterator, Mapping
from urllib.parse import quote

import pytest

from penstock.console.browsing import Wanted, browse
from penstock.http.http_message import Response
from penstock.http.transport import Transport
from penstock.model import TopicPartition
from penstock.testing import MemoryPenstock
from penstock_core.limits import CONSOLE_FETCHES_MAX, CONSOLE_RECORDS_MAX
from tests.sdk.console.conftest import RunningConsole
from tests.sdk.console.hostile import HOSTILE, forbidden_in
from tests.sdk.console.visitor import Visitor
from tests.support.poison import bomb, put_batch, undecodable_batch
from tests.support.restoring import jump
from tests.support.service import send

PLACE = TopicPartition("orders", 0)


class CountingTransport:
    """Counts the requests by method and path."""

    def __init__(self, inner: Transport) -> None:
        self.inner = inner
        self.calls: list[str] = []

    def call(
        self, method: str, path: str, query: Mapping[str, str], headers: Mapping[str, str], body: bytes
    ) -> Response:
        self.calls.append(f"{method} {path}")
        return self.inner.call(method, path, query, headers, body)

    def close(self) -> None:
        pass

    def taken(self) -> list[str]:
        """The requests since the last call."""
        taken, self.calls = self.calls, []
        return taken


@pytest.fixture
def counted(service: MemoryPenstock) -> CountingTransport:
    return CountingTransport(service.transport)


@pytest.fixture
def visitor(counted: CountingTransport) -> Iterator[Visitor]:
    running = RunningConsole(counted)
    yield running.visitor()
    running.stop()


def fill(service: MemoryPenstock, count: int, *, batch: int = 10) -> None:
    service.create_topic("orders")
    with service.producer(linger_ms=60_000) as producer:
        for number in range(count):
            headers = [("type", b"order" if number % 2 else b"refund")]
            producer.send(
                "orders", f"value {number}", key=f"key-{number % 7}", headers=headers, timestamp_ms=1_000 + number
            )
            if number % batch == batch - 1:
                producer.flush()


PAGES = {
    "the newest of all partitions": "",
    "the newest": "?partition=0",
    "the oldest": "?partition=0&at=oldest",
    "in the middle": "?partition=0&at=offset&offset=105",
    "at a time": "?partition=0&at=time&time=1970-01-01+00:00:01.3",
    "beyond the end": "?partition=0&at=offset&offset=99999",
    "of a key": "?key=key-3",
    "of a key that is not there": "?key=none",
    "by a filter": "?partition=0&at=oldest&filter=" + quote('{"type": ["order"]}'),
    "by a filter that nothing matches": "?partition=0&at=oldest&filter=" + quote('{"type": ["x"]}'),
}


@pytest.mark.parametrize("query", PAGES.values(), ids=PAGES)
def test_page_of_records_costs_three_fetches_at_most_and_three_other_requests(
    service: MemoryPenstock, counted: CountingTransport, visitor: Visitor, query: str
) -> None:
    fill(service, 400)
    counted.taken()
    assert visitor.get(f"/topics/orders/records{query}").status == 200
    requests = counted.taken()
    assert 1 <= requests.count("POST /v1/fetch") <= CONSOLE_FETCHES_MAX
    assert len(requests) - requests.count("POST /v1/fetch") <= 3, requests


def test_pages_by_offset_cover_the_log_once(service: MemoryPenstock) -> None:
    fill(service, 230, batch=7)
    offsets: list[int] = []
    position = 0
    while True:
        page = browse(service.transport, Wanted(place=PLACE, offset=position))
        offsets += [each.offset for each in page.records]
        assert len(page.records) <= CONSOLE_RECORDS_MAX
        position = page.next_offset
        if page.is_at_end:
            break
    assert offsets == [*range(230)]


@pytest.mark.parametrize("key", [b"key-3", b"none"])
def test_search_by_key_finds_every_record_of_it(service: MemoryPenstock, key: bytes) -> None:
    fill(service, 700, batch=50)
    found: list[int] = []
    position = 0
    while True:
        page = browse(service.transport, Wanted(place=PLACE, offset=position, key=key))
        found += [each.offset for each in page.records]
        assert page.next_offset > position
        position = page.next_offset
        if page.is_at_end:
            break
    assert found == [number for number in range(700) if f"key-{number % 7}".encode() == key]


def test_offset_below_the_log_start_shows_the_oldest(service: MemoryPenstock) -> None:
    fill(service, 30)
    service.admin().truncate("orders", {0: 12})
    page = browse(service.transport, Wanted(place=PLACE, offset=3))
    assert [each.offset for each in page.records] == [*range(12, 30)]
    assert (page.start_offset, page.log_start_offset, page.is_at_end) == (12, 12, True)


def test_time_shows_the_first_record_at_or_after_it(service: MemoryPenstock, visitor: Visitor) -> None:
    fill(service, 100)
    seen = visitor.get("/topics/orders/records?partition=0&at=time&time=1970-01-01T00:00:01.042")
    assert "value 42 " in seen.text
    assert "value 41 " not in seen.text
    later = visitor.get("/topics/orders/records?partition=0&at=time&time=2020-01-01")
    assert "No records here." in later.text


def test_filter_shows_the_records_that_match(service: MemoryPenstock, visitor: Visitor) -> None:
    fill(service, 20)
    seen = visitor.get("/topics/orders/records?at=oldest&filter=" + quote('{"type": ["refund"]}'))
    assert "value 2 " in seen.text
    assert "value 3 " not in seen.text
    bad = visitor.get("/topics/orders/records?at=oldest&filter=" + quote("{<b>"))
    assert bad.status == 400
    assert "<b>" not in bad.html


def test_links_lead_to_older_and_newer_records(service: MemoryPenstock, visitor: Visitor) -> None:
    fill(service, 200)
    seen = visitor.get("/topics/orders/records?partition=0&at=offset&offset=70")
    assert "offset=20" in seen.html
    assert "offset=120" in seen.html
    assert "the end of the log" in visitor.get("/topics/orders/records?partition=0").text
    assert "the start of the log" in visitor.get("/topics/orders/records?partition=0&at=oldest").text


def test_record_has_a_page_of_its_own_by_one_fetch(
    service: MemoryPenstock, counted: CountingTransport, visitor: Visitor
) -> None:
    service.create_topic("orders")
    with service.producer() as producer:
        producer.send("orders", '{"a": [1, 2]}', key="k", headers=[("h", None), ("raw", b"\xff")])
        producer.send("orders", None, key="k")
    counted.taken()
    seen = visitor.get("/topics/orders/records/0/0")
    assert counted.taken() == ["POST /v1/fetch"]
    assert "JSON, formatted" in seen.text
    assert "ff" in seen.text
    assert "7b 22" in visitor.get("/topics/orders/records/0/0?view=hex").text
    assert "a tombstone" in visitor.get("/topics/orders/records/0/1").text


@pytest.mark.parametrize("path", ["0/7", "0/99999999999999999999", "x/0", "9/0", "0/-1"])
def test_record_that_is_not_there_is_told(service: MemoryPenstock, visitor: Visitor, path: str) -> None:
    service.create_topic("orders")
    assert visitor.get(f"/topics/orders/records/{path}").status in (400, 404, 416)


@pytest.mark.parametrize("name", ["nothing", quote("<b>x", safe=""), "%00"])
def test_unknown_topic_is_told(visitor: Visitor, name: str) -> None:
    for end in ("", "/records", "/settings", "/produce", "/live"):
        seen = visitor.get(f"/topics/{name}{end}")
        assert seen.status in (400, 404), end
        assert "<b>x" not in seen.html


@pytest.mark.parametrize("view", ["", "text", "hex", "json"])
def test_hostile_records_are_text_on_every_page(service: MemoryPenstock, visitor: Visitor, view: str) -> None:
    service.create_topic("orders")
    with service.producer() as producer:
        for text in HOSTILE:
            producer.send("orders", text, key=text, headers=[(text, text.encode()), ("none", None)])
        producer.send("orders", b"\xff" * 1_000, key=b"\xfe", headers=[("\x1b", b"\xfd")])
    pages = [f"records?view={view}", f"records?partition=0&view={view}"]
    pages += [f"records/0/{offset}?view={view}" for offset in range(len(HOSTILE) + 1)]
    pages += [f"records?key={quote(text)}&filter={quote(text)}&view={quote(text)}&at={quote(text)}" for text in HOSTILE]
    for page in pages:
        assert forbidden_in(visitor.get(f"/topics/orders/{page}").html) == [], page


def test_batch_that_cannot_be_decoded_is_named_and_passed_over(service: MemoryPenstock, visitor: Visitor) -> None:
    fill(service, 2, batch=2)
    put_batch(service.transport, "orders", undecodable_batch())
    with service.producer() as producer:
        producer.send("orders", "behind it")
    seen = visitor.get("/topics/orders/records?partition=0&at=oldest")
    assert "cannot be decoded" in seen.text
    assert "behind it" in seen.text
    assert visitor.get("/topics/orders/records").status == 200


def test_page_stops_at_its_bytes_however_small_they_are_stored(service: MemoryPenstock) -> None:
    service.create_topic("orders")
    for _ in range(4):
        put_batch(service.transport, "orders", bomb(3 * 1024 * 1024))
    page = browse(service.transport, Wanted(place=PLACE, offset=0))
    assert [each.offset for each in page.records] == [0, 1, 2]
    assert (page.next_offset, page.is_at_end) == (3, False)


def test_record_with_very_many_headers_shows_the_first_of_them(service: MemoryPenstock, visitor: Visitor) -> None:
    service.create_topic("orders")
    with service.producer() as producer:
        producer.send("orders", "x", headers=[(f"h{number}", b"v") for number in range(5_000)])
    assert "and 4,990 more" in visitor.get("/topics/orders/records").text
    seen = visitor.get("/topics/orders/records/0/0")
    assert "The first 100 of 5,000 headers." in seen.text
    assert "h100" not in seen.text


def test_page_within_the_jump_of_a_restore_begins_behind_it(service: MemoryPenstock) -> None:
    fill(service, 10)
    jump(service._instance)
    send(service._instance, "orders", "new")
    page = browse(service.transport, Wanted(place=PLACE, offset=500))
    assert [record.value for record in page.records] == [b"new"]
