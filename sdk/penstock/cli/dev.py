"""`penstock dev`: a Penstock of your own on this machine, from the wheel alone."""

import asyncio
import contextlib
import errno
import json
import os
import re
import signal
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from penstock.cli.service import CommandError
from penstock.configuration import Configuration, StaticCredentials
from penstock.endpoint.listening import listen
from penstock.http.transport import HttpTransport
from penstock_core.errors import PenstockError
from penstock_core.log.inline import bounds_of_setting

if TYPE_CHECKING:
    import socket

    from penstock.console.server import ConsoleServer
    from penstock.dev.env_file import EnvFile
    from penstock.dev.functions import FunctionPlace
    from penstock.dev.service import DevService, NewTopic
    from penstock.http.sigv4 import Keys

DEFAULT_PORT = 4567
_PRINCIPAL = re.compile(r"[A-Za-z0-9_-]{1,64}")
_OTHER_FILES = ("local", "jobs")  # in .penstock


@click.command()
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=DEFAULT_PORT,
    show_default=True,
    help="The port on 127.0.0.1; 0 takes a free one.",
)
@click.option(
    "--data",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    help="Keep topics, records and offsets in this folder. Without it they are gone when the server stops.",
)
@click.option(
    "--topic",
    "topics",
    multiple=True,
    metavar="NAME[:PARTITIONS]",
    help="Make this topic, unless it exists. You may repeat it.",
)
@click.option(
    "--function",
    "functions",
    multiple=True,
    metavar="NAME=FILE.py:CALLABLE",
    help="Call this Python function, or NAME=MODULE:CALLABLE, as the Lambda function NAME. You may repeat it.",
)
@click.option(
    "--acl-default",
    type=click.Choice(["allow", "deny"]),
    default="allow",
    show_default=True,
    help="The decision about callers of --principal where no access rule is about them.",
)
@click.option(
    "--principal",
    "principals",
    multiple=True,
    metavar="NAME",
    help="Write keys of a user of this name to .penstock/NAME.env. You may repeat it.",
)
@click.option(
    "--token",
    "subjects",
    multiple=True,
    metavar="NAME",
    help="Write a token (JWT) of this subject to .penstock/NAME.env. You may repeat it.",
)
@click.option(
    "--keys-of",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    metavar="DIR",
    help="Take the keys of the server that runs in this folder: each may mirror topics of the other, by http://127.0.0.1.",
)
@click.option(
    "--inline-bytes-max",
    type=click.Choice(("0", "auto")),
    default="auto",
    show_default=True,
    help="The stage's setting: 0 puts small appends into zones, too.",
)
@click.option("--console/--no-console", "has_console", default=True, help="Serve the console too, on a free port.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object once the server answers.")
@click.option("--verbose", is_flag=True, help="Print a line for each request on stderr.")
def dev(
    port: int,
    data: Path | None,
    topics: tuple[str, ...],
    functions: tuple[str, ...],
    acl_default: str,
    principals: tuple[str, ...],
    subjects: tuple[str, ...],
    keys_of: Path | None,
    inline_bytes_max: str,
    has_console: bool,
    as_json: bool,
    verbose: bool,
) -> None:
    """Run a Penstock on this machine, with the service's own code, without AWS and without a checkout.

    It listens on 127.0.0.1 and answers requests that are signed (AWS Signature Version 4) with the keys that it writes
    to .penstock/local.env. All commands and clients in this folder or below find it by that file. Ctrl-C or SIGTERM
    stops it, and removes the file.

    Needs `pip install 'penstock[dev]'`. To run the deployed functions in an emulator of AWS, use `penstock local up` in
    a checkout.

    For example: penstock dev --data data --topic orders:6
    """
    try:
        from penstock.dev.env_file import EnvFile
        from penstock.dev.service import DevAccess, DevService, log_to_stderr
        from penstock.dev.targets import DELIVERIES_FILE
    except ModuleNotFoundError as error:
        raise click.ClickException(f"{error}: `penstock dev` needs `pip install 'penstock[dev]'`") from error
    log_to_stderr(verbose=verbose)
    env_file = EnvFile(Path.cwd())
    _check_names(principals, subjects)
    others = {name: EnvFile(Path.cwd(), name) for name in (*principals, *subjects)}
    access = DevAccess(denies_by_default=acl_default == "deny", principals=principals, subjects=subjects)
    if answering := env_file.answering():
        raise click.ClickException(
            f"a server answers at {answering}, which {env_file.path} names: stop it, or work in another folder"
        )
    wanted = [_new_topic(text) for text in topics]
    called = _functions(functions)
    keys = None if keys_of is None else _keys_of(keys_of)
    try:
        listening = listen(port)
    except OSError as error:
        raise click.ClickException(_port_error(port, error)) from error
    with listening:
        try:
            service = DevService(
                data,
                access,
                functions=called,
                deliveries=Path.cwd() / DELIVERIES_FILE,
                keys=keys,
                small=bounds_of_setting(None if inline_bytes_max == "auto" else int(inline_bytes_max)),
            )
            try:
                service.create(wanted)
                link = DevConsole(as_json=as_json) if has_console else None
                with _keys_written(service, listening.getsockname()[1], others):
                    asyncio.run(_run(service, listening, env_file, data, console=link, as_json=as_json))
            finally:
                service.close()
        except PenstockError as error:
            raise CommandError(error, as_json=as_json) from error
        except OSError as error:
            raise click.ClickException(f"{env_file.path} cannot be written: {error.strerror}") from error


