"""Every port in memory, as faithful as the AWS adapters: the same contract suite holds both.

Each call is atomic under one lock, as DynamoDB's and S3's single calls are. Values are immutable or copied, so that
what a caller holds never changes under it.
"""

import threading
from collections.abc import Iterable, Sequence
from dataclasses import replace

from penstock_broker.adapters.memory_compaction import MemoryCompactionStore
from penstock_broker.adapters.memory_groups import MemoryGroupStore, MemoryMembershipStore
from penstock_broker.adapters.memory_log import MemoryLogIndex
from penstock_broker.adapters.memory_transactions import MemoryTransactionStore
from penstock_broker.adapters.system import SystemChance, SystemClock, Threads
from penstock_broker.broker import Broker
from penstock_broker.directory import TopicDirectory
from penstock_broker.group_directory import GroupDirectory
from penstock_broker.ports import ARCHIVE, Chance, Clock, ListedKeys, Parallel
from penstock_broker.zone_directory import ZoneDirectory
from penstock_core.catch_up import CatchUpPass
from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.ids import SegmentId, TopicId, TopicName, ZoneName
from penstock_core.items import DeletedTopic, note_of
from penstock_core.keys import prefix_number, segment_key, segment_prefix
from penstock_core.repair import Repair
from penstock_core.topic import Topic
from penstock_core.zone_state import EVERY_ZONE_IN_SYNC, ZoneStates

_LIST_MAX = 1_000


class MemoryTopicStore:
    """TopicStore."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._topics: dict[TopicName, Topic] = {}
        self._deleted: dict[TopicId, DeletedTopic] = {}

    def begin(self, note: DeletedTopic) -> None:
        with self._lock:
            self._deleted[note.topic_id] = note

    def create(self, topic: Topic) -> None:
        with self._lock:
            stored = self._topics.get(topic.name)
            if stored is not None and stored.topic_id == topic.topic_id:
                return
            if stored is not None:
                raise PenstockError(ErrorCode.TOPIC_EXISTS, f"topic {topic.name!r} exists already")
            note = self._deleted.get(topic.topic_id)
            if note is None or not note.is_being_created:
                raise PenstockError(
                    ErrorCode.CONCURRENT_UPDATE, f"topic {topic.name!r} was not created: it took too long, try again"
                )
            del self._deleted[topic.topic_id]
            self._topics[topic.name] = topic

    def give_up(self, note: DeletedTopic) -> bool:
        with self._lock:
            stored = self._deleted.get(note.topic_id)
            if stored is None or not stored.is_being_created:
                return False
            self._deleted[note.topic_id] = replace(note, is_being_created=False)
            return True

    def get(self, name: TopicName) -> Topic | None:
        return self._topics.get(name)

    def list(self) -> Sequence[Topic]:
        with self._lock:
            return [self._topics[name] for name in sorted(self._topics)]

    def replace(self, old: Topic, new: Topic) -> None:
        with self._lock:
            if self._topics.get(old.name) != old:
                raise PenstockError(
                    ErrorCode.CONCURRENT_UPDATE,
                    f"topic {old.name!r} was altered by somebody else: read it and try again",
                )
            self._topics[old.name] = new

    def delete(self, topic: Topic, now_ms: int) -> None:
        with self._lock:
            stored = self._topics.get(topic.name)
            if stored is None or stored.topic_id != topic.topic_id:
                raise PenstockError(ErrorCode.UNKNOWN_TOPIC, f"topic {topic.name!r} was deleted by somebody else")
            if stored.partitions != topic.partitions:
                raise PenstockError(
                    ErrorCode.CONCURRENT_UPDATE, f"topic {topic.name!r} is being altered by somebody else: try again"
                )
            del self._topics[topic.name]
            self._deleted[topic.topic_id] = note_of(topic, now_ms)

    def deleted(self) -> Sequence[DeletedTopic]:
        with self._lock:
            return [*self._deleted.values()]

    def forget_deleted(self, topic_id: TopicId) -> None:
        with self._lock:
            self._deleted.pop(topic_id, None)


class MemoryZoneStateStore:
    """ZoneStateStore."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._states = EVERY_ZONE_IN_SYNC
        self._pass: CatchUpPass | None = None

    def get(self) -> ZoneStates:
        return self._states

    def change(self, old: ZoneStates, new: ZoneStates) -> None:
        with self._lock:
            if self._states.version != old.version:
                raise PenstockError(
                    ErrorCode.CONCURRENT_UPDATE, "a zone's state was changed by somebody else: try again"
                )
            self._states = new

    def get_pass(self) -> CatchUpPass | None:
        return self._pass

    def save_pass(self, old: CatchUpPass | None, new: CatchUpPass) -> None:
        with self._lock:
            if (self._pass and self._pass.saves) != (old and old.saves):
                raise PenstockError(ErrorCode.CONCURRENT_UPDATE, "another keeper is at work: leave it to that one")
            self._pass = new


