"""The overview's lists: as they are now, or as they were when the service takes long."""

import threading
from collections.abc import Mapping

import pytest

from penstock.console.lists import Lists
from penstock.console.parsing import bytes_of, headers_of, typed_ms
from penstock.console.service_down import PromptTransport, ServiceDownError
from penstock.errors import ConnectionFailedError, InvalidError
from penstock.http.http_message import Response
from penstock.http.transport import Transport
from penstock.testing import MemoryPenstock
from tests.sdk.console.test_background import DEADLINE_MS
from tests.support.deadlines import DEADLINE_S
from tests.support.denying import DenyingTransport

NOW_MS = 1_800_000_000_000


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
