"""The common parts of the commands: how they reach the service, print, and fail."""

import difflib
import json
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from functools import update_wrapper
from typing import Any

import click

from penstock.cli.connection import CommandTransport, ServiceDownError, without_logs_of_failed_calls
from penstock.cli.tables import show_table
from penstock.errors import NotFoundError
from penstock.http.named_transport import TRANSPORT_NAMES, TransportName
from penstock.http.transport import Transport, open_transport
from penstock_core.errors import PenstockError
from penstock_core.text import escaped

_ABSENT = re.compile(r"^(?P<noun>topic|group|share group|subscription|schedule) '?(?P<name>[\w.-]+)'? does not exist")
TOKEN_FILE = click.option(
    "--token-file",
    metavar="FILE",
    help="The file with a token (JWT), in place of AWS keys. Also PENSTOCK_TOKEN_FILE.",
)


class CommandError(click.ClickException):
    """One line on stderr, or with --json the API's error object, and exit code 1."""

    def __init__(self, error: PenstockError, *, as_json: bool) -> None:
        super().__init__(str(error))
        self.as_json = as_json
        self._error = error

    def show(self, file: Any = None) -> None:
        """Print the error."""
        if self.as_json:
            click.echo(json.dumps({"error": self._error.to_json()}), file=file, err=True)
        else:
            click.echo(escaped(f"error: {' '.join(self.message.split())}"), file=file, err=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """The transport of a command, and how it prints: for people, or for programs.

    `transport_name` is the one that the command was given, None for that of the environment.
    """

    transport: Transport
    as_json: bool
    transport_name: TransportName | None = None

    def show(self, document: Any, *, title: str, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
        """Print `document` as one line of JSON, or the table."""
        if self.as_json:
            click.echo(json.dumps(document))
            return
        show_table(title, columns, rows)

    def say(self, document: Any, *lines: str) -> None:
        """Print `document` as one line of JSON, or the lines. A line feed in one of them is text of somebody."""
        click.echo(json.dumps(document) if self.as_json else "\n".join(map(escaped, lines)))


def service_command(command: Callable[..., None]) -> Callable[..., None]:
    """Adds --url, --region, --token-file and --json to a command. Its first argument is then a Service."""

    def with_service(
        url: str | None,
        region: str | None,
        token_file: str | None,
        transport: TransportName | None,
        as_json: bool,
        **options: Any,
    ) -> None:
        given = click.get_current_context().obj or transport  # a test's transport
        carrier = CommandTransport(
            lambda: open_transport(url, region, given, token_file=token_file), _ignore if as_json else _tell
        )
        try:
            with without_logs_of_failed_calls():
                command(Service(transport=carrier, as_json=as_json, transport_name=transport), **options)
        except PenstockError as error:
            raise CommandError(error if as_json else _with_likely_name(error, carrier), as_json=as_json) from error
        except ServiceDownError as down:
            raise CommandError(down.error, as_json=as_json) from down

    update_wrapper(with_service, command)
    click.option("--json", "as_json", is_flag=True, help="Print JSON, for programs.")(with_service)
    click.option("--region", metavar="REGION", help="The AWS region to sign for, if the URL does not tell it.")(
        with_service
    )
    TOKEN_FILE(with_service)
    click.option(
        "--transport",
        type=click.Choice(TRANSPORT_NAMES),
        help="What carries the calls; by default PENSTOCK_TRANSPORT, else auto.",
    )(with_service)
    click.option("--url", metavar="URL", help="The API's URL; by default PENSTOCK_URL, else the local service.")(
        with_service
    )
    return with_service


def _with_likely_name(error: PenstockError, transport: Transport) -> PenstockError:
    """The error of an unknown name, with the name that was likely meant. It lists the names by further calls."""
    absent = _ABSENT.search(error.message)
    if absent is None:
        return error
    noun, name = absent["noun"], absent["name"]
    kinds = [noun, *({"group", "share group"} - {noun} if "group" in noun else ())]
    try:
        names = {kind: _names(kind, transport) for kind in kinds}
    except PenstockError:  # of the list: the command has its own error
        return error
    near = difflib.get_close_matches(name, names[noun], 1)
    hint = f"did you mean {near[0]!r}?" if near else ""
    for kind in kinds[1:]:
        if name in names[kind]:
            hint = f"{name!r} is a {kind}: use `penstock {kind.replace(' ', '-')}s`"
    if not hint:
        return error
    return PenstockError(error.code, f"{noun} {name!r} does not exist: {hint}", maybe_applied=error.maybe_applied)


def _names(kind: str, transport: Transport) -> list[str]:
    from penstock.admin.admin import Admin  # only a command that fails needs it

    admin = Admin(transport=transport)
    if kind == "topic":
        return [each.name for each in admin.list_topics()]
    if kind == "subscription":
        return [each.name for each in admin.list_subscriptions()]
    if kind == "schedule":
        return [each.name for each in admin.list_schedules()]
    return [each.group for each in (admin.list_groups() if kind == "group" else admin.list_share_groups())]


def _tell(text: str) -> None:
    click.echo(escaped(" ".join(text.split())), err=True)


def _ignore(_: str) -> None:
    pass


IF_NOT_EXISTS = click.option("--if-not-exists", is_flag=True, help="If there is one, leave it as it is; exit with 0.")


def told_to_exist(service: Service, name: str, find: Callable[[str], Any]) -> bool:
    """Tell what `find` finds under the name, as of `--if-not-exists`. False if there is nothing."""
    try:
        found = find(name)
    except NotFoundError:
        return False
    service.say(asdict(found), f"{name} exists: nothing was changed")
    return True


def time_text(timestamp_ms: int) -> str:
    """A time as ISO 8601 in UTC, to the millisecond."""
    return datetime.fromtimestamp(timestamp_ms / 1_000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def parse_pairs(texts: Iterable[str], what: str) -> dict[str, str]:
    """`name=value` texts as a dict. Raises click.BadParameter."""
    pairs = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not (name and equals):
            raise click.BadParameter(f"{text!r}: give {what}")
        pairs[name] = value
    return pairs


def parse_offsets(texts: Iterable[str]) -> dict[int, int]:
    """`partition=offset` texts as numbers. Raises click.BadParameter."""
    pairs = parse_pairs(texts, "PARTITION=OFFSET")
    for text in (*pairs, *pairs.values()):
        if not (text.isascii() and text.isdigit()):
            raise click.BadParameter(f"{text!r} is not a number: give PARTITION=OFFSET")
    return {int(partition): int(offset) for partition, offset in pairs.items()}
