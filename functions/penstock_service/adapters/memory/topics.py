"""Topics in memory."""

import threading
from collections.abc import Sequence
from dataclasses import replace

from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.ids import TopicId, TopicName
from penstock_core.log.topic import DeletedTopic, Topic, note_of


class MemoryTopicStore:
    """TopicStore: the port documents its methods."""

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
                    f"topic {old.name!r} was altered by another request: read it and try again",
                )
            self._topics[old.name] = new

    def retire(self, old: Topic, new: Topic) -> None:
        with self._lock:
            stored = self._topics.get(old.name)
            if stored is None or _layout(stored) != _layout(old):
                raise PenstockError(ErrorCode.CONCURRENT_UPDATE, f"topic {old.name!r} was altered by another request")
            self._topics[old.name] = replace(
                stored, partitions=new.partitions, writable=new.writable_partitions, heads=new.head_count
            )

    def open_generation(self, old: Topic) -> None:
        with self._lock:
            stored = self._topics.get(old.name)
            if stored is None or _layout(stored) != _layout(old) or stored.opening != old.opening:
                raise PenstockError(ErrorCode.CONCURRENT_UPDATE, f"topic {old.name!r} was altered by another request")
            self._topics[old.name] = replace(old.with_next_generation(), config=stored.config)

    def delete(self, topic: Topic, now_ms: int) -> None:
        with self._lock:
            stored = self._topics.get(topic.name)
            if stored is None or stored.topic_id != topic.topic_id:
                raise PenstockError(ErrorCode.UNKNOWN_TOPIC, f"topic {topic.name!r} was deleted by another request")
            if stored.partitions != topic.partitions:
                raise PenstockError(
                    ErrorCode.CONCURRENT_UPDATE, f"topic {topic.name!r} is being altered by another request: try again"
                )
            del self._topics[topic.name]
            self._deleted[topic.topic_id] = note_of(topic, now_ms)

    def deleted(self) -> Sequence[DeletedTopic]:
        with self._lock:
            return [*self._deleted.values()]

    def note_heads_removed(self, topic_id: TopicId, now_ms: int) -> None:
        with self._lock:
            note = self._deleted.get(topic_id)
            if note is not None and note.heads_removed_at_ms is None:
                self._deleted[topic_id] = replace(note, heads_removed_at_ms=now_ms)

    def forget_deleted(self, topic_id: TopicId) -> None:
        with self._lock:
            self._deleted.pop(topic_id, None)


def _layout(topic: Topic) -> tuple[TopicId, int, int]:
    return topic.topic_id, topic.partitions, topic.layout
