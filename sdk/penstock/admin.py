"""Topics and groups, managed: what an operator or a set-up script does. Every call is one request (and its retries)."""

from collections.abc import Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any, Self

from penstock import calls, group_admin_calls
from penstock.client import Client
from penstock.group_model import Group, GroupDescription, ResetOffset
from penstock.model import CommittedOffset, OffsetAndTimestamp, Topic, TopicDescription, TopicPartition, Zone
from penstock.start_offsets import offsets_at
from penstock.transport import Transport, open_transport


class Admin:
    """Creates, describes, alters and deletes topics, and reads and moves offsets.

    `url`, `region` and `transport` are as for Producer. Failures that may pass are tried again for 30 seconds, where
    trying twice does no harm. Raises the classes of penstock.errors. Safe for use by several threads.
    """

    def __init__(
        self, url: str | None = None, *, region: str | None = None, transport: Transport | None = None
    ) -> None:
        self._client = Client(open_transport(url, region, transport))

    def create_topic(self, name: str, partitions: int = 1, config: Mapping[str, Any] | None = None) -> Topic:
        """Create a topic. Raises TopicExistsError, and InvalidError for a bad name, number or setting.

        After a lost answer the topic may exist: then the error says `maybe_applied`.
        """
        return self._client.call(calls.create_topic(name, partitions, {} if config is None else config))

    def list_topics(self) -> list[Topic]:
        """All topics, sorted by name; one request per thousand."""
        return self._client.call(calls.list_topics())

    def describe_topic(self, name: str) -> TopicDescription:
        """The topic, and the offsets of each partition. Raises UnknownTopicError."""
        return self._client.call(calls.describe_topic(name))

    def alter_topic(self, name: str, config: Mapping[str, Any]) -> Topic:
        """Change settings; None sets one back to its default. Takes effect everywhere within 10 seconds."""
        return self._client.call(calls.alter_topic(name, config))

    def add_partitions(self, name: str, partitions: int) -> Topic:
        """Let the topic have `partitions` in all. Keys go to other partitions from then on."""
        return self._client.call(calls.add_partitions(name, partitions))

    def delete_topic(self, name: str) -> None:
        """Delete the topic and all its records. Raises UnknownTopicError."""
        self._client.call(calls.delete_topic(name))

    def list_offsets(self, name: str, timestamp: int | str = "latest") -> dict[int, int | None]:
        """By partition: the "earliest" or "latest" offset, or that of the first record at or after a time, or None."""
        return self._client.call(calls.offsets_of(name, timestamp))

    def offsets_for_times(
        self, timestamps: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """The first record at or after each time (milliseconds since 1970); None where there is none."""
        return self._client.call(offsets_at(timestamps))

    def truncate(self, name: str, before_offsets: Mapping[int, int]) -> dict[int, int]:
        """Remove the records below an offset, by partition; answers the new log start offsets. For ever."""
        return self._client.call(calls.truncate(name, before_offsets))

    def group_offsets(self, group: str, topic: str | None = None) -> list[CommittedOffset]:
        """What a group has committed, in all topics or one; nothing for an unknown group."""
        return self._client.call(calls.group_offsets(group, topic))

    def commit_group_offsets(self, group: str, offsets: Mapping[TopicPartition, int], *, metadata: str = "") -> None:
        """Set a group's offsets (of the next record to read), also backwards. Simple consumers that run do not
        notice; where a member owns the partition it is refused with ConflictError (see `reset_group_offsets`)."""
        self._client.call(calls.commit_group_offsets(group, offsets, metadata))

    def list_groups(self) -> list[Group]:
        """All groups, sorted by name; one request per hundred."""
        return self._client.call(group_admin_calls.list_groups())

    def describe_group(self, group: str) -> GroupDescription:
        """The group's members, who owns which partition, and how far it is behind. Raises NotFoundError."""
        return self._client.call(group_admin_calls.describe_group(group))

    def alter_group(self, group: str, config: Mapping[str, Any]) -> Group:
        """Change settings, of a group that is made if there is none; None sets one back to its default."""
        return self._client.call(group_admin_calls.alter_group(group, config))

    def reset_group_offsets(
        self,
        group: str,
        topic: str,
        *,
        to: str | None = None,
        timestamp_ms: int | None = None,
        shift_by: int | None = None,
        offsets: Mapping[int, int] | None = None,
        partitions: Sequence[int] | None = None,
        dry_run: bool = False,
        force: bool = False,
    ) -> dict[int, ResetOffset]:
        """Set a group's offsets in all partitions of a topic, or some: `to` "earliest" or "latest"; the first
        record at or after a time (the end, if there is none); `shift_by` records, not beyond the ends; or `offsets`
        by partition.

        Raises ConflictError while the group has members, unless `force`: then they are fenced and start again from
        the new offsets. Raises a partition's error after all were tried.
        """
        return self._client.call(
            group_admin_calls.reset_offsets(
                group,
                topic,
                to=to,
                timestamp_ms=timestamp_ms,
                shift_by=shift_by,
                offsets=offsets,
                partitions=partitions,
                dry_run=dry_run,
                force=force,
            )
        )

    def delete_group(self, group: str) -> None:
        """Delete the group and its offsets. Raises ConflictError while it has members, and NotFoundError."""
        self._client.call(group_admin_calls.delete_group(group))

    def list_zones(self) -> list[Zone]:
        """Every zone and its state, in configured order."""
        return self._client.call(calls.list_zones())

    def take_zone_out(self, zone: str, reason: str = "") -> Zone:
        """Stop writing to a zone, and read from it last. Raises ConflictError if no majority would be left in sync."""
        return self._client.call(calls.move_zone(zone, "taken_out", reason))

    def let_zone_in(self, zone: str, reason: str = "") -> Zone:
        """Let a zone that was taken out catch up, or one in sync be looked over because its bucket was harmed; it is in
        sync again by itself when it holds every committed segment: in minutes, or as long as the copying takes.

        Raises ConflictError for a zone that is out of sync (it comes back by itself), and if no majority would be left
        in sync."""
        return self._client.call(calls.move_zone(zone, "catching_up", reason))

    def partitions(self, topics: Iterable[str]) -> list[TopicPartition]:
        """All partitions of the topics: one request each."""
        return self._client.call(calls.all_partitions(topics))

    def close(self) -> None:
        """Give back connections."""
        self._client.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()
