"""The console lets in the browser that its owner has opened, and pages of its own only. Background readings send
nothing while a page waits for the service.
"""

import http.client
import threading
from collections.abc import Mapping

import pytest

from penstock.console.guard import HEADERS, AsideTransport, PageTransport, RightOfWay
from penstock.console.server import PAGES
from penstock.http.http_message import Response
from tests.sdk.console.conftest import RunningConsole
from tests.sdk.console.visitor import Visitor
from tests.support.deadlines import DEADLINE_S

FORM = "application/x-www-form-urlencoded"
GETS = ["/static/console.css", *(route.path for page in PAGES for route in page.routes if route.method == "GET")]
STREAMS = [stream.path for page in PAGES for stream in page.streams]
POSTS = [route.path for page in PAGES for route in page.routes if route.method == "POST"]
FOR_EVER_MS = int(DEADLINE_S * 1_000)


@pytest.mark.parametrize("path", [*GETS, *STREAMS, "/nothing"])
def test_get_without_a_session_is_refused_and_says_how_to_get_one(console: RunningConsole, path: str) -> None:
    seen = Visitor(console.origin).get(path)
    assert seen.status == 403
    assert "penstock console" in seen.text


@pytest.mark.parametrize("path", POSTS)
def test_post_without_a_session_is_refused(console: RunningConsole, path: str) -> None:
    assert Visitor(console.origin).post(path).status == 403


def test_link_works_once_and_the_console_says_the_next_one(console: RunningConsole) -> None:
    first = console.links[-1]
    assert Visitor(console.origin).open(first).status == 200
    again = Visitor(console.origin).open(first)
    assert again.status == 403
    assert again.headers.get("Set-Cookie") is None
    assert console.links[-1] != first
    assert Visitor(console.origin).open(console.links[-1]).status == 200


def test_wrong_token_is_refused_and_the_link_still_works(console: RunningConsole) -> None:
    assert Visitor(console.origin).get("/enter?token=0").status == 403
    assert Visitor(console.origin).get("/enter?token=%C3%BC").status == 403
    assert Visitor(console.origin).open(console.links[-1]).status == 200


def test_cookie_is_for_this_site_and_not_for_scripts(console: RunningConsole) -> None:
    visitor = Visitor(console.origin)
    entered = visitor.request("GET", console.links[-1].removeprefix(console.origin))
    cookie = entered.headers["Set-Cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=Strict" in cookie
    assert entered.headers["Location"] == "/"
    assert str(console.port) in cookie.partition("=")[0], "browsers send the cookies of one host to all its ports"


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1", "127.0.0.1:1", "localhost.evil.example", ""])
def test_request_for_another_host_is_refused(console: RunningConsole, visitor: Visitor, host: str) -> None:
    for path in ("/", "/enter?token=x"):
        assert visitor.request("GET", path, headers={"Host": host or " "}).status in (400, 403)


def test_request_without_a_host_is_refused(console: RunningConsole, visitor: Visitor) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", console.port)
    connection.putrequest("GET", "/", skip_host=True)
    connection.putheader("Cookie", "; ".join(f"{name}={value}" for name, value in visitor.cookies.items()))
    connection.endheaders()
    assert connection.getresponse().status in (400, 403)
    connection.close()


def test_name_localhost_is_ours_too(console: RunningConsole, visitor: Visitor) -> None:
    assert visitor.request("GET", "/", headers={"Host": f"localhost:{console.port}"}).status == 200


@pytest.mark.parametrize("site", ["cross-site", "same-site", "else"])
def test_request_from_another_site_is_refused(visitor: Visitor, site: str) -> None:
    assert visitor.request("GET", "/", headers={"Sec-Fetch-Site": site}).status == 403


@pytest.mark.parametrize("origin", [None, "null", "http://evil.example", "http://127.0.0.1:1", "https://127.0.0.1"])
def test_form_from_another_origin_is_refused(visitor: Visitor, origin: str | None) -> None:
    visitor.get("/new/topic")
    headers = {"Content-Type": FORM} | ({} if origin is None else {"Origin": origin})
    body = f"form_token={visitor.form_token}&name=orders"
    assert visitor.request("POST", "/new/topic", headers=headers, body=body).status == 403
    assert "orders" not in visitor.get("/topics").text


@pytest.mark.parametrize("token", ["", "0", "ü"])
def test_form_without_the_token_of_its_session_is_refused(visitor: Visitor, token: str) -> None:
    visitor.form_token = token
    assert visitor.post("/new/topic", name="orders").status == 403
    assert "orders" not in visitor.get("/topics").text


def test_form_token_of_another_session_is_refused(console: RunningConsole, visitor: Visitor) -> None:
    other = console.visitor()
    other.get("/new/topic")
    visitor.form_token = other.form_token
    assert visitor.post("/new/topic", name="orders").status == 403


def test_form_of_another_type_is_refused(console: RunningConsole, visitor: Visitor) -> None:
    visitor.get("/new/topic")
    body = f"form_token={visitor.form_token}&name=orders"
    headers = {"Content-Type": "text/plain", "Origin": console.origin}
    assert visitor.request("POST", "/new/topic", headers=headers, body=body).status == 415


def test_cookie_that_nobody_was_given_is_refused(console: RunningConsole) -> None:
    visitor = Visitor(console.origin)
    name = f"penstock_console_{console.port}"
    for cookie in (f"{name}=", f"{name}=0", f"{name}=\xfc", "x=[;{", f"{name}"):
        assert visitor.request("GET", "/", headers={"Cookie": cookie}).status in (400, 403), cookie


@pytest.mark.parametrize("path", [*GETS, "/nothing", "/enter?token=0"])
def test_every_answer_keeps_browsers_strict(console: RunningConsole, visitor: Visitor, path: str) -> None:
    for seen in (visitor.get(path), Visitor(console.origin).get(path)):
        assert {name: seen.headers.get(name) for name in HEADERS} == dict(HEADERS)
    policy = HEADERS["Content-Security-Policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy


@pytest.mark.parametrize("method", ["PUT", "DELETE", "HEAD", "OPTIONS", "TRACE"])
def test_other_methods_are_refused(console: RunningConsole, visitor: Visitor, method: str) -> None:
    headers = {"Origin": console.origin}
    assert visitor.request(method, "/topics", headers=headers).status == 405


def test_oldest_of_too_many_sessions_must_come_again(console: RunningConsole) -> None:
    visitors = [console.visitor() for _ in range(9)]
    assert [each.get("/topics").status for each in visitors] == [403] + 8 * [200]


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
