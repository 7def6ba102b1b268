"""Dead letters: the list, one letter, and what can be done with it."""

from collections.abc import Mapping
from html import unescape
from html.parser import HTMLParser

import pytest

from penstock import Admin
from penstock.console.pages import dead_letters
from penstock.http.http_message import Response
from penstock.testing import MemoryPenstock
from penstock_core.limits import CONSOLE_RECORDS_MAX
from tests.sdk.console.conftest import RunningConsole
from tests.sdk.console.hostile import HOSTILE, forbidden_in
from tests.sdk.console.visitor import Visitor
from tests.support.denying import DenyingTransport

DEAD = "penstock.dead-letter."
LETTER = "/dead-letters/orders.dead/0/0"


@pytest.fixture
def dead(service: MemoryPenstock) -> None:
    """A dead letter of a share group, and hostile ones that claim all kinds of deaths."""
    service.create_topic("orders")
    service.create_topic("orders.dead")
    service.admin().create_share_group("workers", "orders", {"dead_letter_topic": "orders.dead", "start": "earliest"})
    with service.producer() as producer:
        told = {"topic": b"orders", "partition": b"0", "offset": b"7", "group": b"workers", "reason": b"<b>boom"}
        told |= {"deliveries": b"5", "time_ms": b"1700000000000"}
        producer.send("orders.dead", "x", headers=[(f"{DEAD}{name}", value) for name, value in told.items()])
        for text in HOSTILE:
            headers = [(f"{DEAD}{name}", text.encode()) for name in (*told, "subscription")]
            producer.send("orders.dead", text, key=text, headers=headers)


@pytest.mark.usefixtures("dead")
def test_dead_letters_tell_why_they_are_there(visitor: Visitor) -> None:
    assert f"orders.dead {1 + len(HOSTILE)} 0 workers" in visitor.get("/dead-letters").text
    seen = visitor.get("/dead-letters/orders.dead")
    assert "orders [0] 7 workers 5 <b>boom" in seen.text
    assert "<b>boom" not in seen.html
    assert forbidden_in(seen.html) == []


@pytest.mark.usefixtures("dead")
def test_dead_letters_go_back_or_away_by_name_only(service: MemoryPenstock, visitor: Visitor) -> None:
    visitor.get("/dead-letters/orders.dead")
    assert visitor.post("/dead-letters/orders.dead/redrive", confirm="orders").status == 400
    assert service.records("orders") == []
    assert "Moved 1 record;" in visitor.post("/dead-letters/orders.dead/redrive", confirm="orders.dead").text
    assert [each.value for each in service.records("orders")] == [b"x"]
    assert visitor.post("/dead-letters/orders.dead/purge", confirm="").status == 400
    assert len(service.records("orders.dead")) > 1
    assert "Removed all" in visitor.post("/dead-letters/orders.dead/purge", confirm="orders.dead").text
    assert service.records("orders.dead") == []


def death(**facts: bytes) -> list[tuple[str, bytes | None]]:
    told = {"topic": b"orders", "partition": b"0", "offset": b"7", "group": b"workers", **facts}
    return [(f"{DEAD}{name}", value) for name, value in told.items()]


class Fields(HTMLParser):
    """The fields of a page's forms as a browser would send them unchanged, by the forms' actions."""

    def __init__(self, html: str) -> None:
        super().__init__(convert_charrefs=True)
        self.forms: dict[str, dict[str, str]] = {}
        self._form: dict[str, str] = {}
        self._open = ""
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        if tag == "form":
            self._form = self.forms.setdefault(given.get("action", ""), {})
        elif tag == "textarea":
            self._open = given["name"]
            self._form[self._open] = ""
        elif tag == "select":
            self._open = f"<{given['name']}"
        elif tag == "option" and "selected" in given:
            self._form[self._open[1:]] = given["value"]
        elif tag == "input" and "name" in given and (given.get("type") != "checkbox" or "checked" in given):
            self._form[given["name"]] = given.get("value", "")

    def handle_endtag(self, tag: str) -> None:
        if tag in ("textarea", "select"):
            self._open = ""

    def handle_data(self, data: str) -> None:
        if self._open and not self._open.startswith("<"):
            # A browser drops the first newline of a textarea, and sends two characters for each other one.
            self._form[self._open] = data.removeprefix("\n").replace("\n", "\r\n")


def states_of(service: MemoryPenstock) -> list[bool | None]:
    [partition] = service.admin().describe_dead_letters("orders.dead").partitions
    return [partition.is_open(offset) for offset in range(partition.records)]


