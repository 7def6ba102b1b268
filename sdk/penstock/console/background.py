"""A value that takes long to read: a thread reads it anew when somebody looks and the last one is old.

The lists of the overview and of their own pages: as they are now, or as they were when the service takes long.

The first call of each function of an unused service takes a second or more. Pages do not wait for that.

A transport that gives up at once if nothing answers: a person waits for the page.
"""

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from penstock.admin.admin import Admin
from penstock.errors import ConnectionFailedError
from penstock.http.abilities import event_signer
from penstock.http.http_message import Response
from penstock.http.transport import Transport
from penstock.model import Topic, Zone
from penstock.model.groups import Group
from penstock.model.push import Subscription
from penstock.model.share import ShareGroup
from penstock.system import monotonic_ms
from penstock_core.errors import PenstockError

Value = TypeVar("Value")
Seen_co = TypeVar("Seen_co", covariant=True)
logger = logging.getLogger("penstock.console")


class ServiceDownError(Exception):
    """The service did not answer. It is no PenstockError: no client tries again."""

    def __init__(self, error: ConnectionFailedError) -> None:
        super().__init__(str(error))
        self.error = error


class PromptTransport:
    """A Transport whose failed connections are not tried again."""

    def __init__(self, inner: Transport) -> None:
        self._inner = inner

    def call(
        self, method: str, path: str, query: Mapping[str, str], headers: Mapping[str, str], body: bytes
    ) -> Response:
        """Send one request. Raises ServiceDownError if there is no answer."""
        try:
            return self._inner.call(method, path, query, headers, body)
        except ConnectionFailedError as error:
            raise ServiceDownError(error) from error

    def event_headers(self, host: str, body: bytes) -> Mapping[str, str]:
        """Signed headers for wake-ups. Raises NotConfiguredError if the inner transport cannot sign them."""
        return event_signer(self._inner).event_headers(host, body)

    def close(self) -> None:
        """Close the inner transport."""
        self._inner.close()


@dataclass(frozen=True, slots=True, kw_only=True)
class Look(Generic[Seen_co]):
    """The value as it was read last, its age, and what the last try failed with. All are None before the first try.

    `down` is the last try's error if the service did not answer it.
    """

    value: Seen_co | None
    age_ms: int | None
    error: str | None
    is_reading: bool
    down: ServiceDownError | None = None


class Background(Generic[Value]):
    """One such value. `interval_ms` says how long a value is good, by default not at all. Several threads may look."""

    def __init__(
        self,
        read: Callable[[], Value],
        interval_ms: Callable[[], int] = lambda: 0,
        *,
        clock_ms: Callable[[], int] = monotonic_ms,
    ) -> None:
        self._read = read
        self._interval_ms = interval_ms
        self._clock_ms = clock_ms
        self._changed = threading.Condition()
        self._is_reading = False
        self._tried_at_ms: int | None = None
        self._read_at_ms: int | None = None
        self._value: Value | None = None
        self._error: str | None = None
        self._down: ServiceDownError | None = None

    def begin(self) -> None:
        """Read the value anew if it is old and not being read. Returns at once."""
        with self._changed:
            is_old = self._tried_at_ms is None or self._clock_ms() - self._tried_at_ms >= self._interval_ms()
            if is_old and not self._is_reading:
                self._is_reading = True
                threading.Thread(target=self._run, name="penstock-figures", daemon=True).start()

    def settled(self, wait_ms: int) -> Look[Value]:
        """The value after the reading that is under way. One that takes longer than `wait_ms` leaves the last value."""
        with self._changed:
            self._changed.wait_for(lambda: not self._is_reading, wait_ms / 1_000)
            return self._look()

    def look(self, wait_ms: int) -> Look[Value]:
        """The value of now or of some time ago. Waits so long for the first one."""
        self.begin()
        with self._changed:
            self._changed.wait_for(lambda: self._tried_at_ms is not None, wait_ms / 1_000)
            return self._look()

    def _look(self) -> Look[Value]:
        return Look(
            value=self._value,
            age_ms=None if self._read_at_ms is None else max(0, self._clock_ms() - self._read_at_ms),
            error=self._error,
            is_reading=self._is_reading,
            down=self._down,
        )

    def _run(self) -> None:
        value, error, down = None, None, None
        try:
            value = self._read()
        except ServiceDownError as failure:
            error, down = str(failure.error), failure
        except PenstockError as failure:
            error = str(failure)
        except Exception as failure:  # the edge of the thread: a look must not wait for ever
            logger.exception("a reading has failed in an unexpected way")
            error = f"the console has a defect: {type(failure).__name__}"
        with self._changed:
            self._is_reading = False
            self._tried_at_ms = self._clock_ms()
            self._error, self._down = error, down
            if error is None:
                self._value, self._read_at_ms = value, self._tried_at_ms
            self._changed.notify_all()


@dataclass(frozen=True, slots=True, kw_only=True)
class Listed:
    """The resources that the service has."""

    zones: Look[Sequence[Zone]]
    topics: Look[Sequence[Topic]]
    groups: Look[Sequence[Group]]
    share_groups: Look[Sequence[ShareGroup]]
    subscriptions: Look[Sequence[Subscription]]

    @property
    def looks(self) -> Sequence[Look[Sequence[object]]]:
        """All of them."""
        return (self.zones, self.topics, self.groups, self.share_groups, self.subscriptions)


class Lists:
    """Reads the lists of one service, each with its own request and thread."""

    def __init__(self, transport: Transport) -> None:
        admin = Admin(transport=transport)
        self._zones: Background[Sequence[Zone]] = Background(admin.list_zones)
        self.topics: Background[Sequence[Topic]] = Background(admin.list_topics)
        self.groups: Background[Sequence[Group]] = Background(admin.list_groups)
        self.share_groups: Background[Sequence[ShareGroup]] = Background(admin.list_share_groups)
        self.subscriptions: Background[Sequence[Subscription]] = Background(admin.list_subscriptions)

    def look(self, wait_ms: int) -> Listed:
        """Read all anew, for `wait_ms` at most; a list that takes longer is as it was before, or not known yet.

        Raises ServiceDownError if the service does not answer.
        """
        ends_ms = monotonic_ms() + wait_ms
        for each in (self._zones, self.topics, self.groups, self.share_groups, self.subscriptions):
            each.begin()

        def left_ms() -> int:
            return max(0, ends_ms - monotonic_ms())

        found = Listed(
            zones=self._zones.settled(left_ms()),
            topics=self.topics.settled(left_ms()),
            groups=self.groups.settled(left_ms()),
            share_groups=self.share_groups.settled(left_ms()),
            subscriptions=self.subscriptions.settled(left_ms()),
        )
        for look in found.looks:
            if look.down is not None:
                raise look.down
        return found
