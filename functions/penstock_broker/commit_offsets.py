"""Commit a group's offsets. Unfenced: whoever is allowed to call it moves them."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from penstock_broker.broker import Broker
from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.ids import Offset, parse_group_name
from penstock_core.items import CommittedOffset
from penstock_core.limits import COMMIT_METADATA_BYTES_MAX, COMMIT_OFFSETS_MAX


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitEntry:
    """`offset` is the one to read next, in `[0, OFFSET_MAX]`."""

    topic: str
    partition: int
    offset: int
    metadata: str = ""


def commit_offsets(broker: Broker, group_name: str, entries: Sequence[CommitEntry]) -> list[PenstockError | None]:
    """None per entry that is committed, else why not, in order. One read per topic and one update per entry.

    Raises INVALID_NAME, and INVALID_REQUEST for too many entries or a topic-partition that stands twice.
    """
    group = parse_group_name(group_name)
    if len(entries) > COMMIT_OFFSETS_MAX:
        raise PenstockError(
            ErrorCode.INVALID_REQUEST, f"{len(entries)} offsets in one commit: send {COMMIT_OFFSETS_MAX} at most"
        )
    for (topic_name, partition), count in Counter((entry.topic, entry.partition) for entry in entries).items():
        if count > 1:
            raise PenstockError(
                ErrorCode.INVALID_REQUEST,
                f"partition {partition} of topic {topic_name!r} stands {count} times in one commit: send its last one",
            )
    # What is remembered will not do: a commit under the id of a deleted topic would be lost.
    names = list(dict.fromkeys(entry.topic for entry in entries))
    topics = dict(zip(names, broker.parallel.map(broker.directory.look_up, names), strict=True))
    now_ms = broker.clock.now_ms()

    def commit_one(entry: CommitEntry) -> None:
        found = topics[entry.topic]
        if isinstance(found, PenstockError):
            raise found
        topic, key = broker.directory.find_partition(entry.topic, entry.partition)
        size = len(entry.metadata.encode())
        if size > COMMIT_METADATA_BYTES_MAX:
            raise PenstockError(
                ErrorCode.INVALID_REQUEST,
                f"metadata of {size} bytes with the offset of partition {entry.partition} of topic {entry.topic!r}: "
                f"{COMMIT_METADATA_BYTES_MAX} at most",
            )
        committed = CommittedOffset(
            topic=topic.name,
            partition=key,
            offset=Offset(entry.offset),
            metadata=entry.metadata,
            committed_at_ms=now_ms,
        )
        broker.groups.commit(group, committed)

    return broker.parallel.map(commit_one, entries)