def _keys_of(folder: Path) -> "Keys":
    """The keys of the server of a folder. Fails if none runs there."""
    from penstock.dev.env_file import EnvFile
    from penstock.http.sigv4 import Keys

    file = EnvFile(folder)
    if not file.answering():
        raise click.BadParameter(f"no server runs in {folder}: start it first", param_hint="--keys-of")
    try:
        told = dict(line.partition("=")[::2] for line in file.path.read_text().splitlines())
        return Keys(told["AWS_ACCESS_KEY_ID"], told["AWS_SECRET_ACCESS_KEY"])
    except (OSError, KeyError) as error:
        raise click.BadParameter(f"{file.path} tells no keys: {error!s:.200}", param_hint="--keys-of") from error


async def _run(
    service: "DevService",
    listening: "socket.socket",
    env_file: "EnvFile",
    data: Path | None,
    *,
    console: "DevConsole | None",
    as_json: bool,
) -> None:
    from penstock.dev.service import serve

    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        try:
            loop.add_signal_handler(number, stop.set)
        except NotImplementedError:  # on Windows
            signal.signal(number, lambda *_: loop.call_soon_threadsafe(stop.set))
    environment = service.environment(listening.getsockname()[1])

    def say() -> None:
        env_file.write(environment)
        ready = Ready(
            url=environment["PENSTOCK_URL"],
            env_file=env_file.path,
            data=data,
            console=None if console is None else console.link,
            functions={place.name: place.arn for place in service.functions},
        )
        try:
            ready.say(as_json=as_json)
        except BrokenPipeError:  # `| head`: the server goes on without its reader
            with open(os.devnull, "w") as nowhere:
                os.dup2(nowhere.fileno(), sys.stdout.fileno())

    try:
        if console is not None:
            await console.start(environment)
        await serve(service, listening, stop, on_ready=say)
    finally:
        env_file.remove(environment)
        if console is not None:
            await console.close()
    if service.failure is not None:
        raise click.ClickException(f"the server stops, because its data folder fails: {service.failure}")
    if not as_json:
        click.echo("Stopped.")


@contextlib.contextmanager
def _keys_written(service: "DevService", port: int, files: Mapping[str, "EnvFile"]) -> Iterator[None]:
    """Writes the files of the other callers, and removes them at the end."""
    environments = {name: service.environment(port, name) for name in files}
    try:
        for name, file in files.items():
            file.write(environments[name])
        yield
    finally:
        for name, file in files.items():
            file.remove(environments[name])


def _check_names(principals: tuple[str, ...], subjects: tuple[str, ...]) -> None:
    for hint, names in (("--principal", principals), ("--token", subjects)):
        for name in names:
            if not _PRINCIPAL.fullmatch(name) or name in _OTHER_FILES:
                raise click.BadParameter(
                    f"{name!r:.100}: give 1 to 64 of A-Z a-z 0-9 _ -, but not {' or '.join(_OTHER_FILES)}",
                    param_hint=hint,
                )
    if twice := {*principals} & {*subjects}:
        raise click.BadParameter(f"{min(twice)!r} is a --principal, too: give two names", param_hint="--token")


