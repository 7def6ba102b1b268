"""First paints of the console's pages in chromium, with many topics and groups: `python -m bench.console`.

It works on the service that commands find (PENSTOCK_URL, or the local one). It makes topics and groups of its own there
unless they exist. For each page it prints a line of JSON: the time from the start of the navigation to the first paint,
the best and the worst of `--times` loads, after one load that does not count.
"""

import asyncio
import json
import shutil
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import click

from penstock import Admin, HttpTransport, Producer
from penstock.configuration import find_configuration
from penstock.console.server import ConsoleServer, listen
from penstock.errors import TopicExistsError
from penstock.model import TopicPartition

PREFIX = "bench-console-"
PARTITIONS = 10
RECORDS = 2_000
THREADS = 8
PAINT_POLL_MS = 10
FIRST_PAINT = "performance.getEntriesByName('first-paint').map((each) => each.startTime)[0]"


@click.command()
@click.option("--topics", default=1_000, show_default=True)
@click.option("--groups", default=200, show_default=True)
@click.option("--times", default=5, show_default=True)
@click.option("--path", "paths", multiple=True, help="A page; by default those of topics and records.")
def main(topics: int, groups: int, times: int, paths: tuple[str, ...]) -> None:
    """Measure first paints."""
    transport = HttpTransport(find_configuration())
    fill(transport, topics, groups)
    one = f"{PREFIX}0000"
    pages = paths or (
        "/",
        "/topics",
        "/topics?q=bench&page=9",
        f"/topics/{one}",
        f"/topics/{one}/records",
        f"/topics/{one}/records?partition=0&at=oldest",
        f"/topics/{one}/records?key=key-7",
        f"/topics/{one}/settings",
        f"/topics/{one}/live",
        "/groups",
        f"/groups/{PREFIX}0000",
    )
    with serving(transport) as link, tab(link) as page:
        origin = link.partition("/enter")[0]
        for path in pages:
            paints = [first_paint(page, origin + path) for _ in range(times + 1)][1:]
            click.echo(json.dumps({"page": path, "ms_min": min(paints), "ms_max": max(paints), "times": times}))


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
