"""Background readings send nothing while a page waits for the service."""

import threading
from collections.abc import Mapping

import pytest

from penstock.console.right_of_way import AsideTransport, PageTransport, RightOfWay
from penstock.http.http_message import Response
from tests.support.deadlines import DEADLINE_S

FOR_EVER_MS = int(DEADLINE_S * 1_000)


class Gated:
    """A service that answers /slow once it may. It notes what arrives."""

    def __init__(self) -> None:
        self.arrived: list[str] = []
        self.has_slow = threading.Event()
        self.may_answer = threading.Event()

    def call(
        self, method: str, path: str, query: Mapping[str, str], headers: Mapping[str, str], body: bytes
    ) -> Response:
        self.arrived.append(path)
        if path == "/slow":
            self.has_slow.set()
            assert self.may_answer.wait(DEADLINE_S)
        if path == "/fails":
            raise OSError(path)
        return Response(200, {}, b"{}")

    def close(self) -> None:
        pass


def test_reading_goes_on_after_the_page_has_its_answer() -> None:
    service, way = Gated(), RightOfWay()
    page = threading.Thread(target=PageTransport(service, way).call, args=("GET", "/slow", {}, {}, b""))
    page.start()
    assert service.has_slow.wait(DEADLINE_S)

    def read() -> None:
        way.stand_aside(FOR_EVER_MS)
        service.call("GET", "/read", {}, {}, b"")

    aside = threading.Thread(target=read)
    aside.start()
    assert service.arrived == ["/slow"]
    service.may_answer.set()
    page.join(DEADLINE_S)
    aside.join(DEADLINE_S)
    assert service.arrived == ["/slow", "/read"]


def test_reading_goes_on_at_last_though_pages_ask_for_ever() -> None:
    way = RightOfWay()
    way.enter()
    way.stand_aside(1)


def test_page_that_fails_leaves_the_way_free() -> None:
    service, way = Gated(), RightOfWay()
    with pytest.raises(OSError, match="/fails"):
        PageTransport(service, way).call("GET", "/fails", {}, {}, b"")
    AsideTransport(service, way).call("GET", "/read", {}, {}, b"")
    way.stand_aside(FOR_EVER_MS)
    assert service.arrived == ["/fails", "/read"]
