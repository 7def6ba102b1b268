"""The progress topic: one partition next to the topic that takes the records, kept for ever, read from any note on."""

from collections.abc import Iterator
from contextlib import suppress

from penstock.admin.admin import Admin
from penstock.consumer.consumer import Consumer
from penstock.errors import TopicExistsError, UnknownTopicError
from penstock.http.transport import Transport
from penstock.model import TopicPartition
from penstock_core.limits import UNLIMITED

_SUFFIX = ".import"


def progress_topic(topic: str) -> str:
    """The name of the progress topic of imports into `topic`."""
    return f"{topic}{_SUFFIX}"


class ProgressTopic:
    """Reads the notes of one source. `identity` is the key of its notes."""

    def __init__(self, transport: Transport, topic: str, identity: str) -> None:
        self._transport = transport
        self.name = progress_topic(topic)
        self.key = identity.encode()

    def create(self, admin: Admin) -> None:
        """Make sure that it exists. Retention never removes a note. If it exists, that needs no right to create."""
        try:
            admin.describe_topic(self.name)
        except UnknownTopicError:
            with suppress(TopicExistsError):  # another process has begun at the same time
                admin.create_topic(self.name, 1, {"retention_ms": UNLIMITED})

    def notes(self, admin: Admin, start_offset: int = 0) -> Iterator[tuple[int, bytes]]:
        """The offset and the value of each note from `start_offset` on, up to the present end. Memory stays bounded."""
        end = admin.list_offsets(self.name, "latest")[0] or 0
        if start_offset >= end:
            return
        place = TopicPartition(self.name, 0)
        with Consumer(transport=self._transport) as consumer:
            consumer.assign([place])
            consumer.seek(place, start_offset)
            while consumer.position(place) < end:
                for record in consumer.poll():
                    if record.key == self.key and record.value is not None:
                        yield record.offset, record.value
