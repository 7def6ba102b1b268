"""Fetch sessions: the partitions that a client reads, remembered between its fetches, so that it sends changes only.

| session id | epoch | meaning                                                      |
|------------|-------|--------------------------------------------------------------|
| 0          | -1    | all partitions are in the request; no session                |
| 0 or n     | 0     | all partitions are in the request; begin a session           |
| n          | k > 0 | changes of session n, which the client has fetched k times   |
| n          | -1    | as the first row, and end session n                          |

Source: https://cwiki.apache.org/confluence/display/KAFKA/KIP-227
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from penstock_core.limits import KAFKA_SESSION_PARTITIONS_MAX, KAFKA_SESSIONS_MAX, KAFKA_SESSIONS_PARTITIONS_MAX
from penstock_kafka.dispatch.api import Request, Uuid
from penstock_kafka.errors import KafkaError, RequestRefused

NO_SESSION = 0
_NO_TOPIC = Uuid(int=0)
_FINAL = -1
_EPOCH_MAX = 2**31 - 1


class PartitionName(NamedTuple):
    """A partition as the client names it: by the topic's name, or by its id in newer versions."""

    topic: str | Uuid
    partition: int


@dataclass(frozen=True, slots=True)
class Wanted:
    """An offset to read from, and the bytes that the client takes of the partition at most."""

    offset: int
    bytes_max: int


@dataclass(slots=True, kw_only=True)
class Session:
    """The partitions of one client, in the order in which they are read: those that had records come last."""

    session_id: int
    epoch: int = 0
    wanted: dict[PartitionName, Wanted] = field(default_factory=dict)
    told: dict[PartitionName, object] = field(default_factory=dict)  # what the client knows of each partition

    @property
    def is_kept(self) -> bool:
        """The client may send changes only."""
        return self.session_id != NO_SESSION

    def change(self, request: Request) -> None:
        """Take the partitions that a request adds, changes and forgets. Raises RequestRefused if they are too many."""
        for name, wanted in wanted_of(request):
            self.wanted[name] = wanted
        for topic in getattr(request, "forgotten_topics_data", ()):
            for partition in topic.partitions:
                name = PartitionName(_topic(topic), partition)
                self.wanted.pop(name, None)
                self.told.pop(name, None)
        if len(self.wanted) > KAFKA_SESSION_PARTITIONS_MAX:
            raise RequestRefused(KafkaError.invalid_request, f"more than {KAFKA_SESSION_PARTITIONS_MAX:,} partitions")

    def read(self, names: Iterable[PartitionName]) -> None:
        """These had records: the next fetch looks at the others first."""
        for name in names:
            if name in self.wanted:
                self.wanted[name] = self.wanted.pop(name)


class Sessions:
    """The sessions of all clients. When they or their partitions are too many, those used longest ago end."""

    def __init__(self, draw: Callable[[int], int]) -> None:
        self._draw = draw
        self._sessions: dict[int, Session] = {}
        self._partitions = 0  # of all of them

    def of(self, request: Request) -> Session:
        """The session of a request, changed as it says. Raises RequestRefused if the client must begin anew."""
        session_id, epoch = getattr(request, "session_id", NO_SESSION), getattr(request, "session_epoch", _FINAL)
        if epoch in (_FINAL, 0):
            self._pop(session_id)
            session = Session(session_id=NO_SESSION if epoch == _FINAL else self._new_id())
            session.change(request)
            if session.is_kept:
                self._keep(session)
            return session
        kept = self._pop(session_id)
        if kept is None:
            raise RequestRefused(KafkaError.fetch_session_id_not_found, f"session {session_id} is not known")
        if epoch != kept.epoch:
            raise RequestRefused(KafkaError.invalid_fetch_session_epoch, f"epoch {epoch}: {kept.epoch} is expected")
        kept.change(request)
        self._keep(kept)
        return kept

    def _keep(self, session: Session) -> None:
        session.epoch = session.epoch % _EPOCH_MAX + 1
        self._sessions[session.session_id] = session
        self._partitions += len(session.wanted)
        while len(self._sessions) > KAFKA_SESSIONS_MAX or self._partitions > KAFKA_SESSIONS_PARTITIONS_MAX:
            self._pop(next(iter(self._sessions)))

    def _pop(self, session_id: int) -> Session | None:
        session = self._sessions.pop(session_id, None)
        if session is not None:
            self._partitions -= len(session.wanted)
        return session

    def _new_id(self) -> int:
        while (session_id := self._draw(_EPOCH_MAX) + 1) in self._sessions:
            pass
        return session_id


def wanted_of(request: Request) -> Sequence[tuple[PartitionName, Wanted]]:
    """The partitions in a request."""
    return [
        (
            PartitionName(_topic(topic), each.partition),
            Wanted(each.fetch_offset, each.partition_max_bytes),
        )
        for topic in request.topics
        for each in topic.partitions
    ]


def _topic(entity: Request) -> str | Uuid:
    name: str | Uuid = entity.topic if hasattr(entity, "topic") else entity.topic_id or _NO_TOPIC
    return name
