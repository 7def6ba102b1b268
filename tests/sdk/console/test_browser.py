"""The pages in a real browser: what they look like to people, keyboards and attackers."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from playwright.sync_api import expect

from penstock.model import TopicPartition
from penstock.model.access import AccessRule
from penstock.testing import MemoryPenstock
from tests.sdk.cli.test_acls import settle
from tests.sdk.console.chromium import DESK, PHONE, Tab, chromium, open_tab
from tests.sdk.console.conftest import RunningConsole
from tests.sdk.console.hostile import HOSTILE

PAGES = {
    "overview": "/",
    "topics": "/topics",
    "new topic": "/new/topic",
    "topic": "/topics/orders",
    "settings": "/topics/orders/settings",
    "fewer partitions": "/topics/orders/partitions?partitions=1",
    "newest records": "/topics/orders/records",
    "oldest records": "/topics/orders/records?partition=0&at=oldest",
    "record": "/topics/orders/records/0/0",
    "produce": "/topics/orders/produce",
    "live": "/topics/orders/live",
    "hot partitions": "/topics/orders/hot",
    "scheduled": "/topics/orders/scheduled",
    "groups": "/groups",
    "group": "/groups/billing",
    "reset": "/groups/billing/reset?topic=orders&to=earliest",
    "share groups": "/share-groups",
    "new share group": "/new/share-group",
    "new subscription": "/new/subscription",
    "share group": "/share-groups/workers",
    "subscriptions": "/subscriptions",
    "subscription": "/subscriptions/copy",
    "mirrors": "/mirrors",
    "dead letters": "/dead-letters",
    "dead-letter topic": "/dead-letters/orders.dead",
    "dead letter": "/dead-letters/orders.dead/0/1",
    "access rules": "/acls?principal=arn:aws:iam::111122223333:role/x&operation=read&resource=topic:orders",
    "quotas": "/quotas",
    "audit": "/audit",
}
# Names without a label, fields without a name, tables without heads, and what a page has more than one of.
UNNAMED = """() => {
  const label = (each) => (each.labels && each.labels.length) || each.getAttribute("aria-label");
  const named = (each) => label(each) || each.textContent.trim();
  const fields = [...document.querySelectorAll("input:not([type=hidden]), select, textarea, button, a, summary")];
  const wrong = fields.filter((each) => !named(each)).map((each) => each.outerHTML);
  for (const table of document.querySelectorAll("table"))
    if (!table.querySelector("th[scope=col]")) wrong.push("table without heads");
  for (const region of document.querySelectorAll("[role=region]"))
    if (!region.matches("[aria-label], [aria-labelledby]")) wrong.push("region without a name");
  for (const landmark of ["h1", "main", "nav[aria-label=Pages]"])
    if (document.querySelectorAll(landmark).length !== 1) wrong.push(landmark);
  const ids = [...document.querySelectorAll("[id]")].map((each) => each.id);
  return wrong.concat(ids.filter((id, at) => ids.indexOf(id) !== at));
}"""
# The contrast of each text with what is behind it, by WCAG: 4.5 at least.
PALE = """() => {
  const light = (colour) => {
    const linear = (part) => part <= .04045 ? part / 12.92 : ((part + .055) / 1.055) ** 2.4;
    const parts = colour.map((part) => linear(part / 255));
    return .2126 * parts[0] + .7152 * parts[1] + .0722 * parts[2];
  };
  const colour = (text) => (text.match(/[\\d.]+/g) || []).map(Number);
  const behind = (each) => {
    for (let at = each; at; at = at.parentElement) {
      const found = colour(getComputedStyle(at).backgroundColor);
      if (found.length === 3 || found[3] === 1) return found;
    }
    return [255, 255, 255];
  };
  const wrong = [];
  for (const each of document.querySelectorAll("main *, header *")) {
    const hasText = [...each.childNodes].some((node) => node.nodeType === 3 && node.textContent.trim());
    if (!hasText || !each.checkVisibility() || each.closest(":disabled, .unseen, .skip")) continue;
    const [one, other] = [light(colour(getComputedStyle(each).color)), light(behind(each))];
    const contrast = (Math.max(one, other) + .05) / (Math.min(one, other) + .05);
    if (contrast < 4.5) wrong.push(`${each.tagName} ${each.textContent.trim().slice(0, 30)} ${contrast.toFixed(2)}`);
  }
  return wrong;
}"""

HIDDEN_HINTS = """() => [...document.querySelectorAll(".field > .hint")].filter((hint) => {
  const field = hint.parentElement.querySelector("input, select, textarea");
  return hint.getBoundingClientRect().top < field.getBoundingClientRect().bottom;
}).map((hint) => hint.textContent)"""

NUMBER_OF_FOCUSED = """() => {
  window.met ??= new Map();
  if (!met.has(document.activeElement)) met.set(document.activeElement, met.size);
  return met.get(document.activeElement);
}"""


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as browser:
        yield browser


@pytest.fixture
def open_console(browser: Any, console: RunningConsole) -> Iterator[Callable[..., Tab]]:
    """Opens the console in a new tab."""
    with ExitStack() as stack:
        yield lambda **options: stack.enter_context(open_tab(browser, console.links[-1], **options))


@pytest.fixture
def filled(service: MemoryPenstock) -> MemoryPenstock:
    service.create_topic("orders", partitions=2)
    service.create_topic("orders.dead")
    with service.producer() as producer:
        for text in HOSTILE:
            producer.send("orders", text, key=text, headers=[(text, text.encode()), ("none", None)], partition=0)
        producer.send("orders", b"\xff" * 3_000, key=b"\xfe", partition=0)
        producer.send("orders", '{"a": {"b": [1, 2]}}', key="k" * 300, partition=0)
        producer.send("orders", "later", partition=0, delay_ms=3_600_000)
        for text in HOSTILE:
            producer.send("orders.dead", text, headers=[("penstock.dead-letter.reason", text.encode())])
    admin = service.admin()
    admin.commit_group_offsets("billing", {TopicPartition("orders", 0): 2}, metadata="<img src=x onerror=alert(1)>")
    admin.create_share_group("workers", "orders", {"dead_letter_topic": "orders.dead"})
    admin.put_subscription("copy", "orders", {"topic": "orders.dead"})
    admin.change_acls(add=[AccessRule(principal="arn:aws:iam::111122223333:role/*", operation="read", resource="*")])
    admin.set_quota("topic", "*", {"produce_bytes_per_s": 10**9})
    settle(service)
    return service


@pytest.mark.slow
def test_topic_is_made_looked_at_and_destroyed_by_hand(
    filled: MemoryPenstock, open_console: Callable[..., Tab]
) -> None:
    tab = open_console()
    for path in PAGES.values():
        tab.go(path)
    tab.go("/new/topic")
    tab.page.get_by_label("Name").fill("payments")
    tab.page.keyboard.press("Enter")
    expect(tab.page.get_by_role("heading", level=1)).to_have_text("payments")
    assert tab.page.get_by_role("status").inner_text() == "Created payments."
    tab.page.get_by_role("link", name="Settings").click()
    tab.page.locator("summary", has_text="Delete the topic").click()
    button = tab.page.get_by_role("button", name="Delete the topic")
    field = tab.page.get_by_label("Type payments to go on").locator("visible=true")
    field.fill("payment")
    assert button.is_disabled()
    field.fill("payments")
    assert button.is_enabled()
    button.click()
    assert tab.page.get_by_role("status").inner_text() == "Deleted payments."
    assert [each.name for each in filled.admin().list_topics()] == ["orders", "orders.dead"]
    assert tab.complaints == []


@pytest.mark.slow
def test_mirrors_are_read_on_a_phone(filled: MemoryPenstock, browser: Any) -> None:
    """State, lag and last success are in view, and no table scrolls sideways."""
    with MemoryPenstock() as other:
        filled.add_stage("https://b.example", other)
        filled.admin().create_mirror("dr", "orders", "https://b.example", source="https://a.example")
        filled.deliver_pushes()
        filled.admin().move_topic("orders", "dr")
        for side, shown in ((filled, ("moved", "behind", "last success", "epoch")), (other, ("mirror",))):
            console = RunningConsole(side.transport)
            try:
                with open_tab(browser, console.links[-1]) as tab:
                    tab.page.set_viewport_size({"width": 390, "height": 844})
                    tab.go("/mirrors")
                    assert tab.page.evaluate(UNNAMED) == []
                    assert tab.page.evaluate(PALE) == []
                    wide = "[...document.querySelectorAll('.table')].filter((each) => each.scrollWidth > 390).length"
                    assert tab.page.evaluate(wide) == 0
                    assert tab.page.locator("th[scope=row]").first.inner_text() == "orders"
                    row = tab.page.locator("tbody tr").first
                    labels = row.evaluate(
                        "(row) => [...row.children].map((each) => each.dataset.label || each.innerText)"
                    )
                    assert {*shown} <= {*labels}
                    assert tab.complaints == []
            finally:
                console.stop()


@pytest.mark.slow
def test_share_group_and_subscription_are_made_and_destroyed_by_hand(
    filled: MemoryPenstock, open_console: Callable[..., Tab]
) -> None:
    tab = open_console()
    for noun, more in (("share group", {}), ("subscription", {"Target": "orders.dead"})):
        tab.go(f"/{noun.replace(' ', '-')}s")
        tab.page.get_by_role("link", name=f"Create a {noun}").click()
        for label, value in {"Name": "by-hand", "Topics": "orders", **more}.items():
            tab.page.get_by_label(label, exact=True).fill(value)
        if more:
            tab.page.get_by_label("Kind of target").select_option("topic")
        tab.page.get_by_role("button", name=f"Create the {noun}").click()
        expect(tab.page.get_by_role("heading", level=1)).to_have_text("by-hand")
        assert tab.page.get_by_role("status").inner_text() == "Created by-hand."
        tab.page.locator("summary", has_text=f"Delete the {noun}").click()
        button = tab.page.get_by_role("button", name=f"Delete the {noun}")
        assert button.is_disabled()
        tab.page.get_by_label("Type by-hand to go on").locator("visible=true").fill("by-hand")
        button.click()
        assert tab.page.get_by_role("status").inner_text() == "Deleted by-hand."
    assert tab.complaints == []


@pytest.mark.minutes
@pytest.mark.parametrize("path", PAGES.values(), ids=PAGES)
def test_page_is_sound_in_every_light_and_width(
    filled: MemoryPenstock, open_console: Callable[..., Tab], path: str
) -> None:
    tab = open_console()
    for scheme in ("light", "dark"):
        for size in (DESK, PHONE):
            tab.page.emulate_media(color_scheme=scheme)
            tab.page.set_viewport_size(size)
            tab.go(path)
            assert tab.page.evaluate(UNNAMED) == []
            assert tab.page.evaluate(PALE) == []
            assert tab.page.evaluate(HIDDEN_HINTS) == []
            width = tab.page.evaluate("document.documentElement.scrollWidth")
            assert width <= size["width"], "the page scrolls sideways"
    assert tab.complaints == []


@pytest.mark.minutes
@pytest.mark.parametrize("path", PAGES.values(), ids=PAGES)
def test_hostile_text_makes_no_element_and_runs_nothing(
    filled: MemoryPenstock, open_console: Callable[..., Tab], path: str
) -> None:
    tab = open_console()
    tab.go(path)
    assert tab.page.locator("img, iframe, object, embed, base").count() == 1, "the mark is the only picture"
    assert tab.page.locator("script:not([src])").count() == 0
    assert tab.page.locator("main [onerror], main [onload], main [style]").count() == 0
    assert tab.page.locator("a[href^='javascript']").count() == 0
    assert tab.complaints == []


@pytest.mark.minutes
def test_policy_refuses_what_escaping_would_have_missed(
    filled: MemoryPenstock, open_console: Callable[..., Tab]
) -> None:
    tab = open_console()
    tab.go("/topics")
    attempts = {
        "script": "const made = document.createElement('script'); made.src = 'data:,window.pwned=1'; "
        "document.head.append(made)",
        "markup": "document.body.innerHTML = '<b>x</b>'",
        "request": "fetch('http://localhost:1/')",
        "picture": "document.body.append(Object.assign(new Image(), {src: 'http://localhost:1/x'}))",
    }
    for name, attempt in attempts.items():
        tab.page.evaluate(f"() => {{ try {{ {attempt}; }} catch (error) {{ return String(error); }} }}")
        assert tab.page.evaluate("window.pwned") is None, name
    assert tab.page.locator("body > b").count() == 0
    assert sum("Content Security Policy" in each for each in tab.complaints) >= 2, tab.complaints


@pytest.mark.minutes
def test_keyboard_reaches_everything_and_shows_where_it_is(
    filled: MemoryPenstock, open_console: Callable[..., Tab]
) -> None:
    tab = open_console()
    tab.go("/topics")
    tab.page.keyboard.press("Tab")
    assert tab.page.evaluate("document.activeElement.textContent") == "Skip to the content"
    tab.page.keyboard.press("Enter")
    assert tab.page.evaluate("document.activeElement.id") == "content"
    tab.page.keyboard.press("/")
    assert tab.page.evaluate("document.activeElement.type") == "search"
    tab.go("/topics/orders/settings")
    wanted = tab.page.evaluate(
        "[...document.querySelectorAll('a, summary, input:not([type=hidden]), select, button, textarea')]"
        ".filter((each) => each.checkVisibility() && !each.disabled).length"
    )
    seen = set()
    for _ in range(wanted + 2):
        tab.page.keyboard.press("Tab")
        seen.add(tab.page.evaluate(NUMBER_OF_FOCUSED))
        outline = tab.page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
        is_body = tab.page.evaluate("document.activeElement === document.body")
        assert is_body or outline != "none"
    assert len(seen) >= wanted


@pytest.mark.minutes
@pytest.mark.parametrize("path", ["/subscriptions", "/audit", "/topics/orders/settings"])
def test_place_in_menu_and_tabs_is_in_view_on_a_phone(
    filled: MemoryPenstock, open_console: Callable[..., Tab], path: str
) -> None:
    tab = open_console(viewport=PHONE)
    tab.go(path)
    for place in tab.page.locator("nav [aria-current]").all():
        box = place.bounding_box()
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= PHONE["width"]
    assert tab.page.evaluate("scrollY") == 0


@pytest.mark.minutes
@pytest.mark.parametrize(
    ("path", "columns"),
    [
        ("/topics/orders/records?partition=0&at=oldest", ["Key", "Value", "Headers"]),
        ("/topics/orders/records", ["Partition", "Key", "Value"]),
        ("/dead-letters/orders.dead", ["Reason", "Value"]),
    ],
)
def test_values_and_menu_are_in_view_on_a_phone(
    filled: MemoryPenstock, open_console: Callable[..., Tab], path: str, columns: list[str]
) -> None:
    tab = open_console(viewport=PHONE)
    tab.go(path)
    seen = [*tab.page.locator("nav[aria-label=Pages] a").all()]
    for column in columns:
        cells = tab.page.locator(f"td[data-label='{column}']").all()
        assert cells
        seen += cells
    for each in seen:
        box = each.bounding_box()
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= PHONE["width"]
    heights = [each.bounding_box()["height"] for each in tab.page.locator("tbody tr").all()]
    assert min(heights) < 150, "a short record takes little room"
    assert tab.complaints == []


@pytest.mark.minutes
def test_live_page_shows_new_records_as_text(filled: MemoryPenstock, open_console: Callable[..., Tab]) -> None:
    tab = open_console()
    tab.go("/topics/orders/live")
    tab.page.get_by_text("live", exact=True).wait_for()
    with filled.producer() as producer:
        for text in HOSTILE:
            producer.send("orders", text, key=text, headers=[(text, b"x")], partition=1)
    tab.page.locator("tbody tr").nth(len(HOSTILE) - 1).wait_for()
    assert tab.page.locator("tbody img, tbody script, tbody h1").count() == 0
    assert tab.page.locator("tbody tr").last.locator("td").nth(3).inner_text() == HOSTILE[0]
    tab.page.get_by_role("button", name="Pause").click()
    tab.page.get_by_text("paused").wait_for()
    assert tab.complaints == []


@pytest.mark.minutes
def test_pages_work_without_script(filled: MemoryPenstock, open_console: Callable[..., Tab]) -> None:
    tab = open_console(java_script_enabled=False)
    for path in PAGES.values():
        tab.go(path)
        assert tab.page.locator("h1").count() == 1
    tab.go("/topics/orders/produce")
    tab.page.get_by_label("Value", exact=True).fill("by hand")
    tab.page.get_by_role("button", name="Send the record").click()
    assert "by hand" in tab.page.locator("pre").last.inner_text()
    tab.go("/topics/orders/settings")
    tab.page.locator("summary", has_text="Delete the topic").click()
    tab.page.get_by_label("Type orders to go on").locator("visible=true").fill("orders")
    tab.page.get_by_role("button", name="Delete the topic").click()
    assert [each.name for each in filled.admin().list_topics()] == ["orders.dead"]
    assert tab.complaints == []


@pytest.mark.minutes
def test_other_site_cannot_send_a_form_nor_read_a_page(
    filled: MemoryPenstock, console: RunningConsole, open_console: Callable[..., Tab]
) -> None:
    """A page of another origin, in the browser that has the cookie."""
    tab = open_console()
    cookies = tab.page.context.cookies()
    assert [(each["httpOnly"], each["sameSite"]) for each in cookies] == [(True, "Strict")]
    evil = tab.page.context.new_page()
    evil.route(
        "http://evil.example/",
        lambda route: route.fulfill(
            content_type="text/html",
            body=f"""
        <form method="post" action="{console.origin}/topics/orders/delete"><input name="confirm" value="orders"></form>
    """,
        ),
    )
    evil.goto("http://evil.example/")
    read = evil.evaluate(f"fetch('{console.origin}/topics', {{credentials: 'include'}}).then((a) => a.text(), String)")
    assert "orders" not in read
    evil.evaluate("document.forms[0].submit()")
    evil.wait_for_load_state()
    assert "not open here" in evil.locator("h1").inner_text()
    assert [each.name for each in filled.admin().list_topics()] == ["orders", "orders.dead"]
