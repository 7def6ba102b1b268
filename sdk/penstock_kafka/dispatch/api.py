"""The words of a handler: the call that it gets, the answer that it gives, and the API that it serves.

The APIs that the gateway serves. The rooms declare them (apis.py lists the rooms).
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any
from uuid import UUID  # noqa: TID251 - the type of topics' ids on the wire: no id is made here

from penstock_core.limits import KAFKA_REQUEST_BYTES_MAX
from penstock_kafka.errors import KafkaError

Uuid = UUID
# A request as kio reads it. Its fields depend on the version, which the client chooses.
Request = Any
# An answer by the names of kio's fields, with lists of the same kind inside. The version that the client chose may not
# have all of them: those are left out. A field that the answer does not have gets its default. Times are milliseconds.
Answer = Mapping[str, object]
_API_VERSIONS = (0, 4)
_API_VERSIONS_BYTES_MAX = 16 * 1024  # clients that have not logged in may send it


class ApiKey(IntEnum):
    """Kafka's numbers of the APIs that the gateway may serve."""

    PRODUCE = 0
    FETCH = 1
    LIST_OFFSETS = 2
    METADATA = 3
    OFFSET_COMMIT = 8
    OFFSET_FETCH = 9
    FIND_COORDINATOR = 10
    JOIN_GROUP = 11
    HEARTBEAT = 12
    LEAVE_GROUP = 13
    SYNC_GROUP = 14
    DESCRIBE_GROUPS = 15
    LIST_GROUPS = 16
    SASL_HANDSHAKE = 17
    API_VERSIONS = 18
    CREATE_TOPICS = 19
    DELETE_TOPICS = 20
    DELETE_RECORDS = 21
    INIT_PRODUCER_ID = 22
    OFFSET_FOR_LEADER_EPOCH = 23
    ADD_PARTITIONS_TO_TXN = 24
    ADD_OFFSETS_TO_TXN = 25
    END_TXN = 26
    TXN_OFFSET_COMMIT = 28
    DESCRIBE_ACLS = 29
    CREATE_ACLS = 30
    DELETE_ACLS = 31
    DESCRIBE_CONFIGS = 32
    ALTER_CONFIGS = 33
    SASL_AUTHENTICATE = 36
    CREATE_PARTITIONS = 37
    DELETE_GROUPS = 42
    INCREMENTAL_ALTER_CONFIGS = 44
    OFFSET_DELETE = 47
    DESCRIBE_CLUSTER = 60
    DESCRIBE_PRODUCERS = 61
    DESCRIBE_TRANSACTIONS = 65
    LIST_TRANSACTIONS = 66
    CONSUMER_GROUP_HEARTBEAT = 68
    CONSUMER_GROUP_DESCRIBE = 69
    SHARE_GROUP_HEARTBEAT = 76
    SHARE_GROUP_DESCRIBE = 77
    SHARE_FETCH = 78
    SHARE_ACKNOWLEDGE = 79
    DESCRIBE_SHARE_GROUP_OFFSETS = 90
    ALTER_SHARE_GROUP_OFFSETS = 91


@dataclass(slots=True, kw_only=True, eq=False)
class Peer:
    """The client at the other end of one connection. `gone` is set when it has closed the connection.

    `cut` ends the connection. The gateway waits for the next bytes of a request since `sends_since_ms`. It waits for
    the client to take the next bytes of an answer since `takes_since_ms`. Each is None while the gateway does not wait.
    """

    number: int  # of the connection, from 1
    address: str
    principal: str | None = None  # of a client that SASL has authenticated
    is_refused: bool = False  # the connection ends after the answer
    gone: asyncio.Event = field(default_factory=asyncio.Event)
    cut: Callable[[], None] = lambda: None
    sends_since_ms: int | None = None
    takes_since_ms: int | None = None
    fetched_bytes: int | None = None  # by its last fetch

    def stalled_ms(self, now_ms: int) -> int:
        """The time for which the client has not moved while the gateway waits for it."""
        since = [each for each in (self.sends_since_ms, self.takes_since_ms) if each is not None]
        return now_ms - min(since, default=now_ms)


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One request of one client."""

    key: ApiKey
    version: int
    client_id: str
    peer: Peer
    request: Request
    afterwards: list[Callable[[], None]] = field(default_factory=list)  # called when the answer was sent, or cannot be


# An answer of None sends nothing: a produce with acks=0 wants no answer.
Handler = Callable[[Call], Awaitable[Answer | None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Api:
    """An API of Kafka in a range of versions, and its handler.

    Requests of a connection are handled one after the other, and answered in order. If the API `is_pipelined`, its
    requests begin in order and run side by side: the handler does before its first await what must stay in order. Where
    users log in, only APIs that are `is_before_login` serve a client that has not. An API that `may_rest` answers when
    something comes, as late as its client wishes.
    """

    key: ApiKey
    versions: tuple[int, int]  # the lowest and the highest
    handler: Handler
    is_pipelined: bool = False
    is_before_login: bool = False
    may_rest: bool = False
    bytes_max: int = KAFKA_REQUEST_BYTES_MAX  # of one request


class Registry:
    """APIs by their keys. It serves ApiVersions itself."""

    def __init__(self, apis: Iterable[Api]) -> None:
        own = Api(
            key=ApiKey.API_VERSIONS,
            versions=_API_VERSIONS,
            handler=self._api_versions,
            is_before_login=True,
            bytes_max=_API_VERSIONS_BYTES_MAX,
        )
        self._apis: dict[int, Api] = {}
        for each in (own, *apis):
            if each.key in self._apis:
                raise ValueError(f"two handlers declare {each.key.name}")
            self._apis[each.key] = each

    def find(self, key: int, version: int) -> Api | None:
        """The API that serves this version, or None."""
        api = self._apis.get(key)
        return api if api is not None and api.versions[0] <= version <= api.versions[1] else None

    def bytes_max(self, key: int, *, is_in: bool) -> int:
        """The bytes of a request to this API at most; 0 if there is no such API, or a login must come first."""
        api = self._apis.get(key)
        return api.bytes_max if api is not None and (is_in or api.is_before_login) else 0

    def versions(self, error: KafkaError = KafkaError.none) -> Answer:
        """The answer to ApiVersions."""
        keys = [
            {"api_key": int(each.key), "min_version": each.versions[0], "max_version": each.versions[1]}
            for each in sorted(self._apis.values(), key=lambda api: api.key)
        ]
        return {"error_code": error, "api_keys": keys}

    async def _api_versions(self, call: Call) -> Answer:  # noqa: ARG002 - the answer is the same for each client
        return self.versions()
