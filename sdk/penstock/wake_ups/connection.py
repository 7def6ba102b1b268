"""Keeps a Watch covered: one WebSocket to AppSync Events, opened again when it is lost. A procedure without I/O.

```
ask GET /v1/wake-ups -> open -> connection_init, ack -> subscribe to what is wanted -> hear -> lost
      ^                                                                                         |
      +-- wait, with full jitter: longer after each connection that did not last  <-------------+
```
- Each connection and each subscription is signed anew, with the credentials of that moment.
- While there is no connection, quiet partitions wait `SDK_WAKE_UP_HOLD_MS` for it, then they are read by long polls.
  The log says so once, and once more when wake-ups are back.
- A stage without wake-ups is asked again after `SDK_WAKE_UP_RETRY_MS`, and so is a refused channel.
"""

import logging
from collections.abc import Callable, Generator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import cast
from urllib.parse import urlsplit

from penstock.errors import NotConfiguredError
from penstock.http.http_message import HttpRequest, Response, json_document, json_request, misunderstood
from penstock.http.steps import Wait
from penstock.wake_ups import events
from penstock.wake_ups.events import Acknowledged, Endpoint, Refused, Subscribed, WakeUp
from penstock.wake_ups.watch import Leaf, Watch
from penstock.wake_ups.web_socket import LinkLostError, WebSocket
from penstock_core.backoff import full_jitter_ms
from penstock_core.errors import PenstockError
from penstock_core.limits import (
    SDK_WAKE_UP_ANSWER_MS_MAX,
    SDK_WAKE_UP_BACKOFF_MS,
    SDK_WAKE_UP_BACKOFF_MS_MAX,
    SDK_WAKE_UP_HOLD_MS,
    SDK_WAKE_UP_RETRY_MS,
    SDK_WAKE_UP_STABLE_MS,
)

_log = logging.getLogger("penstock.wake_ups")


