"""The names of the transports, and the choice between them: the argument, then PENSTOCK_TRANSPORT, then `auto`.

`http` is built in. The module of another one is loaded by its name, when a client asks for it. So the SDK imports
neither the service nor a client of AWS for programs that call the API (docs/adr/0063). `auto` is HTTP where nothing
else can be: for a caller with tokens, and for a service that is not on AWS.

A client of several stages, of which one mirrors the other, goes to the one that takes appends (docs/protocol/mirrors).
"""

import importlib
import json
import logging
import os
from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Any, Literal, get_args

from penstock.errors import NotConfiguredError
from penstock.http.http_message import JSON_TYPE, Response
from penstock_core.errors import ErrorCode

TRANSPORT = "PENSTOCK_TRANSPORT"  # an environment variable
TransportName = Literal["auto", "http", "lambda", "embedded"]
AUTO: TransportName = "auto"
HTTP: TransportName = "http"
LAMBDA: TransportName = "lambda"
TRANSPORT_NAMES: tuple[TransportName, ...] = get_args(TransportName)
CARRIER_NAMES: tuple[TransportName, ...] = TRANSPORT_NAMES[1:]  # `auto` has no way of its own

_MODULES: Mapping[TransportName, str] = {
    "auto": "penstock.transports.by_auto",
    "lambda": "penstock.transports.by_lambda",
    "embedded": "penstock.transports.embedded",
}
_ASYNC_MODULES: Mapping[TransportName, str] = {
    **_MODULES,
    "auto": "penstock.transports.async_by_auto",
    "lambda": "penstock.transports.async_by_lambda",
}
_EXTRAS: Mapping[TransportName, str] = {"auto": "async", "lambda": "async", "embedded": "embedded"}


def chosen_name(
    given: TransportName | None, url: str | None, *, has_token: bool = False, environ: Mapping[str, str] = os.environ
) -> TransportName:
    """The transport's name. Without `given`, a token that is an argument means `http`, and a URL `http` or `auto`.

    Raises NotConfiguredError for a name that no transport has, and for a URL or a token with one that takes none.
    """
    if given is None and has_token:
        return HTTP
    name = given or environ.get(TRANSPORT) or AUTO
    if given is None and url is not None and name != HTTP:
        return AUTO
    for known in TRANSPORT_NAMES:
        if name == known:
            break
    else:
        source = "transport" if given else TRANSPORT
        raise NotConfiguredError(f"{source}={name!r:.100}: use one of {', '.join(TRANSPORT_NAMES)}")
    if known not in (HTTP, AUTO) and (url is not None or has_token):
        raise NotConfiguredError(
            f"transport={known!r} beside a URL or a token: both are for {HTTP!r}, so leave one of them out"
        )
    return known


def module_of(name: TransportName, *, is_async: bool = False) -> Any:
    """The module that opens the transport: by `open_transport(region)`, and with `is_async` by `open_async_transport`.

    Raises NotConfiguredError if a package is missing that an extra of Penstock brings.
    """
    try:
        return importlib.import_module((_ASYNC_MODULES if is_async else _MODULES)[name])
    except ModuleNotFoundError as error:
        raise NotConfiguredError(
            f"{error}: transport={name!r} needs `pip install 'penstock[{_EXTRAS[name]}]'`"
        ) from error


_ELSEWHERE = {ErrorCode.MOVED.name: "url", ErrorCode.MIRRORED.name: "source"}  # the fact that tells where to go
_APPENDED = b'"base_offset"'  # in answers to appends
_FAILURES_MAX = 3  # calls in a row without an answer, before the next stage is tried
_log = logging.getLogger("penstock.stages")


class StageFate(Enum):
    """The state of a reader's topics at a stage."""

    OPEN = "open"
    MOVED = "moved"
    """One of them was moved away: the rest may be read here."""
    CLOSED = "closed"
    """It mirrors one of them, or does not have it. Readers of the source must not begin here."""
    AWAY = "away"


def stage_to_read(fates: Mapping[int, StageFate], at: int) -> int:
    """The stage that a reader of several goes to: one that is open, else one with a rest, else one that may come back.

    The one that it reads now comes first among equals.
    """
    for wanted in (StageFate.OPEN, StageFate.MOVED, StageFate.AWAY):
        for number in sorted(fates, key=lambda each: (each != at, each)):
            if fates[number] is wanted:
                return number
    return at


def offset_within(offset: int, end: int | None) -> int:
    """The offset, or the end of what a promotion has of the log: other records come behind it."""
    return offset if end is None else min(offset, end)


class StageChoice:
    """The stage that a client of several goes to: the next one, once this one says that another takes the appends.

    A refusal becomes an error that clients try again. So the retry goes there, with the same numbers of the producer:
    what a mirror has already is not appended twice. It goes back and forth while neither takes appends. `urls` are the
    only stages that a client goes to, whatever an answer says.

    A stage that gave no answer is a source that was lost, once another one takes appends. If it comes back, its log is
    another one. So the client does not go there when the other one gives no answer, unless that has named it.
    """

    def __init__(self, urls: Sequence[str]) -> None:
        self._urls = [url.rstrip("/") for url in urls]
        self._failures = 0
        self._silent = set[int]()
        self._lost = set[int]()
        self.at = 0

    def failed(self, at: int) -> None:
        """Stage `at` gave no answer."""
        self._failures += self.at == at
        if self._failures >= _FAILURES_MAX:
            self._leave(at, None, "it does not answer", is_silent=True)

    def judged(self, at: int, response: Response) -> Response:
        """The answer of stage `at`: as it is, or with an error that is tried again in place of each that names another.

        Answers to appends tell an error for each partition.
        """
        self._failures = 0 if self.at == at else self._failures
        if self._silent and self.at == at and _APPENDED in response.body:
            self._lost |= self._silent
        if response.status not in (200, 409) or not any(f'"{code}"'.encode() in response.body for code in _ELSEWHERE):
            return response
        try:
            told = json.loads(response.body)
        except ValueError:
            return response  # batches
        parts = told.get("results", []) if response.status == 200 else [told]
        errors = [each["error"] for each in parts if isinstance(each, dict) and isinstance(each.get("error"), dict)]
        moved = [error for error in errors if error.get("code") in _ELSEWHERE]
        if not moved:
            return response
        self._leave(at, moved[0].get(_ELSEWHERE[moved[0]["code"]]), moved[0].get("message", ""))
        for error in moved:
            error["code"] = ErrorCode.STORAGE_UNAVAILABLE.name
        status = 200 if response.status == 200 else ErrorCode.STORAGE_UNAVAILABLE.http_status
        return Response(status, {**response.headers, "Content-Type": JSON_TYPE}, json.dumps(told).encode())

    def _leave(self, at: int, to: object, why: str, *, is_silent: bool = False) -> None:
        """Goes on at the stage `to`, if it is one of the client's, else at the next. Nothing if it has left already."""
        if self.at != at:
            return
        url = str(to or "").rstrip("/")
        known = self._urls.index(url) if url in self._urls else at
        if is_silent:
            self._silent.add(at)
        else:  # it takes no appends, so it has taken over from none
            self._silent.clear()
            self._lost.clear()
        count = len(self._urls)
        others = [each % count for each in range(at + 1, at + count) if each % count not in self._lost]
        self.at = known if known != at or not others else others[0]
        self._failures = 0
        if self.at == at:
            return
        _log.warning("going on at %s, not at %s: %s", self._urls[self.at], self._urls[at], why)
