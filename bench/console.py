"""Measures first paints of the console's pages in chromium, with many topics and groups.

It works on the service that commands find (PENSTOCK_URL, or the local one). It makes topics and groups of its own there
unless they exist. For each page it takes the time from the start of the navigation to the first paint: of the first
load, and the median and the worst of `--times` later ones. The overview's background readings go on meanwhile.
"""

import asyncio
import shutil
import statistics
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import click

from bench.report.recording import Report, reported
from bench.report.result import Row
from penstock import Admin, HttpTransport, Producer
from penstock.configuration import find_configuration
from penstock.console.server import ConsoleServer
from penstock.endpoint.listening import listen
from penstock.errors import TopicExistsError
from penstock.model import TopicPartition

PREFIX = "bench-console-"
PARTITIONS = 10
RECORDS = 2_000
THREADS = 8
PAINT_POLL_MS = 10
_ONE = f"/topics/{PREFIX}0000"
PAGES = (
    ("overview", "/"),
    ("topics", "/topics"),
    ("topics, searched", "/topics?q=bench&page=9"),
    ("a topic", _ONE),
    ("its newest records", f"{_ONE}/records"),
    ("its oldest records", f"{_ONE}/records?partition=0&at=oldest"),
    ("records of a key", f"{_ONE}/records?key=key-7"),
    ("its settings", f"{_ONE}/settings"),
    ("live records", f"{_ONE}/live"),
    ("groups", "/groups"),
    ("a group", f"/groups/{PREFIX}0000"),
    ("share groups", "/share-groups"),
    ("overview again", "/"),
)
FIRST_PAINT = "performance.getEntriesByName('first-paint').map((each) => each.startTime)[0]"


@click.command(help=__doc__)
@reported("console")
@click.option("--topics", default=1_000, show_default=True, type=click.IntRange(1), help="Of 10 partitions each.")
@click.option("--groups", default=200, show_default=True, type=click.IntRange(1), help="Consumer groups.")
@click.option("--times", default=10, show_default=True, type=click.IntRange(1), help="Loads of a page after the first.")
def main(report: Report, topics: int, groups: int, times: int) -> None:
    transport = HttpTransport(find_configuration())
    with report.console.status("making topics and groups"):
        fill(transport, topics, groups)
    report.conditions.append(
        "Chromium, console, emulator and functions share one machine. The first load of a page may meet functions "
        "without a warm instance."
    )
    rows: list[Row] = []
    with serving(transport) as link, tab(link) as page:
        origin = link.partition("/enter")[0]
        for title, path in PAGES:
            first, *later = [first_paint(page, origin + path) for _ in range(times + 1)]
            rows.append(
                {
                    "page": title,
                    "first load ms": round(first),
                    "p50 ms": round(statistics.median(later)),
                    "worst ms": round(max(later)),
                }
            )
    report.show("first paint", rows)


def fill(transport: HttpTransport, topics: int, groups: int) -> None:
    """Make what is not there yet."""
    admin = Admin(transport=transport)
    names = [f"{PREFIX}{number:04d}" for number in range(topics)]
    missing = sorted({*names} - {each.name for each in admin.list_topics()})

    def create(name: str) -> None:
        try:
            admin.create_topic(name, PARTITIONS)
        except TopicExistsError:
            return

    with ThreadPoolExecutor(THREADS) as threads:
        list(threads.map(create, missing))
        wanted = {f"{PREFIX}{number:04d}" for number in range(groups)} - {each.group for each in admin.list_groups()}
        place = TopicPartition(names[0], 0)
        list(threads.map(lambda group: admin.commit_group_offsets(group, {place: 0}, may_go_back=True), wanted))
    if names[0] in missing:
        with Producer(transport=transport) as producer:
            for number in range(RECORDS):
                producer.send(names[0], f'{{"number": {number}}}', key=f"key-{number % 100}", headers=[("type", b"x")])


@contextmanager
def serving(transport: HttpTransport) -> Iterator[str]:
    """A console in a thread: its link."""
    loop = asyncio.new_event_loop()
    links: list[str] = []
    listening = listen(0)
    server = ConsoleServer(transport, listening.getsockname()[1], links.append)
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    asyncio.run_coroutine_threadsafe(server.start(listening), loop).result()
    try:
        yield links[0]
    finally:
        asyncio.run_coroutine_threadsafe(server.close(), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


@contextmanager
def tab(link: str) -> Iterator[Any]:
    """A tab of chromium that came by the link."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        page = browser.new_page()
        page.add_init_script("window.setInterval = () => 0")  # no page loads itself again during a measurement
        page.goto(link)
        yield page
        browser.close()


def first_paint(page: Any, url: str) -> float:
    """Load the page, and wait until it has been painted."""
    page.goto(url)
    while (painted := page.evaluate(FIRST_PAINT)) is None:
        page.wait_for_timeout(PAINT_POLL_MS)
    return round(float(painted), 1)


if __name__ == "__main__":
    main()