class MemoryRepairQueue:
    """RepairQueue; `repairs` is what was sent and nobody has taken yet."""

    def __init__(self) -> None:
        self.repairs: list[Repair] = []

    def send(self, repair: Repair) -> None:
        self.repairs.append(repair)


class MemoryJobCursors:
    """JobCursors."""

    def __init__(self) -> None:
        self._cursors: dict[str, str] = {}

    def get(self, job: str) -> str | None:
        return self._cursors.get(job)

    def put(self, job: str, cursor: str) -> None:
        self._cursors[job] = cursor

    def clear(self, job: str) -> None:
        self._cursors.pop(job, None)


class MemorySegmentStore:
    """SegmentStore of one zone. `is_down` makes it refuse, as a lost zone does."""

    def __init__(self, zone: str) -> None:
        self._zone = ZoneName(zone)
        self.segments: dict[SegmentId, bytes] = {}
        self.is_down = False

    @property
    def zone(self) -> ZoneName:
        return self._zone

    def put(self, segment_id: SegmentId, body: bytes, crc32c: int) -> None:  # noqa: ARG002 - memory does not rot
        self._check_up()
        self.segments.setdefault(segment_id, bytes(body))

    def get(self, segment_id: SegmentId, position: int, length: int) -> bytes:
        self._check_up()
        if segment_id not in self.segments:
            raise PenstockError(
                ErrorCode.STORAGE_UNAVAILABLE,
                f"zone {self._zone} has no segment {segment_id.hex()}",
                is_missing=True,
            )
        data = self.segments[segment_id][position : position + length]
        if len(data) != length:
            raise PenstockError(
                ErrorCode.CORRUPT_SEGMENT,
                f"zone {self._zone} holds {len(data)} of {length} bytes from {position} of segment {segment_id.hex()}",
            )
        return data

    def get_whole(self, segment_id: SegmentId) -> bytes | None:
        self._check_up()
        return self.segments.get(segment_id)

    def overwrite(self, segment_id: SegmentId, body: bytes, crc32c: int) -> None:  # noqa: ARG002 - as put
        self._check_up()
        self.segments[segment_id] = bytes(body)

    def list_keys(self, prefix: str, token: str | None) -> ListedKeys:
        self._check_up()
        near = [each for each in self.segments.copy() if prefix.startswith(segment_prefix(prefix_number(each)))]
        keys = sorted(key for key in map(segment_key, near) if key.startswith(prefix))
        behind = [key for key in keys if token is None or key > token]
        part = behind[:_LIST_MAX]
        return ListedKeys(keys=part, next_token=part[-1] if len(behind) > len(part) else None)

    def delete(self, segment_ids: Sequence[SegmentId]) -> None:
        self._check_up()
        for segment_id in segment_ids:
            self.segments.pop(segment_id, None)

    def _check_up(self) -> None:
        if self.is_down:
            raise PenstockError(ErrorCode.STORAGE_UNAVAILABLE, f"zone {self._zone} does not answer")


class MemoryArchiveStore(MemorySegmentStore):
    """ArchiveStore."""

    def upload(self, segment_id: SegmentId, chunks: Iterable[bytes]) -> None:
        body = b"".join(chunks)
        self._check_up()
        self.segments.setdefault(segment_id, body)


def memory_broker(
    *,
    zones: Sequence[str] = ("a", "b", "c"),
    clock: Clock | None = None,
    chance: Chance | None = None,
    parallel: Parallel | None = None,
) -> Broker:
    """A whole service in memory, on the system's clock, chance and threads unless others are given."""
    clock = clock or SystemClock()
    topics, zone_states, memberships = MemoryTopicStore(), MemoryZoneStateStore(), MemoryMembershipStore()
    log, groups = MemoryLogIndex(), MemoryGroupStore()
    return Broker(
        topics=topics,
        log=log,
        groups=groups,
        transactions=MemoryTransactionStore(log, groups),
        compaction=MemoryCompactionStore(log),
        memberships=memberships,
        zone_states=zone_states,
        cursors=MemoryJobCursors(),
        zones=[MemorySegmentStore(zone) for zone in zones],
        archive=MemoryArchiveStore(ARCHIVE),
        repair_queue=MemoryRepairQueue(),
        parallel=parallel or Threads(),
        clock=clock,
        chance=chance or SystemChance(),
        directory=TopicDirectory(topics, clock),
        zone_directory=ZoneDirectory(zone_states, clock),
        group_directory=GroupDirectory(memberships, clock),
    )