@pytest.mark.usefixtures("dead")
def test_done_letters_are_marked_and_left_out_until_asked_for(service: MemoryPenstock, visitor: Visitor) -> None:
    assert f"{1 + len(HOSTILE)} open, 0 done." in visitor.get("/dead-letters/orders.dead").text
    assert service.admin().redrive("orders.dead", record=(0, 0)).moved == 1
    seen = visitor.get("/dead-letters/orders.dead")
    assert f"{len(HOSTILE)} open, 1 done." in seen.text
    assert "orders [0] 7" not in seen.text
    assert "0 / 0 done 2023" in visitor.get("/dead-letters/orders.dead?all=yes").text
    assert "0 / 1 open" in visitor.get("/dead-letters/orders.dead?all=yes").text


def test_list_asks_for_the_counts_of_its_first_topics_only(
    service: MemoryPenstock, visitor: Visitor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dead_letters, "CONSOLE_TOP_ROWS", 2)
    service.create_topic("orders")
    for name in ("a", "b", "c"):
        service.create_topic(f"{name}.dead")
        service.admin().create_share_group(name, "orders", {"dead_letter_topic": f"{name}.dead"})
    with service.producer() as producer:
        for number in range(3):
            producer.send("a.dead", str(number), headers=death())
    visitor.get("/dead-letters")
    service.admin().redrive("a.dead", record=(0, 1), drop=True)
    service.admin().delete_topic("b.dead")
    text = visitor.get("/dead-letters").text
    assert "a.dead 2 1 a b.dead – – b c.dead see – c" in text


def test_open_letters_are_found_behind_many_done_ones(service: MemoryPenstock, visitor: Visitor) -> None:
    service.create_topic("orders")
    service.create_topic("orders.dead")
    with service.producer() as producer:
        for number in range(2 * CONSOLE_RECORDS_MAX):
            producer.send("orders.dead", f"letter-{number:03d}", headers=death())
    visitor.get("/dead-letters/orders.dead")
    admin = service.admin()
    for number in range(2, 2 * CONSOLE_RECORDS_MAX):
        assert admin.redrive("orders.dead", record=(0, number), drop=True).moved
    seen = visitor.get("/dead-letters/orders.dead")
    assert "2 open, 98 done. The newest 2 of them." in seen.text
    assert "letter-000" in seen.text
    assert "letter-001" in seen.text
    assert "letter-099" not in seen.text
    for number in range(2):
        admin.redrive("orders.dead", record=(0, number), drop=True)
    assert "All dead letters are done." in visitor.get("/dead-letters/orders.dead").text


@pytest.mark.usefixtures("dead")
def test_letter_has_a_page_that_links_to_its_record_and_back(visitor: Visitor) -> None:
    assert f'href="{LETTER}"' in visitor.get("/dead-letters/orders.dead").html
    seen = visitor.get(LETTER)
    assert "State open" in seen.text
    assert "Given up by workers Deliveries 5 Reason <b>boom" in seen.text
    assert 'href="/topics/orders.dead/records/0/0"' in seen.html
    assert 'href="/topics/orders/records/0/7"' in seen.html
    assert f'href="{LETTER}"' in visitor.get("/topics/orders.dead/records/0/0").html
    for offset in range(1 + len(HOSTILE)):
        assert forbidden_in(visitor.get(f"/dead-letters/orders.dead/0/{offset}").html) == []
    assert visitor.get("/dead-letters/orders.dead/0/99").status == 416
    assert visitor.get("/dead-letters/orders.dead/x/0").status == 400


def test_record_that_is_no_letter_has_no_link_to_one(service: MemoryPenstock, visitor: Visitor) -> None:
    service.create_topic("orders")
    with service.producer() as producer:
        producer.send("orders", "x")
    assert "dead letter" not in visitor.get("/topics/orders/records/0/0").text


@pytest.mark.usefixtures("dead")
def test_one_letter_goes_back_once_and_by_name_only(service: MemoryPenstock, visitor: Visitor) -> None:
    visitor.get(LETTER)
    assert visitor.post(f"{LETTER}/redrive", confirm="orders").status == 400
    assert service.records("orders") == []
    seen = visitor.post(f"{LETTER}/redrive", confirm="orders.dead")
    assert "Sent it back. The letter is done." in seen.text
    assert "State done" in seen.text
    assert "Deal with it" not in seen.text
    assert [each.value for each in service.records("orders")] == [b"x"]
    again = visitor.post(f"{LETTER}/redrive", confirm="orders.dead")
    assert (again.status, "it was done before" in again.text) == (400, True)
    assert states_of(service) == [False, *[True] * len(HOSTILE)]
    lost = visitor.post("/dead-letters/orders.dead/0/1/redrive", confirm="orders.dead")
    assert "give another topic" in lost.text
    assert (
        "Sent it back" in visitor.post("/dead-letters/orders.dead/0/1/redrive", confirm="orders.dead", to="orders").text
    )
    assert len(service.records("orders")) == 2


