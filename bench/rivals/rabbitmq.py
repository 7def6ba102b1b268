"""RabbitMQ: a durable queue, persistent messages, publisher confirms, acknowledgements of many messages at once."""

import threading
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import pika

from bench.rivals.rival import Seat

_UNCONFIRMED_MAX = 2_000
_PREFETCH = 1_000
_WAIT_S = 30


@dataclass(frozen=True, slots=True, kw_only=True)
class RabbitMq:
    """One durable classic queue behind the default exchange."""

    port: int
    topic: str = ""
    name: str = "RabbitMQ"
    threads: tuple[int, ...] = (1,)

    def parameters(self) -> Any:
        return pika.ConnectionParameters("127.0.0.1", self.port)

    def make(self) -> None:
        with pika.BlockingConnection(self.parameters()) as connection:
            connection.channel().queue_declare(self.topic, durable=True)

    def drop(self) -> None:
        with pika.BlockingConnection(self.parameters()) as connection:
            connection.channel().queue_delete(self.topic)

    def renamed(self, topic: str) -> "RabbitMq":
        return replace(self, topic=topic)

    def through(self, port: int) -> "RabbitMq":
        return replace(self, port=port)

    def connect(self, seat: Seat) -> "RabbitClient":  # noqa: ARG002 - as the others
        return RabbitClient(self)


class RabbitClient:
    """Publishes on a connection with its own thread, so that confirms overlap. Consumes on another one."""

    chunk = 500
    calls = None

    def __init__(self, rival: RabbitMq) -> None:
        self._queue = rival.topic
        self._publisher = _Publisher(rival.parameters(), rival.topic)
        self._connection = pika.BlockingConnection(rival.parameters())
        self._channel = self._connection.channel()
        self._channel.basic_qos(prefetch_count=_PREFETCH)
        self._messages: Any = None
        self._tag, self._taken = 0, 0

    def send(self, values: Sequence[bytes]) -> None:
        self._publisher.publish(values)

    def flush(self) -> None:
        self._publisher.await_confirms(0)

    def receive(self) -> int:
        """Takes up to half of the prefetched messages, and acknowledges them at once."""
        if self._messages is None:
            self._messages = self._channel.consume(self._queue, inactivity_timeout=0.5)
        found, tag = 0, 0
        for method, _, _ in self._messages:
            if method is None:
                break
            found, tag = found + 1, method.delivery_tag
            if found == _PREFETCH // 2 or not self._channel.get_waiting_message_count():
                break
        if found:
            self._channel.basic_ack(tag, multiple=True)
        return found

    def close(self) -> None:
        self._publisher.close()
        self._connection.close()


class _Publisher:
    """A connection with an event loop in a thread. RabbitMQ confirms ranges of messages in any order."""

    def __init__(self, parameters: Any, queue: str) -> None:
        self._queue = queue
        self._condition = threading.Condition()
        self._unconfirmed: set[int] = set()
        self._number = 0
        self._error: Exception | None = None
        self._channel: Any = None
        self._properties = pika.BasicProperties(delivery_mode=2)
        self._connection = pika.SelectConnection(
            parameters,
            on_open_callback=lambda connection: connection.channel(on_open_callback=self._opened),
            on_open_error_callback=self._failed,
            on_close_callback=self._closed,
        )
        self._thread = threading.Thread(target=self._connection.ioloop.start, daemon=True)
        self._thread.start()
        self._await(lambda: self._channel is not None)

    def publish(self, values: Sequence[bytes]) -> None:
        with self._condition:
            numbers = range(self._number + 1, self._number + 1 + len(values))
            self._number += len(values)
            self._unconfirmed.update(numbers)
        self._connection.ioloop.add_callback_threadsafe(partial(self._write, values))
        self.await_confirms(_UNCONFIRMED_MAX)

    def await_confirms(self, left: int) -> None:
        """Returns when at most so many messages are unconfirmed."""
        self._await(lambda: len(self._unconfirmed) <= left)

    def close(self) -> None:
        self._connection.ioloop.add_callback_threadsafe(self._connection.close)
        self._thread.join(_WAIT_S)

    def _write(self, values: Sequence[bytes]) -> None:
        for value in values:
            self._channel.basic_publish("", self._queue, value, self._properties)

    def _opened(self, channel: Any) -> None:
        channel.confirm_delivery(self._confirmed)
        with self._condition:
            self._channel = channel
            self._condition.notify_all()

    def _confirmed(self, frame: Any) -> None:
        method = frame.method
        with self._condition:
            if method.NAME != "Basic.Ack":
                self._error = RuntimeError(f"RabbitMQ answered {method.NAME} to message {method.delivery_tag}")
            if method.multiple:
                self._unconfirmed -= {each for each in self._unconfirmed if each <= method.delivery_tag}
            else:
                self._unconfirmed.discard(method.delivery_tag)
            self._condition.notify_all()

    def _failed(self, _: Any, error: Exception) -> None:
        with self._condition:
            self._error = error
            self._condition.notify_all()

    def _closed(self, *_: Any) -> None:
        with suppress(Exception):
            self._connection.ioloop.stop()

    def _await(self, is_done: Any) -> None:
        with self._condition:
            if not self._condition.wait_for(lambda: self._error or is_done(), _WAIT_S):
                raise TimeoutError(f"RabbitMQ confirmed nothing for {_WAIT_S} s")
            if self._error:
                raise self._error
