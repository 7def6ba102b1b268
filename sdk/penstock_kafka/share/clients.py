"""The clients of share groups: their share sessions, and the locks that they hold.

| epoch | in ShareFetch                                        | in ShareAcknowledge        |
|-------|------------------------------------------------------|----------------------------|
| 0     | begin a session with the partitions of the request   | INVALID_SHARE_SESSION_EPOCH |
| k > 0 | changes; the client has asked k times in the session | acknowledge in the session |
| -1    | acknowledge, then end the session                    | the same                   |

A session ends with its gateway, and a client may begin another one at any time. Locks belong to the client and outlive
its sessions, so what it still works on can be acknowledged in the next one.

Source: https://cwiki.apache.org/confluence/display/KAFKA/KIP-932%3A+Queues+for+Kafka
"""

from dataclasses import dataclass, field
from typing import NamedTuple

from penstock_core.limits import (
    KAFKA_SESSION_PARTITIONS_MAX,
    KAFKA_SHARE_CLIENTS_MAX,
    KAFKA_SHARE_IDLE_MS,
)
from penstock_kafka.dispatch.api import Request, Uuid
from penstock_kafka.errors import KafkaError, RequestRefused
from penstock_kafka.share.held_locks import HeldLocks
from penstock_kafka.share.members import check_names

BEGINS, ENDS = 0, -1
_EPOCH_MAX = 2**31 - 1
_NO_TOPIC = Uuid(int=0)


class SharePlace(NamedTuple):
    """A partition as the client names it."""

    topic_id: Uuid
    partition: int


@dataclass(slots=True, kw_only=True, eq=False)
class ShareClient:
    """One member of one group. `session` counts its sessions, `epoch` is None outside of one."""

    group: str
    member_id: str
    locks: HeldLocks = field(default_factory=HeldLocks)
    partitions: dict[SharePlace, None] = field(default_factory=dict)
    session: int = 0
    epoch: int | None = None
    used_ms: int = 0

    def end(self) -> None:
        """It has no session any more."""
        self.epoch = None
        self.partitions = {}


class ShareClients:
    """The clients that this gateway serves."""

    def __init__(self) -> None:
        self._clients: dict[tuple[str, str], ShareClient] = {}

    def fetching(self, request: Request, now_ms: int, *, acknowledges: bool) -> ShareClient:
        """The client of a ShareFetch, in its session as the request changes it. Raises RequestRefused."""
        if request.share_session_epoch != BEGINS:
            client = self._go_on(request, now_ms)
            if request.share_session_epoch != ENDS:
                _change(client, request)
            return client
        if acknowledges:
            raise RequestRefused(KafkaError.invalid_request, "the first request of a session acknowledges nothing")
        client = self._find(request) or self._new(request, now_ms)
        client.end()
        client.session += 1
        client.epoch, client.used_ms = 1, now_ms
        client.locks.look(now_ms)
        _change(client, request)
        return client

    def acknowledging(self, request: Request, now_ms: int) -> ShareClient:
        """The client of a ShareAcknowledge. Raises RequestRefused."""
        if request.share_session_epoch == BEGINS:
            raise RequestRefused(
                KafkaError.invalid_share_session_epoch, "an acknowledgement does not begin a session: fetch first"
            )
        return self._go_on(request, now_ms)

    def _go_on(self, request: Request, now_ms: int) -> ShareClient:
        client, epoch = self._find(request), request.share_session_epoch
        if client is None or client.epoch is None:
            raise RequestRefused(
                KafkaError.share_session_not_found, "this gateway has no share session of the member: begin one"
            )
        if epoch not in (ENDS, client.epoch):
            raise RequestRefused(
                KafkaError.invalid_share_session_epoch, f"epoch {epoch}: {client.epoch} is expected in this session"
            )
        client.epoch = client.epoch % _EPOCH_MAX + 1
        client.used_ms = now_ms
        client.locks.look(now_ms)
        return client

    def _find(self, request: Request) -> ShareClient | None:
        return self._clients.get((str(request.group_id or ""), str(request.member_id or "")))

    def _new(self, request: Request, now_ms: int) -> ShareClient:
        group, member_id = str(request.group_id or ""), str(request.member_id or "")
        check_names(group, member_id)
        if len(self._clients) >= KAFKA_SHARE_CLIENTS_MAX:
            self._forget(now_ms)
        client = ShareClient(group=group, member_id=member_id, locks=HeldLocks(now_ms))
        self._clients[group, member_id] = client
        return client

    def _forget(self, now_ms: int) -> None:
        """Forget a client that is idle. Raises RequestRefused if all are busy."""
        for key, client in self._clients.items():
            is_idle = now_ms - client.used_ms > KAFKA_SHARE_IDLE_MS
            if is_idle or (client.epoch is None and not client.locks.count):
                del self._clients[key]
                return
        raise RequestRefused(
            KafkaError.share_session_limit_reached, f"the gateway serves {KAFKA_SHARE_CLIENTS_MAX:,} share sessions"
        )


def _change(client: ShareClient, request: Request) -> None:
    """Take the partitions that a request adds and forgets. Too many end the session."""
    for topic in request.topics:
        for partition in topic.partitions:
            client.partitions[SharePlace(topic.topic_id or _NO_TOPIC, partition.partition_index)] = None
    for topic in request.forgotten_topics_data:
        for number in topic.partitions:
            client.partitions.pop(SharePlace(topic.topic_id or _NO_TOPIC, number), None)
    if len(client.partitions) > KAFKA_SESSION_PARTITIONS_MAX:
        client.end()
        raise RequestRefused(KafkaError.invalid_request, f"more than {KAFKA_SESSION_PARTITIONS_MAX:,} partitions")