@pytest.mark.usefixtures("dead")
def test_one_letter_is_dropped_by_name_only(service: MemoryPenstock, visitor: Visitor) -> None:
    visitor.get(LETTER)
    assert visitor.post(f"{LETTER}/drop", confirm="").status == 400
    assert all(states_of(service))
    assert "Dropped it." in visitor.post(f"{LETTER}/drop", confirm="orders.dead").text
    assert states_of(service) == [False, *[True] * len(HOSTILE)]
    assert service.records("orders") == []
    assert visitor.post(f"{LETTER}/drop", confirm="orders.dead").status == 400


@pytest.mark.parametrize("action", ["redrive", "drop", "send"])
@pytest.mark.usefixtures("dead")
def test_action_without_its_form_is_refused(service: MemoryPenstock, visitor: Visitor, action: str) -> None:
    visitor.form_token = "x"  # a form of another session
    assert visitor.post(f"{LETTER}/{action}", confirm="orders.dead", to="orders", value="y").status == 403
    assert all(states_of(service))
    assert service.records("orders") == []


Headers = list[tuple[str, bytes | None]]
RECORDS: list[tuple[bytes | None, bytes | None, Headers]] = [
    (b"k", b'{"a": 1}', [("type", b"order"), ("none", None), ("empty", b"")]),
    (None, None, []),
    (b"", b"", []),
    (b"\xff\xfe", b"\x00\x01\xff", [("binary", b"\xff"), ('"odd": name', b"\r\n")]),
    (b"two\nlines", b"\ntwo\r\nlines\n", []),
    (b"tab\t", "\n\u00e9 \u202e \U0001f9e8\nz".encode(), [("\u202e", "\u202e".encode())]),
    (b" spaces ", b"\n\nplain\n\n", []),
]
RECORDS += [(text.encode(), text.encode(), [(text, text.encode())]) for text in HOSTILE]


@pytest.mark.parametrize(("key", "value", "headers"), RECORDS)
def test_form_that_nobody_has_changed_sends_the_same_bytes(
    service: MemoryPenstock,
    visitor: Visitor,
    key: bytes | None,
    value: bytes | None,
    headers: list[tuple[str, bytes | None]],
) -> None:
    service.create_topic("orders")
    service.create_topic("orders.dead")
    with service.producer() as producer:
        producer.send("orders.dead", value, key=key, headers=[*headers, *death()])
    fields = Fields(visitor.get(LETTER).html).forms[f"{LETTER}/send"]
    seen = visitor.post(f"{LETTER}/send", **{**fields, "confirm": "orders.dead"})
    assert "Stored in orders[0] at offset 0. The letter is done." in seen.text
    [record] = service.records("orders")
    assert (record.key, record.value, [*record.headers]) == (key, value, headers)
    assert states_of(service) == [False]


@pytest.mark.usefixtures("dead")
def test_changed_record_is_sent_once_and_its_letter_dropped(service: MemoryPenstock, visitor: Visitor) -> None:
    fields = Fields(visitor.get(LETTER).html).forms[f"{LETTER}/send"]
    changed = {**fields, "value": "mended", "key": "AAE=", "key_form": "base64", "headers": '[["a", "b"]]'}
    assert visitor.post(f"{LETTER}/send", **changed).status == 400
    assert service.records("orders") == []
    seen = visitor.post(f"{LETTER}/send", **{**changed, "confirm": "orders.dead"})
    assert seen.path.startswith("/topics/orders/records/0/0")
    [record] = service.records("orders")
    assert (record.key, record.value, [*record.headers]) == (b"\x00\x01", b"mended", [("a", b"b")])
    again = visitor.post(f"{LETTER}/send", **{**changed, "confirm": "orders.dead"})
    assert (again.status, "nothing was sent" in again.text) == (400, True)
    assert len(service.records("orders")) == 1


