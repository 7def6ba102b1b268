"""A value is read in a thread, when somebody looks and it is old.

The overview's lists: as they are now, or as they were when the service takes long.
"""

import threading
from collections.abc import Mapping

import pytest

from penstock.console.background import Background, Lists, PromptTransport, ServiceDownError
from penstock.console.parsing import bytes_of, headers_of, typed_ms
from penstock.errors import ConnectionFailedError, InvalidError
from penstock.http.http_message import Response
from penstock.http.transport import Transport
from penstock.testing import MemoryPenstock
from penstock_core.errors import ErrorCode, PenstockError
from tests.support.deadlines import DEADLINE_S
from tests.support.denying import DenyingTransport

DEADLINE_MS = int(DEADLINE_S * 1_000)
NOW_MS = 1_800_000_000_000


class Source:
    """Gives one value after another, each once the gate is open."""

    def __init__(self) -> None:
        self.gate = threading.Event()
        self.gate.set()
        self.reads = 0
        self.error: Exception | None = None
        self.now_ms = 0
        self.done = threading.Event()

    def read(self) -> int:
        assert self.gate.wait(DEADLINE_S)
        self.reads += 1
        if self.error is not None:
            raise self.error
        return self.reads

    def background(self) -> Background[int]:
        return Background(self.read, lambda: 1_000, clock_ms=lambda: self.now_ms)


def look_until_read(background: Background[int], source: Source, reads: int) -> None:
    """Look until so many readings have ended: the thread of one may still be at it."""
    while background.look(0).is_reading or source.reads < reads:
        source.done.wait(0.001)


def test_first_look_waits_for_the_value_and_later_looks_share_it() -> None:
    source = Source()
    background = source.background()
    assert background.look(DEADLINE_MS).value == 1
    source.now_ms = 999
    found = background.look(0)
    assert (found.value, found.age_ms, found.error, source.reads) == (1, 999, None, 1)


def test_old_value_is_shown_while_the_next_one_is_read() -> None:
    source = Source()
    background = source.background()
    background.look(DEADLINE_MS)
    source.gate.clear()
    source.now_ms = 1_000
    found = background.look(0)
    assert (found.value, found.is_reading) == (1, True)
    background.look(0)
    source.gate.set()
    look_until_read(background, source, 2)
    assert (background.look(0).value, source.reads) == (2, 2)


def test_look_that_may_not_wait_has_no_value_yet() -> None:
    source = Source()
    source.gate.clear()
    background = source.background()
    found = background.look(1)
    assert (found.value, found.age_ms, found.is_reading) == (None, None, True)
    source.gate.set()
    look_until_read(background, source, 1)


def test_failure_is_told_and_the_last_value_stays() -> None:
    source = Source()
    background = source.background()
    background.look(DEADLINE_MS)
    source.error = PenstockError(ErrorCode.THROTTLED, "slow down")
    source.now_ms = 1_000
    background.look(0)
    look_until_read(background, source, 2)
    found = background.look(0)
    assert found.value == 1
    assert "slow down" in (found.error or "")


def test_defect_is_told_by_its_kind_only() -> None:
    source = Source()
    source.error = ValueError("a secret")
    assert source.background().look(DEADLINE_MS).error == "the console has a defect: ValueError"


def test_settled_value_is_the_one_after_the_reading_and_a_long_reading_leaves_the_last_one() -> None:
    source = Source()
    background = source.background()
    background.begin()
    assert background.settled(DEADLINE_MS).value == 1
    source.now_ms = 1_000
    source.gate.clear()
    background.begin()
    found = background.settled(1)
    assert (found.value, found.is_reading) == (1, True)
    source.gate.set()
    found = background.settled(DEADLINE_MS)
    assert (found.value, found.is_reading) == (2, False)


def test_service_that_does_not_answer_is_told_as_such() -> None:
    source = Source()
    source.error = ServiceDownError(ConnectionFailedError("nobody there", maybe_applied=False))
    found = source.background().look(DEADLINE_MS)
    assert found.down is source.error
    assert "nobody there" in (found.error or "")


