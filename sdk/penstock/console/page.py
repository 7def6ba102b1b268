"""A page of the console: its routes, the request that it gets, and the answer that it gives."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal
from urllib.parse import quote, urlencode

from penstock.admin.admin import Admin
from penstock.console.account import AccountFacts
from penstock.console.background import Background, Lists
from penstock.console.figures import Figures
from penstock.errors import InvalidError
from penstock.http.transport import Transport
from penstock.jobs.model import JobPlace
from penstock_core.errors import ErrorCode, shown

_NUMBER_DIGITS_MAX = 19  # of the largest offset


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """Figures and lists that threads read. `account` is None for a local service, and for a caller without AWS keys.

    `job_places` open the places that run jobs, by name.
    """

    figures: Figures
    lists: Lists
    account: Background[AccountFacts] | None = None
    is_local: bool = True
    job_places: Mapping[str, Callable[[], JobPlace]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """One request of a page: the parts of its path, its query, its form, and the way to the service.

    `prompt` is the transport of a page, whose failed connections are told at once. Producers and consumers take
    `transport`, and try again. `memory` is the console's. `said` is what the last action has done, which the frame of
    the page shows.
    """

    transport: Transport
    prompt: Transport
    memory: Memory
    url_path: str
    now_ms: int
    path: Mapping[str, str] = field(default_factory=dict)
    query: Mapping[str, str] = field(default_factory=dict)
    form: Mapping[str, str] = field(default_factory=dict)
    said: str | None = None

    @property
    def admin(self) -> Admin:
        """A client with the user's own credentials."""
        return Admin(transport=self.prompt)

    def number(self, name: str, default: int) -> int:
        """A whole number of the form or the query. Raises InvalidError for other text."""
        text = (self.form.get(name) or self.query.get(name, "")).strip()
        if not text:
            return default
        if not (text.isascii() and text.isdigit() and len(text) <= _NUMBER_DIGITS_MAX):
            raise InvalidError(ErrorCode.INVALID_REQUEST, f"{name}={shown(text)}: give a whole number from 0")
        return int(text)

    def word(self, name: str) -> str:
        """A text of the form or the query, without spaces around it; empty if it is not given."""
        return (self.form.get(name) or self.query.get(name, "")).strip()

    def check_name(self, name: str) -> None:
        """Raises InvalidError unless the user has typed the name of what the form destroys or moves."""
        typed = self.form.get("confirm", "").strip()
        if typed != name:
            raise InvalidError(
                ErrorCode.INVALID_REQUEST,
                f"you typed {shown(typed)}, and the name is {shown(name)}: nothing was changed",
            )

    def url(self, **changes: object) -> str:
        """The URL of this request with some values of its query changed; None leaves a value out."""
        return url(self.url_path, **{**self.query, **changes})


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """The answer of a GET: a template and its facts. `title` is the page's heading and the window's title."""

    template: str
    title: str
    facts: Mapping[str, object] = field(default_factory=dict)
    status: int = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Moved:
    """The answer of a POST: the browser goes to the path `to`, where the page says `said` once."""

    to: str
    said: str


Event = Mapping[str, object]  # one message of a stream, as JSON
Answer = Shown | Moved


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """A method and a path such as `/topics/{topic}`, and the function that answers. It runs in a thread."""

    method: Literal["GET", "POST"]
    path: str
    answer: Callable[[Asked], Answer]


@dataclass(frozen=True, slots=True, kw_only=True)
class Stream:
    """A GET whose answer goes on: server-sent events. None among them keeps the connection alive."""

    path: str
    events: Callable[[Asked], Iterator[Event | None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """A page, or several that belong together. `menu` is its name in the menu, None to leave it out."""

    menu: str | None
    path: str
    routes: tuple[Route, ...]
    streams: tuple[Stream, ...] = ()


def url(path: str, **query: object) -> str:
    """The path with a query. None and empty values are left out."""
    given = {name: str(value) for name, value in query.items() if value not in (None, "")}
    return f"{path}?{urlencode(given)}" if given else path


def path_of(*parts: str | int) -> str:
    """A path of these parts, each quoted: names may hold anything."""
    return "".join(f"/{quote(str(part), safe='')}" for part in parts)