class DevConsole:
    """The console next to the server: it calls the server as a client does, with the keys of its environment."""

    def __init__(self, *, as_json: bool) -> None:
        self._as_json = as_json
        self._server: ConsoleServer | None = None
        self.link: str | None = None  # the first one

    async def start(self, environment: Mapping[str, str]) -> None:
        """Serve the pages from now on, on a free port."""
        from penstock.console.server import ConsoleServer

        configuration = Configuration(
            url=environment["PENSTOCK_URL"],
            region=environment["AWS_REGION"],
            credentials=StaticCredentials(environment["AWS_ACCESS_KEY_ID"], environment["AWS_SECRET_ACCESS_KEY"]),
            is_local=True,
        )
        listening = listen(0)
        self._server = ConsoleServer(HttpTransport(configuration), listening.getsockname()[1], self._say)
        await self._server.start(listening)

    async def close(self) -> None:
        """End the pages."""
        if self._server is not None:
            await self._server.close()

    def _say(self, link: str) -> None:
        if self.link is None:
            self.link = link
        elif not self._as_json:
            click.echo(f"To open the console again: {link}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Ready:
    """What the server says once it answers: `functions` are the ARNs by name."""

    url: str
    env_file: Path
    data: Path | None
    console: str | None
    functions: Mapping[str, str]

    def say(self, *, as_json: bool) -> None:
        """Print it, and a warning if the environment leads elsewhere."""
        if as_json:
            folder = None if self.data is None else str(self.data)
            facts = {"url": self.url, "env_file": str(self.env_file), "pid": os.getpid(), "data": folder}
            click.echo(json.dumps({**facts, "console": self.console, "functions": dict(self.functions)}))
        else:
            click.echo("\n".join(self._lines()))
        elsewhere = os.environ.get("PENSTOCK_URL")
        if elsewhere and elsewhere != self.url:
            warning = f"PENSTOCK_URL is set to {elsewhere!r:.200}, and goes before the file: unset it"
            click.echo(f"warning: {warning}", err=True)
        sys.stdout.flush()

    def _lines(self) -> Iterator[str]:
        kept = "in memory: all is gone when it stops" if self.data is None else f"with its data in {self.data}"
        yield f"Penstock runs at {self.url}, {kept}. Ctrl-C stops it."
        if self.console is not None:
            yield f"Look at it in your browser: {self.console}"
        for name, arn in self.functions.items():
            yield f"Function {name} is {arn}. Deliver a topic to it:"
            yield f"  penstock subscriptions create {name} TOPIC --lambda {name}"
        place = self.env_file.parent
        yield f"What it would send to SQS and EventBridge is in {place / 'deliveries.jsonl'}."
        yield f"Clients in {place.parent} and below find it by {self.env_file}. In a second terminal, there:"
        yield "  penstock topics create numbers --if-not-exists"
        yield "  seq 1 5 | penstock produce numbers"
        yield "  penstock consume numbers --max-records 5"


def _functions(given: tuple[str, ...]) -> "list[FunctionPlace]":
    from penstock.dev.functions import parse_function

    found: dict[str, FunctionPlace] = {}
    for text in given:
        try:
            place = parse_function(text)
        except PenstockError as error:
            raise click.BadParameter(error.message, param_hint="--function") from error
        if place.name in found:
            raise click.BadParameter(f"{place.name!r} is there twice: give each a name", param_hint="--function")
        found[place.name] = place
    return [*found.values()]


def _new_topic(text: str) -> "NewTopic":
    from penstock.dev.service import NewTopic

    name, colon, partitions = text.partition(":")
    if colon and not (partitions.isascii() and partitions.isdigit() and len(partitions) < 10):
        raise click.BadParameter(f"{text!r:.100}: give NAME or NAME:PARTITIONS", param_hint="--topic")
    return NewTopic(name=name, partitions=int(partitions or "1"))


def _port_error(port: int, error: OSError) -> str:
    if error.errno == errno.EADDRINUSE:
        return f"port {port} is taken by another program: give another one with --port, or --port 0 for a free one"
    return f"127.0.0.1:{port} cannot be listened on: {error.strerror}; give another port with --port"