class Gated:
    """Answers for topics once the gate is open, and is gone if `is_down`."""

    def __init__(self, inner: Transport) -> None:
        self._inner = inner
        self.gate = threading.Event()
        self.gate.set()
        self.is_down = False

    def call(
        self, method: str, path: str, query: Mapping[str, str], headers: Mapping[str, str], body: bytes
    ) -> Response:
        if self.is_down:
            raise ConnectionFailedError("nobody there", maybe_applied=False)
        assert not path.startswith("/v1/topics") or self.gate.wait(DEADLINE_S)
        return self._inner.call(method, path, query, headers, body)

    def close(self) -> None:
        pass


def names(found: object) -> list[str]:
    assert isinstance(found, list)
    return [each.name for each in found]


def test_list_is_read_anew_for_each_look(service: MemoryPenstock) -> None:
    lists = Lists(service.transport)
    assert names(lists.look(DEADLINE_MS).topics.value) == []
    service.create_topic("orders")
    assert names(lists.look(DEADLINE_MS).topics.value) == ["orders"]


def test_list_that_takes_long_is_not_known_first_and_later_as_it_was(service: MemoryPenstock) -> None:
    gated = Gated(service.transport)
    gated.gate.clear()
    lists = Lists(gated)
    found = lists.look(1)
    assert (found.topics.value, found.topics.is_reading, found.topics.error) == (None, True, None)
    gated.gate.set()
    assert names(lists.look(DEADLINE_MS).topics.value) == []
    service.create_topic("orders")
    gated.gate.clear()
    found = lists.look(1)
    assert (names(found.topics.value), found.topics.is_reading) == ([], True)
    gated.gate.set()
    assert names(lists.look(DEADLINE_MS).topics.value) == ["orders"]


def test_list_that_is_denied_leaves_the_others(service: MemoryPenstock) -> None:
    service.create_topic("orders")
    found = Lists(DenyingTransport(service.transport, "/v1/zones")).look(DEADLINE_MS)
    assert "ACCESS_DENIED" in (found.zones.error or "")
    assert names(found.topics.value) == ["orders"]


def test_service_that_is_down_is_told_at_once(service: MemoryPenstock) -> None:
    gated = Gated(service.transport)
    gated.is_down = True
    with pytest.raises(ServiceDownError):
        Lists(PromptTransport(gated)).look(DEADLINE_MS)


@pytest.mark.parametrize(
    ("text", "timestamp_ms"),
    [
        ("1700000000000", 1_700_000_000_000),
        ("1970-01-02", 86_400_000),
        ("1970-01-01 00:00:01.5", 1_500),
        ("1970-01-01T01:00+01:00", 0),
        ("5m ago", NOW_MS - 300_000),
        ("999999999999d ago", 0),
        ("1960-01-01", 0),
    ],
)
def test_time_is_read_as_people_write_it(text: str, timestamp_ms: int) -> None:
    assert typed_ms(text, NOW_MS) == timestamp_ms


@pytest.mark.parametrize("text", ["", "soon", "5 minutes ago", "<b>", "2026-13-01", "٣٣٣٣٣٣٣٣٣"])
def test_other_text_is_no_time(text: str) -> None:
    with pytest.raises(InvalidError, match=r"is no time \(.*\): give one such as"):
        typed_ms(text, NOW_MS)


def test_bytes_are_text_or_hexadecimal() -> None:
    assert bytes_of("Zoë", "text", "key") == "Zoë".encode()
    assert bytes_of("00 ff", "hex", "key") == b"\x00\xff"
    with pytest.raises(InvalidError, match="key='x' is no hexadecimal"):
        bytes_of("x", "hex", "key")


def test_headers_are_lines() -> None:
    assert headers_of("type: order\r\n\nurl: http://x\nempty:\nnone") == (
        ("type", b"order"),
        ("url", b"http://x"),
        ("empty", b""),
        ("none", None),
    )
