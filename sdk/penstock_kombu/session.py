"""The options of a broker connection, and its clients of the service."""

import logging
import os
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Self

from penstock import Admin, Producer, ShareConsumer
from penstock.arguments import check, check_text, check_whole
from penstock.share.settings import LockLostCallback, ShareSettings

_log = logging.getLogger("penstock.kombu")

_DAY_MS = 86_400_000
_OF_KOMBU = {  # kombu.Connection reads these
    *("max_retries", "interval_start", "interval_step", "interval_max", "connect_retries_timeout"),
    *("errback", "callback", "client_properties"),
}
_INSTEAD = {
    "visibility_timeout": "locks are renewed while tasks run; lock_ms says when those of a killed worker come again",
    "polling_interval": "nothing polls",
    "wait_time_seconds": "nothing polls",
    "priority_steps": "use a queue for each priority",
    "queue_order_strategy": "use a worker for each queue",
    "predefined_queues": "queues are topics; create_queues=False if you make them yourself",
    "confirm_publish": "each message is confirmed",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class TransportOptions:
    """`broker_transport_options` of Celery. All times are milliseconds. Raises InvalidError.

    Attributes:
        region: The AWS region for the signature, by default the environment's.
        transport: How the clients call the service (docs/how-to/transports.md).
        queue_name_prefix: Goes in front of each queue's name: the topic is `<prefix><queue>`.
        create_queues: Make topic, share group and dead-letter topic of a queue that does not exist. With False, you
            make them, and programs that only send tasks need no right but to produce.
        partitions: The partitions of a topic that is made here.
        dead_letter_suffix: The dead-letter topic that is made here has the queue's name and this behind it.
        lock_ms: How long a message stays with a worker that has died; by default the group's, 30 seconds.
        hold_ms_max: The longest time from the delivery of a message to its acknowledgement. After that, another worker
            gets it.
        delivery_timeout_ms: How long sending a task may take.
    """

    region: str | None = None
    transport: Any = None
    queue_name_prefix: str = ""
    create_queues: bool = True
    partitions: int = 4
    dead_letter_suffix: str = ".dead"
    lock_ms: int | None = None
    hold_ms_max: int = _DAY_MS
    delivery_timeout_ms: int = 30_000

    @classmethod
    def parse(cls, options: Mapping[str, Any]) -> Self:
        """The options of a connection. The error of an unknown name tells what to do instead."""
        names = {each.name for each in fields(cls)}
        for name in options:
            if name not in names | _OF_KOMBU:
                instead = _INSTEAD.get(name, f"use {', '.join(sorted(names))}")
                check(False, f"broker_transport_options[{name!r}] is none of Penstock's options: {instead}")
        found = cls(**{name: value for name, value in options.items() if name in names})
        check_text("queue_name_prefix", found.queue_name_prefix)
        check_text("dead_letter_suffix", found.dead_letter_suffix)
        check(found.dead_letter_suffix != "", "dead_letter_suffix='': give one, such as '.dead'")
        check(isinstance(found.create_queues, bool), f"create_queues={found.create_queues!r:.100}: use True or False")
        check_whole("partitions", found.partitions, 1)
        ShareSettings(group_id="any", lock_ms=found.lock_ms, hold_ms_max=found.hold_ms_max)
        check_whole("delivery_timeout_ms", found.delivery_timeout_ms, 1)
        return found

    def topic(self, queue: str) -> str:
        """The topic and the share group of a queue."""
        return self.queue_name_prefix + queue


class Session:
    """The clients of one connection. They are made when they are needed, and anew in a child by fork()."""

    def __init__(self, address: str, options: TransportOptions) -> None:
        self.options = options
        self.bindings: dict[tuple[str, str], dict[str, None]] = {}  # the queues by exchange and routing key
        self._url = _url_of(address)
        self._admin: Admin | None = None
        self._producer: Producer | None = None
        self._process = self._clients_process = os.getpid()
        self._has_told_of_events = False

    @property
    def is_forked(self) -> bool:
        """This process was forked after the connection was made: its readers and locks are the parent's."""
        return os.getpid() != self._process

    def producer(self) -> Producer:
        """The producer of this connection."""
        self._renew_after_fork()
        if self._producer is None:
            self._producer = Producer(
                self._url,
                region=self.options.region,
                transport=self.options.transport,
                linger_ms=0,
                max_block_ms=self.options.delivery_timeout_ms,
                delivery_timeout_ms=self.options.delivery_timeout_ms,
            )
        return self._producer

    def admin(self) -> Admin:
        """The admin client of this connection."""
        self._renew_after_fork()
        if self._admin is None:
            self._admin = Admin(self._url, region=self.options.region, transport=self.options.transport)
        return self._admin

    def share_consumer(self, queue: str, *, max_records: int, on_lock_lost: LockLostCallback) -> ShareConsumer:
        """A new consumer of the queue's share group."""
        return ShareConsumer(
            url=self._url,
            region=self.options.region,
            transport=self.options.transport,
            group_id=self.options.topic(queue),
            acknowledge="explicit",
            max_records=max_records,
            lock_ms=self.options.lock_ms,
            hold_ms_max=self.options.hold_ms_max,
            on_lock_lost=on_lock_lost,
        )

    def drop_event(self, routing_key: str) -> None:
        """Drop an event of Celery. The option `-E` asks for those of tasks, so tell once."""
        if routing_key.startswith("task") and not self._has_told_of_events:
            self._has_told_of_events = True
            _log.warning("task events go nowhere: Penstock carries none, so start workers without -E")

    def close(self) -> None:
        """Close the clients."""
        if os.getpid() == self._clients_process:
            for client in (self._admin, self._producer):
                if client is not None:
                    client.close()
        self._admin = self._producer = None

    def _renew_after_fork(self) -> None:
        if os.getpid() != self._clients_process:
            self._clients_process, self._admin, self._producer = os.getpid(), None, None


def _url_of(address: str) -> str | None:
    """The stage's URL of what kombu leaves of a broker URL; None for `penstock://`."""
    scheme, _, rest = address.partition("://")
    if scheme in ("http", "https") and rest:
        return address
    check(
        address in ("penstock://", "penstock:///"),
        f"broker URL {address!r:.200}: use penstock:// for the stage of the environment, or penstock+https://host/stage",
    )
    return None
