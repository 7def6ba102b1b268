"""`penstock console`: pages on this machine that call the service with your credentials."""

import asyncio
import json
import os
import signal
import sys
import webbrowser
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

import click

from penstock.cli.completion import complete_topics
from penstock.cli.jobs import DEFAULT_STACK, JobPlaces
from penstock.cli.local import find_checkout
from penstock.cli.metrics import address_of, metrics_server
from penstock.cli.service import TOKEN_FILE, CommandError
from penstock.cli.trace import parse_place
from penstock.configuration import caller_configuration
from penstock.endpoint.listening import listen
from penstock.http.transport import HttpTransport, Transport
from penstock.jobs.model import JobPlace
from penstock.local_files import is_loopback
from penstock.system import wall_clock_ms
from penstock_core.errors import PenstockError

if TYPE_CHECKING:
    import socket

    from penstock.console.account import AccountFacts
    from penstock.console.server import ConsoleServer

_PORT_MAX = 65_535


@click.command()
@click.argument("place", required=False, metavar="[TOPIC/PARTITION/OFFSET]", shell_complete=complete_topics)
@click.option("--port", type=click.IntRange(0, _PORT_MAX), default=0, help="The port on 127.0.0.1; else a free one.")
@click.option("--no-open", is_flag=True, help="Print the link, and open no browser.")
@click.option("--url", metavar="URL", help="The API's URL; by default PENSTOCK_URL, else the local service.")
@click.option("--region", metavar="REGION", help="The AWS region to sign for, if the URL does not tell it.")
@TOKEN_FILE
@click.option("--stack", metavar="STACK", help="The stack whose alarms and costs to show; else PENSTOCK_STACK.")
@click.option("--metrics", metavar="HOST:PORT", help="Answer Prometheus there too, at /metrics.")
@click.option("--json", "as_json", is_flag=True, help="Print the link as JSON, for programs.")
def console(
    place: str | None,
    port: int,
    no_open: bool,
    url: str | None,
    region: str | None,
    token_file: str | None,
    stack: str | None,
    metrics: str | None,
    as_json: bool,
) -> None:
    """Show topics, records, consumers and the state of the service in your browser.

    With TOPIC/PARTITION/OFFSET it opens the page of that record, with your rights, as the page tells others to do.

    The pages call the service with your own credentials, and nothing is deployed. The console listens on 127.0.0.1 and
    lets in only the browser that opens its link. Each link works once; the terminal shows the next one. Ctrl-C stops
    the console. With a token, the pages of what needs AWS keys say so, and there are no alarms, costs and jobs.

    Needs `pip install 'penstock[console]'`.

    For example: penstock console --port 8080
    """
    try:
        from penstock.console.server import ConsoleServer
    except ModuleNotFoundError as error:
        raise click.ClickException(f"{error}: `penstock console` needs `pip install 'penstock[console]'`") from error
    metrics_place = None if metrics is None else address_of(metrics, "--metrics")
    first_path = "/" if place is None else _path_of_record(place)
    given = click.get_current_context().obj  # a test's transport
    name = stack or os.environ.get("PENSTOCK_STACK") or DEFAULT_STACK
    try:
        reached = _Reached(transport=given) if given is not None else _reach(url, region, token_file, name)
    except PenstockError as error:
        raise CommandError(error, as_json=as_json) from error
    try:
        listening = listen(port)
    except OSError as error:
        raise click.BadParameter(f"{port} cannot be taken: {error.strerror}", param_hint="--port") from error
    links = Links(as_json=as_json, is_opening=not no_open)
    job_places = _job_places(name, region, reached)
    with listening:
        port = listening.getsockname()[1]
        server = ConsoleServer(
            reached.transport,
            port,
            links.say,
            read_account=reached.read_account,
            job_places=job_places,
            is_local=reached.is_local,
            first_path=first_path,
        )
        with _metrics(server, metrics_place, links):
            asyncio.run(_serve(server, listening))


def _path_of_record(place: str) -> str:
    from penstock.console.page import path_of

    topic, partition, offset = parse_place((place,))
    return path_of("topics", topic, "records", partition, offset)


def _metrics(server: "ConsoleServer", place: tuple[str, int] | None, links: "Links") -> AbstractContextManager[object]:
    """Answers Prometheus by the readings of the overview, and its own where nobody looks at that."""
    if place is None:
        return nullcontext()
    answering = metrics_server(server.memory.figures.collector, place, "--metrics")
    links.metrics_url = answering.url
    return answering.in_background()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Reached:
    """The transport, and what asks AWS of the stack; None for a local service and a caller without AWS keys."""

    transport: Transport
    read_account: Callable[[], "AccountFacts"] | None = None
    is_local: bool = True


def _job_places(stack: str, region: str | None, reached: _Reached) -> dict[str, Callable[[], JobPlace]]:
    """The places that run jobs: this machine in a checkout, else those of the deployed stack."""
    places = JobPlaces(stack=stack, region=region, as_json=False)
    if not reached.is_local:
        if reached.read_account is None:
            return {}
        return {"emr": lambda: places.open("emr"), "glue": lambda: places.open("glue")}
    try:
        find_checkout()
    except click.ClickException:
        return {}
    return {"local": lambda: places.open("local")}


def _reach(url: str | None, region: str | None, token_file: str | None, stack: str) -> _Reached:
    """Raises NotConfiguredError."""
    from penstock.console.account import AccountReader

    configuration = caller_configuration(url, region, token_file)
    if configuration.tokens is not None:
        configuration.tokens.current()  # a file that is not there is told now, not on each page
    transport, is_local = HttpTransport(configuration), is_loopback(configuration.url)
    if is_local or configuration.tokens is not None:
        return _Reached(transport=transport, is_local=is_local)

    @cache
    def client(service: str) -> Any:
        from penstock.jobs.deployed import client  # botocore takes 0.1 s, which a local console need not wait for

        return client(service, configuration.region)

    reader = AccountReader(client, stack, configuration.url)
    return _Reached(transport=transport, read_account=lambda: reader.read(wall_clock_ms() / 1_000), is_local=False)


class Links:
    """Says each link that opens the console. The first one is for programs, too, and may open the browser."""

    def __init__(self, *, as_json: bool, is_opening: bool) -> None:
        self._as_json = as_json
        self._is_opening = is_opening
        self._is_first = True
        self.metrics_url: str | None = None

    def say(self, link: str) -> None:
        """Print the link."""
        if self._as_json and self._is_first:
            click.echo(json.dumps({"url": link, **({"metrics": self.metrics_url} if self.metrics_url else {})}))
        elif not self._as_json:
            if self._is_first and self.metrics_url:
                click.echo(f"Metrics are at {self.metrics_url}")
            click.echo(f"The console is at {link}" if self._is_first else f"To open it again: {link}")
        sys.stdout.flush()
        if self._is_first and self._is_opening:
            webbrowser.open(link)
        self._is_first = False


async def _serve(server: "ConsoleServer", listening: "socket.socket") -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        try:
            loop.add_signal_handler(number, stop.set)
        except NotImplementedError:  # on Windows
            signal.signal(number, lambda *_: loop.call_soon_threadsafe(stop.set))
    try:
        await server.start(listening)
        await stop.wait()
    finally:
        await server.close()
