"""The transport of Kombu: connections, channels, and the wait for messages.

    penstock://                    the stage that the environment names, else the local one (penstock.configuration)
    penstock+https://host/stage    the stage at this URL

It is a synchronous transport: Celery's loop waits in `drain_events`, on a condition that the readers of the queues
notify. So an idle worker waits in the process and sends one request a minute (penstock.share.waiting).
"""

import threading
from typing import Any, Self

from kombu.exceptions import ChannelError
from kombu.exceptions import ConnectionError as AmqpConnectionError
from kombu.transport import base

from penstock.errors import UnavailableError
from penstock.system import monotonic_ms
from penstock_core.version import VERSION
from penstock_kombu.channel import Channel
from penstock_kombu.delivery import InFlight
from penstock_kombu.session import Session, TransportOptions

# Celery's loop sends acknowledgements of other threads between two waits. So a wait is short while tasks are under way.
_BUSY_WAIT_MS = 20


class Transport(base.Transport):  # type: ignore[misc]  # kombu has no types
    """The transport of one `kombu.Connection`."""

    can_parse_url = True
    driver_type = "penstock"
    driver_name = "penstock"
    connection_errors = (AmqpConnectionError, UnavailableError)
    channel_errors = (ChannelError,)
    implements = base.Transport.implements.extend(
        asynchronous=False, exchange_type=frozenset({"direct"}), heartbeats=False
    )

    def __init__(self, client: Any, **_: object) -> None:
        super().__init__(client)
        self._session = Session(str(client.hostname or ""), TransportOptions.parse(client.transport_options or {}))
        self._changed = threading.Condition()
        self._channels: list[Channel] = []
        self._is_closed = False

    def driver_version(self) -> str:
        """The version of Penstock."""
        return VERSION

    def qos_semantics_matches_spec(self, connection: object) -> bool:
        """False: `prefetch_count` bounds the channel, and a change holds for consumers that there are."""
        return False

    def establish_connection(self) -> Self:
        """Makes no call: the first declaration, message or wait does."""
        self._is_closed = False
        return self

    def close_connection(self, connection: object) -> None:
        """Close the channels and the clients. A wait in another thread raises ConnectionError."""
        if not self._session.is_forked:  # there, a thread of the parent may hold the condition for ever
            with self._changed:
                self._is_closed = True
                self._changed.notify_all()
        for channel in list(self._channels):
            channel.close()
        self._session.close()

    def create_channel(self, connection: object) -> Channel:
        """A new channel."""
        channel = Channel(self, self._session, self._changed)
        self._channels.append(channel)
        return channel

    def close_channel(self, channel: Channel) -> None:
        """A channel tells that it is closed."""
        if channel in self._channels:
            self._channels.remove(channel)

    def drain_events(self, connection: object, timeout: float | None = None, **_: object) -> None:
        """Wait for one message, and deliver it. Raises TimeoutError after `timeout` seconds, and a reader's error.

        Raises Kombu's ConnectionError once the connection is closed, also by another thread.
        While messages are unacknowledged, it may return without one, so that Celery sends the acknowledgements.
        """
        ends_ms = None if timeout is None else monotonic_ms() + int(timeout * 1_000)
        with self._changed:
            while (found := self._next()) is None:
                if self._is_closed:
                    raise AmqpConnectionError("the connection is closed, so no message comes")
                left_ms = None if ends_ms is None else ends_ms - monotonic_ms()
                if left_ms is not None and left_ms <= 0:
                    raise TimeoutError
                is_busy = any(each.deliveries.unacknowledged for each in self._channels)
                if is_busy and (left_ms is None or left_ms > _BUSY_WAIT_MS):
                    if not self._changed.wait(_BUSY_WAIT_MS / 1_000):
                        return
                else:
                    self._changed.wait(None if left_ms is None else left_ms / 1_000)
        channel, message = found
        channel.deliver(message)

    def _next(self) -> tuple[Channel, InFlight] | None:
        for channel in self._channels:
            found = channel.deliveries.next()
            if found is not None:
                return channel, found
        return None