@dataclass(frozen=True, slots=True, kw_only=True)
class Open:
    """Open a TCP connection, with TLS or without. Answered by nothing."""

    host: str
    port: int
    is_tls: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Write:
    """Send all of these bytes. Answered by nothing."""

    data: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Read:
    """Answered by the next bytes, or by none at `until_ms` and when something has changed."""

    until_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Shut:
    """Close the connection. Answered by nothing, and never an error."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sign:
    """Answered by the headers of a signed `POST https://<host>/event` with this body."""

    host: str
    body: str


# The driver throws OSError and LinkLostError where the connection is lost, and PenstockError for requests.
Effect = HttpRequest | Open | Write | Read | Shut | Sign | Wait
Outcome = Response | bytes | Mapping[str, str] | None
Steps = Generator[Effect, Outcome, None]


class WakeUps:
    """Calls `woken` with each wake-up that comes. `now_ms` is a monotonic clock, `chance` is uniform in [0, 1)."""

    def __init__(
        self,
        watch: Watch,
        woken: Callable[[WakeUp], None],
        *,
        now_ms: Callable[[], int],
        chance: Callable[[], float],
    ) -> None:
        self._watch = watch
        self._woken = woken
        self._now_ms = now_ms
        self._chance = chance
        self._endpoint: Endpoint | None = None
        self._failures = 0
        self._is_reported = False  # the log has said that the consumer polls

    def run(self) -> Steps:
        """Until the watch is closed."""
        while not self._watch.is_closed:
            if not self._watch.leaves:
                yield Wait(until_ms=self._now_ms() + SDK_WAKE_UP_RETRY_MS)
                continue
            try:
                yield from self._connected()
            except (PenstockError, OSError, LinkLostError, ValueError) as error:
                yield from self._pause(error)

    def _connected(self) -> Steps:
        """One connection, from its beginning to its end."""
        if self._endpoint is None:
            self._endpoint = yield from _find_endpoint()
            self._watch.is_absent = self._endpoint is None
        if self._endpoint is None:
            yield from self._do_without(logging.INFO, "this service has no wake-ups")
            return
        link = _Link(self._endpoint, self._watch, self._now_ms)
        try:
            yield from link.open()
            began_ms = self._now_ms()
            while not self._watch.is_closed:
                for event in (yield from link.step()):
                    self._woken(event)
                self._say_back()
                if self._now_ms() - began_ms >= SDK_WAKE_UP_STABLE_MS:
                    self._failures = 0
        finally:
            if self._watch.is_covering and self._failures == 0:
                self._watch.hold_until_ms = self._now_ms() + SDK_WAKE_UP_HOLD_MS
            self._watch.lost()
            yield from link.shut()

    def _pause(self, error: Exception) -> Steps:
        """After a failure: wait before the next try."""
        self._endpoint = None  # it may have moved
        is_final = isinstance(error, NotConfiguredError) or (
            isinstance(error, PenstockError) and not error.code.is_retriable
        )
        if is_final:
            yield from self._do_without(logging.WARNING, str(error))
            return
        self._failures += 1
        if self._failures > 1:
            self._say(logging.WARNING, f"there is no connection for wake-ups ({error})")
        jitter_ms = full_jitter_ms(
            self._failures - 1, SDK_WAKE_UP_BACKOFF_MS, SDK_WAKE_UP_BACKOFF_MS_MAX, self._chance()
        )
        yield from self._sleep(self._now_ms() + int(jitter_ms))

    def _do_without(self, level: int, why: str) -> Steps:
        self._watch.hold_until_ms = 0
        self._say(level, why)
        yield from self._sleep(self._now_ms() + SDK_WAKE_UP_RETRY_MS)

    def _sleep(self, until_ms: int) -> Steps:
        while not self._watch.is_closed and self._now_ms() < until_ms:
            yield Wait(until_ms=until_ms)

    def _say(self, level: int, why: str) -> None:
        if not self._is_reported:
            self._is_reported = True
            _log.log(level, "%s: the consumer waits by long polls, and tries again later", why)

    def _say_back(self) -> None:
        if self._is_reported and self._watch.is_covering:
            self._is_reported = False
            _log.info("wake-ups come again: the consumer has ended its long polls")


class _Link:
    """One connection: its WebSocket, and the subscriptions that it has, has asked for, or was refused."""

    def __init__(self, endpoint: Endpoint, watch: Watch, now_ms: Callable[[], int]) -> None:
        self._endpoint = endpoint
        self._watch = watch
        self._now_ms = now_ms
        self._socket: WebSocket | None = None
        self._timeout_ms = SDK_WAKE_UP_ANSWER_MS_MAX
        self._heard_ms = 0
        self._ids = 0
        self._leaves: dict[str, Leaf] = {}  # by the subscription's id: what was asked for, or is there
        self._asked_ms: dict[str, int] = {}  # those that are not answered yet
        self._refused_ms: dict[Leaf, int] = {}

    def open(self) -> Steps:
        """Open it, and wait for the acknowledgement. Raises LinkLostError, OSError and PenstockError."""
        url = urlsplit(self._endpoint.url)
        is_tls = url.scheme == "wss"
        headers = yield from self._sign(events.CONNECT_BODY)
        socket = WebSocket(self._endpoint.url, self._endpoint.realtime_host, events.subprotocols(headers))
        yield Open(host=url.hostname or "", port=url.port or (443 if is_tls else 80), is_tls=is_tls)
        self._socket = socket
        self._heard_ms = self._now_ms()
        deadline_ms = self._heard_ms + SDK_WAKE_UP_ANSWER_MS_MAX
        yield from self._flush()
        while not socket.is_open:
            yield from self._read(deadline_ms)
        socket.send(events.INIT)
        yield from self._flush()
        while True:
            for event in (yield from self._read(deadline_ms)):
                if isinstance(event, Acknowledged):
                    self._timeout_ms = event.timeout_ms
                    return

    def step(self) -> Generator[Effect, Outcome, list[WakeUp]]:
        """Bring the subscriptions up to date, then wait for messages. The wake-ups that came."""
        yield from self._subscribe()
        if self._watch.is_closed:
            return []
        woken: list[WakeUp] = []
        for event in (yield from self._read(self._due_ms())):
            if isinstance(event, WakeUp):
                woken.append(event)
            elif isinstance(event, Subscribed) and self._asked_ms.pop(event.subscription_id, None) is not None:
                self._watch.subscribed(self._leaves[event.subscription_id])
            elif isinstance(event, Refused) and event.subscription_id is not None:
                self._refused(event.subscription_id, event.reason)
        now_ms = self._now_ms()
        if any(now_ms >= asked_ms + SDK_WAKE_UP_ANSWER_MS_MAX for asked_ms in self._asked_ms.values()):
            raise LinkLostError("a subscription was not answered")
        return woken

    def shut(self) -> Steps:
        """Say goodbye, if the other side still hears it, and close the connection."""
        if self._socket is not None:
            self._socket.close()
            with suppress(OSError, LinkLostError):
                yield from self._flush()
        yield Shut()

    def _subscribe(self) -> Steps:
        """Ask for channels that are wanted, first, then leave those that are not."""
        while True:  # each signature takes time, in which the watch may change
            wanted, had = self._watch.leaves, set(self._leaves.values())
            now_ms = self._now_ms()
            missing = sorted(leaf for leaf in wanted - had if now_ms >= self._refused_ms.get(leaf, 0))
            if not missing or self._watch.is_closed:
                break
            topic_id, last = missing[0]
            channel = f"/{self._endpoint.namespace}/{topic_id}/{last}"
            headers = yield from self._sign(events.subscribe_body(channel))
            self._ids += 1
            subscription_id = str(self._ids)
            self._leaves[subscription_id] = missing[0]
            self._asked_ms[subscription_id] = self._now_ms()
            self._web_socket().send(events.subscribe(subscription_id, channel, headers))
            yield from self._flush()
        for subscription_id in [each for each, leaf in self._leaves.items() if leaf not in self._watch.leaves]:
            if subscription_id not in self._asked_ms:
                self._watch.unsubscribed(self._leaves.pop(subscription_id))
                self._web_socket().send(events.unsubscribe(subscription_id))
        yield from self._flush()

    def _refused(self, subscription_id: str, reason: str) -> None:
        if self._asked_ms.pop(subscription_id, None) is not None:
            leaf = self._leaves.pop(subscription_id)
            self._refused_ms[leaf] = self._now_ms() + SDK_WAKE_UP_RETRY_MS
            self._watch.hold_until_ms = 0
            _log.warning("no wake-ups of %s/%s, so its partitions are polled: %s", *leaf, reason)

    def _due_ms(self) -> int:
        """When there is something to do, if nothing comes."""
        asked = [asked_ms + SDK_WAKE_UP_ANSWER_MS_MAX for asked_ms in self._asked_ms.values()]
        again = [self._refused_ms[leaf] for leaf in self._watch.leaves & self._refused_ms.keys()]
        return min([self._heard_ms + self._timeout_ms, *asked, *again])

    def _read(self, until_ms: int) -> Generator[Effect, Outcome, list[events.Event]]:
        data = cast(bytes, (yield Read(until_ms=until_ms)))
        now_ms = self._now_ms()
        if data:
            self._heard_ms = now_ms
        elif now_ms >= self._heard_ms + self._timeout_ms:
            raise LinkLostError(f"nothing was heard for {self._timeout_ms} ms")
        if not data:
            return []
        try:
            texts = self._web_socket().receive(data)
        finally:
            yield from self._flush()  # pongs, and the answer to a close
        found = [event for text in texts for event in events.parse(text)]
        for each in found:
            if isinstance(each, Refused) and each.subscription_id is None:
                raise LinkLostError(f"the connection was refused: {each.reason}")
        return found

    def _flush(self) -> Steps:
        data = self._web_socket().take_output()
        if data:
            yield Write(data=data)

    def _sign(self, body: str) -> Generator[Effect, Outcome, Mapping[str, str]]:
        return cast(Mapping[str, str], (yield Sign(host=self._endpoint.host, body=body)))

    def _web_socket(self) -> WebSocket:
        assert self._socket is not None
        return self._socket


def _find_endpoint() -> Generator[Effect, Outcome, Endpoint | None]:
    """Ask the service. Raises its errors, and ValueError for an answer that makes no sense."""
    request = json_request("GET", "/v1/wake-ups")
    document = json_document(request, cast(Response, (yield request)))
    if "realtime" not in document:
        raise misunderstood(request)
    return events.parse_endpoint(document)