@pytest.mark.parametrize(
    ("field", "text", "said"),
    [
        ("to", "", "name the topic"),
        ("to", "orders.dead", "name the topic"),
        ("to", "no.such", "no.such"),
        ("headers", '["ab"]', "give a list"),
        ("headers", '{"a": "b"}', "give a list"),
        ("headers", '[["a", 1]]', "give a list"),
        ("headers", "<b>x", "give a list"),
        ("headers", '[["a", {"base64": "?"}]]', "no base64"),
    ],
)
@pytest.mark.usefixtures("dead")
def test_form_that_makes_no_sense_sends_nothing(
    service: MemoryPenstock, visitor: Visitor, field: str, text: str, said: str
) -> None:
    fields = Fields(visitor.get(LETTER).html).forms[f"{LETTER}/send"]
    seen = visitor.post(f"{LETTER}/send", **{**fields, "confirm": "orders.dead", field: text})
    assert seen.status in (400, 404)
    assert said in seen.text
    assert "<b>x" not in seen.html
    assert service.records("orders") == []
    assert all(states_of(service))


@pytest.mark.usefixtures("dead")
def test_letter_that_could_not_be_dropped_after_the_send_is_told(service: MemoryPenstock) -> None:
    running = RunningConsole(DenyingTransport(service.transport, "/v1/topics/orders.dead/redrive"))
    try:
        visitor = running.visitor()
        fields = Fields(visitor.get(LETTER).html).forms[f"{LETTER}/send"]
        seen = visitor.post(f"{LETTER}/send", **{**fields, "confirm": "orders.dead"})
    finally:
        running.stop()
    assert seen.status == 403
    assert "the record is stored in orders[0] at offset 0, but the letter was not dropped" in seen.text
    assert [each.value for each in service.records("orders")] == [b"x"]
    assert all(states_of(service))


class _Overtaken(DenyingTransport):
    """Somebody else drops the letter right before the console does."""

    def call(
        self, method: str, path: str, query: Mapping[str, str], headers: Mapping[str, str], body: bytes
    ) -> Response:
        if path.endswith("/redrive"):
            Admin(transport=self._inner).redrive("orders.dead", record=(0, 0), drop=True)
        return super().call(method, path, query, headers, body)


@pytest.mark.usefixtures("dead")
def test_letter_that_somebody_else_handled_after_the_send_is_told(service: MemoryPenstock) -> None:
    running = RunningConsole(_Overtaken(service.transport, "/none"))
    try:
        visitor = running.visitor()
        fields = Fields(visitor.get(LETTER).html).forms[f"{LETTER}/send"]
        seen = visitor.post(f"{LETTER}/send", **{**fields, "confirm": "orders.dead"})
    finally:
        running.stop()
    assert "Stored in orders[0] at offset 0. But somebody else handled the letter meanwhile" in seen.text
    assert "may be there twice" in seen.text
    assert "The letter is done." not in seen.text


def test_large_record_has_no_form_that_would_cut_it(
    service: MemoryPenstock, visitor: Visitor, monkeypatch: pytest.MonkeyPatch
) -> None:
    service.create_topic("orders.dead")
    with service.producer() as producer:
        producer.send("orders.dead", "x" * 101, headers=death())
    monkeypatch.setattr(dead_letters, "CONSOLE_VALUE_CHARACTERS_MAX", 100)
    seen = visitor.get(LETTER)
    assert "too large for a form" in seen.text
    assert f"{LETTER}/send" not in unescape(seen.html)
    monkeypatch.setattr(dead_letters, "CONSOLE_VALUE_CHARACTERS_MAX", 101)
    assert f"{LETTER}/send" in visitor.get(LETTER).html


@pytest.mark.usefixtures("dead")
def test_letters_are_shown_to_a_caller_who_may_not_see_which_are_open(service: MemoryPenstock) -> None:
    running = RunningConsole(DenyingTransport(service.transport, "/v1/topics/orders.dead/dead-letters"))
    try:
        visitor = running.visitor()
        assert "orders [0] 7 workers 5" in visitor.get("/dead-letters/orders.dead").text
        assert "Whether the letter is open is not known: ACCESS_DENIED" in visitor.get(LETTER).text
    finally:
        running.stop()


def test_dead_letters_of_share_groups_are_listed_to_a_caller_without_subscriptions(service: MemoryPenstock) -> None:
    for topic in ("orders", "orders.dead"):
        service.create_topic(topic)
    service.admin().create_share_group("workers", "orders", {"dead_letter_topic": "orders.dead"})
    running = RunningConsole(DenyingTransport(service.transport, "/v1/subscriptions", status=404))
    try:
        seen = running.visitor().get("/dead-letters")
    finally:
        running.stop()
    assert "orders.dead 0 0 workers" in seen.text
    assert "HTTP 404 from the gateway" in seen.text
