# Generated from async_admin.py by `python -m tools.unasync`: change that file.
"""The admin client: topics, groups, offsets and zones, for operators and set-up scripts.

Every call is one request and its retries, unless its docs say more.
"""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Any, Self, Unpack

from penstock.api import acl_calls, calls, group_admin_calls, schedule_calls, share_group_calls, subscription_calls
from penstock.api.topic_heat import topic_heat
from penstock.errors import NotFoundError
from penstock.http.client import Client
from penstock.http.named_transport import TransportName
from penstock.http.transport import Transport, open_transport
from penstock.model import (
    CommittedOffset,
    MovedTopic,
    OffsetAndTimestamp,
    PromotedTopic,
    ScheduledRecords,
    Topic,
    TopicDescription,
    TopicPartition,
    Zone,
)
from penstock.model.access import AccessChange, AccessDecision, AccessRule, Quota
from penstock.model.fields import NamedClient
from penstock.model.groups import Group, GroupDescription, ResetOffset
from penstock.model.heat import TopicHeat
from penstock.model.push import Subscription, SubscriptionDescription, TopicUser, TopicUserCounts
from penstock.model.schedules import Schedule
from penstock.model.share import DeadLetterCounts, Redrive, RedriveOptions, ShareGroup, ShareGroupDescription
from penstock.system import wall_clock_ms


class Admin(NamedClient):
    """Creates, describes, alters and deletes topics, and reads and moves offsets.

    `url`, `region` and `transport` are as for Producer. It retries failures that may pass for 30 seconds, if a
    second try does no harm. Raises the classes of penstock.errors. Several threads may use one.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        region: str | None = None,
        transport: Transport | TransportName | None = None,
    ) -> None:
        self._client = Client(open_transport(url, region, transport))

    def create_topic(
        self, name: str, partitions: int = 1, config: Mapping[str, Any] | None = None, *, exist_ok: bool = False
    ) -> Topic:
        """Create a topic. Raises TopicExistsError, and InvalidError for a bad name, number or setting.

        With `exist_ok` a topic of this name stays as it is, whatever partitions and settings it has, and you get it.
        After a lost answer the topic may exist: the error says `maybe_applied` then.
        """
        settings = {} if config is None else config
        return self._client.call(calls.create_topic(name, partitions, settings, exist_ok=exist_ok))

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
        """Give the topic `partitions` in all. Keys map to other partitions from then on.

        Raises InvalidError if it has more.
        """
        return self._client.call(calls.add_partitions(name, partitions))

    def set_partitions(self, name: str, partitions: int) -> Topic:
        """Let the first `partitions` of the topic take new records. Keys map to other partitions from then on.

        With fewer than it has, the others drain: consumers read them to their ends, and they go once retention has
        emptied them. With more, draining partitions open again before new ones are made.
        """
        return self._client.call(calls.set_partitions(name, partitions))

    def delete_topic(self, name: str) -> None:
        """Delete the topic and all its records. Raises UnknownTopicError."""
        self._client.call(calls.delete_topic(name))

    def topic_users(self, name: str) -> list[TopicUser]:
        """Tell which share groups and subscriptions use the topic, of those that you may describe.

        Ask before you delete it: they stand still without it. One request per hundred share groups and subscriptions.
        """
        return self._client.call(subscription_calls.topic_users(name))

    def count_topic_users(self, name: str) -> TopicUserCounts:
        """Count the share groups and subscriptions that use the topic, also those that you may not describe.

        It needs the right to delete the topic.
        """
        return self._client.call(subscription_calls.count_topic_users(name))

    def list_offsets(self, name: str, timestamp: int | str = "latest") -> dict[int, int | None]:
        """Return offsets by partition: the "earliest", the "latest", or the first at or after a time; None if none."""
        return self._client.call(calls.offsets_of(name, timestamp))

    def offsets_for_times(
        self, timestamps: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """The first record at or after each time (milliseconds since 1970); None where there is none."""
        return self._client.call(calls.offsets_at(timestamps))

    def topic_heat(self, name: str, since_ms: int = 300_000) -> TopicHeat:
        """The hot partitions of a topic, their hottest keys, and advice: counts of the last `since_ms`.

        Five calls at most. It needs the rights to describe and to read the topic.
        """
        return self._client.call(topic_heat(name, since_ms, wall_clock_ms()))

    def truncate(self, name: str, before_offsets: Mapping[int, int]) -> dict[int, int]:
        """Remove the records below an offset, by partition, for ever. Returns the new log start offsets."""
        return self._client.call(calls.truncate(name, before_offsets))

    def list_scheduled(self, topic: str, partition: int | None = None) -> list[ScheduledRecords]:
        """The delayed records of a topic that wait, by partition and due time; one request per thousand.

        Raises UnknownTopicError and UnknownPartitionError.
        """
        return self._client.call(calls.list_scheduled(topic, partition))

    def cancel_scheduled(self, topic: str, scheduled_id: str) -> ScheduledRecords:
        """Cancel delayed records that wait: they never come. A repeat gets the same answer.

        Raises UnknownTopicError, NotFoundError if nothing of that id waits, and ConflictError if it was delivered.
        """
        return self._client.call(calls.cancel_scheduled(topic, scheduled_id))

    def group_offsets(self, group: str, topic: str | None = None) -> list[CommittedOffset]:
        """The offsets that a group has committed, in all topics or one; empty for an unknown group.

        One request per thousand, or fewer with long metadata.
        """
        return self._client.call(calls.group_offsets(group, topic))

    def commit_group_offsets(
        self, group: str, offsets: Mapping[TopicPartition, int], *, metadata: str = "", may_go_back: bool = False
    ) -> None:
        """Set a group's offsets (of the next records to read).

        An offset below the group's commit needs `may_go_back`. If the group commits meanwhile, the offset is refused.
        Simple consumers that run do not notice. Raises ConflictError for such offsets, and if a member owns the
        partition: see `reset_group_offsets`.
        """
        self._client.call(calls.commit_group_offsets(group, offsets, metadata, may_go_back=may_go_back))

    def list_groups(self) -> list[Group]:
        """All groups, sorted by name; one request per hundred."""
        return self._client.call(group_admin_calls.list_groups())

    def describe_group(self, group: str) -> GroupDescription:
        """The group's members, the owner of each partition, and its lag. Raises NotFoundError.

        One request per thousand members and partitions. They may move between two requests.
        """
        return self._client.call(group_admin_calls.describe_group(group))

    def alter_group(self, group: str, config: Mapping[str, Any]) -> Group:
        """Change settings; None sets one back to its default. Makes the group if there is none."""
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
        """Set a group's offsets in all partitions of a topic, or in some. Give one of four targets.

        `to` is "earliest" or "latest". `timestamp_ms` is the first record at or after a time; the end, if there is
        none. `shift_by` moves by so many records, not beyond the ends. `offsets` gives them by partition.

        Raises ConflictError while the group has members, unless you `force` it: the members are fenced, and start again
        from the new offsets. It tries all partitions, then raises the first error.
        """
        target = group_admin_calls.ResetTarget(to=to, timestamp_ms=timestamp_ms, shift_by=shift_by, offsets=offsets)
        return self._client.call(
            group_admin_calls.reset_offsets(group, topic, target, partitions=partitions, dry_run=dry_run, force=force)
        )

    def delete_group_offsets(
        self, group: str, topic: str, partitions: Sequence[int] | None = None
    ) -> dict[int, int | None]:
        """Delete a group's offsets in a topic, of all partitions or some. The offsets that went, by partition.

        Raises ConflictError while a member of the group reads the topic, and NotFoundError. It tries all partitions,
        then raises the first error.
        """
        return self._client.call(group_admin_calls.delete_offsets(group, topic, partitions))

    def delete_group(self, group: str) -> None:
        """Delete the group and its offsets. Raises ConflictError while it has members, and NotFoundError."""
        self._client.call(group_admin_calls.delete_group(group))

    def create_share_group(
        self,
        group: str,
        topics: str | Iterable[str],
        config: Mapping[str, Any] | None = None,
        *,
        exist_ok: bool = False,
    ) -> ShareGroup:
        """Create a share group of one or more topics. If it exists, it gets these topics and settings.

        With `exist_ok` a group that exists stays as it is, and you get it.
        Raises UnknownTopicError, and InvalidError for a bad name or setting. The settings `ordering` and `start` are
        fixed when the group is made: "latest" starts behind the records that there are by then.
        """
        if exist_ok:
            with suppress(NotFoundError):
                return (self.describe_share_group(group)).group
        return self._client.call(share_group_calls.create_share_group(group, topics, {} if config is None else config))

    def list_share_groups(self) -> list[ShareGroup]:
        """All share groups, sorted by name; one request per hundred."""
        return self._client.call(share_group_calls.list_share_groups())

    def describe_share_group(self, group: str) -> ShareGroupDescription:
        """The group, and what each partition has locked, available and waiting. Raises NotFoundError."""
        return self._client.call(share_group_calls.describe_share_group(group))

    def alter_share_group(
        self, group: str, config: Mapping[str, Any], topics: str | Iterable[str] | None = None
    ) -> ShareGroup:
        """Change settings; None sets one back to its default. `topics` replace the group's. Raises NotFoundError.

        Two requests.
        """
        return self._client.call(share_group_calls.alter_share_group(group, config, topics))

    def reset_share_group(
        self,
        group: str,
        topic: str,
        *,
        to: str | None = None,
        offset: int | None = None,
        timestamp_ms: int | None = None,
        partitions: Sequence[int] | None = None,
        dry_run: bool = False,
    ) -> dict[int, ResetOffset]:
        """Hand out a topic's records again from a place on, in all partitions or some. Give one of three targets.

        `to` is "earliest" or "latest". All locks of these partitions are lost, and records below the place count as
        finished. It tries all partitions, then raises the first error. A dry run changes nothing.
        """
        target = share_group_calls.ShareResetTarget(to=to, offset=offset, timestamp_ms=timestamp_ms)
        return self._client.call(share_group_calls.reset_share_group(group, topic, target, partitions, dry_run=dry_run))

    def delete_share_group(self, group: str) -> None:
        """Delete the group and its state. All its locks are lost. Raises NotFoundError."""
        self._client.call(share_group_calls.delete_share_group(group))

    def describe_dead_letters(self, topic: str) -> DeadLetterCounts:
        """Tell which records of a dead-letter topic are open: no redrive has moved or dropped them."""
        return self._client.call(share_group_calls.describe_dead_letters(topic))

    def redrive(self, topic: str, **wish: Unpack[RedriveOptions]) -> Redrive:
        """Move some records of a dead-letter topic back to where they came from, or to the topic `to`.

        `filter` is a filter policy over their headers, as {"penstock.dead-letter.group": ["workers"]}. Records that do
        not match, or have no topic to go to, stay: they count as `skipped`. `records_max` bounds one call, 500 at most.
        Call it again with the `cursor` of its answer, until that is None. Each record moves once, in a transaction,
        also when a call dies or two run at once.

        `record` is the partition and offset of the one letter to move. With `drop=True` letters move nowhere, and are
        done: that needs the right to delete the topic.
        """
        return self._client.call(share_group_calls.redrive(topic, wish))

    def put_subscription(
        self,
        name: str,
        topics: str | Iterable[str] | None = None,
        target: Mapping[str, Any] | None = None,
        config: Mapping[str, Any] | None = None,
    ) -> Subscription:
        """Create a subscription, or change what you give: its topics, its target, some of its settings.

        A new one needs topics and a target, such as {"lambda": "<ARN>"}. None in place of a setting is its default. A
        repeat starts the deliveries again. Raises AccessDeniedError with the way to let the service in, InvalidError
        and UnknownTopicError.
        """
        return self._client.call(subscription_calls.put_subscription(name, topics, target, config))

    def create_mirror(
        self,
        name: str,
        topics: str | Iterable[str],
        url: str,
        *,
        region: str = "",
        role: str = "",
        prefix: str = "",
        source: str = "",
    ) -> Subscription:
        """Let the stage at `url` mirror these topics: the same records at the same offsets, a second or two later.

        This stage calls it under `role`, which a stage on AWS needs, with its `region`. The mirrored topics have the
        same names behind `prefix`. `source` is this stage's URL, for clients of the mirror. The mirror is a
        subscription of this name: describe, pause and delete it as such. Raises AccessDeniedError and InvalidError.
        """
        stage = {"url": url, "region": region, "role": role, "prefix": prefix, "source": source}
        return self._client.call(subscription_calls.create_mirror(name, topics, stage))

    def promote_topic(self, name: str, *, is_dry_run: bool = False) -> PromotedTopic:
        """Let a mirrored topic of this stage take appends, and no push any more. Tells where each partition ended.

        It tells the offsets of the source's groups, too. A dry run tells the same, and changes nothing. Give the
        offsets to groups here by `commit_group_offsets` before you promote, so that no reader begins without them.

        Records that the source has behind that are missing here. If it still runs, move its topic first, and use
        `promote_moved`. Raises UnknownTopicError, and InvalidError for a topic that is no mirror.
        """
        promoted, _ = self._client.call(subscription_calls.promote_topic(name, is_dry_run=is_dry_run))
        return promoted

    def move_topic(self, name: str, mirror: str, *, is_dry_run: bool = False) -> MovedTopic:
        """End a topic of this stage for its mirror. It takes no appends from then on, and clients are told where to go.

        Tells how far the mirror is: repeat it until that `is_mirrored`, then call `promote_moved` there. A dry run only
        tells. Raises UnknownTopicError, and InvalidError for a subscription that is no mirror of it, or is paused.
        """
        return self._client.call(subscription_calls.move_topic(name, mirror, is_dry_run=is_dry_run))

    def promote_moved(self, moved: MovedTopic, topic_id: str) -> PromotedTopic | None:
        """Let the mirrored topic of this stage, with this id, take appends where it is equal to its moved source.

        None if a partition is not equal yet: pushes go on, so repeat it. Raises ConflictError for a move that was given
        up, or a topic that was made anew.
        """
        promoted, is_promoted = self._client.call(subscription_calls.promote_topic(moved.topic, moved, topic_id))
        return promoted if is_promoted else None

    def refuse_move(self, name: str, move: int) -> None:
        """Let the move of this number promote no topic of this stage. Its source may be reopened then.

        Raises ConflictError once a promotion has begun.
        """
        self._client.call(subscription_calls.refuse_move(name, move))

    def reopen_topic(self, name: str, move: int, *, is_mirror_lost: bool = False) -> None:
        """Let a moved topic of this stage take appends again. Call `refuse_move` at its mirror first.

        With `is_mirror_lost` you need not. The mirror may have been promoted then, so it is another log from now on.
        Raises UnknownTopicError, and ConflictError for another move.
        """
        self._client.call(subscription_calls.reopen_topic(name, move, is_mirror_lost=is_mirror_lost))

    def resync_topic(self, name: str) -> None:
        """Remove a mirrored topic of this stage. The next push makes it anew, from the source's first record on."""
        self._client.call(subscription_calls.resync_topic(name))

    def return_topic(self, name: str, move: int, mirror: str, topic_id: str, source: str) -> None:
        """Let a moved topic of this stage mirror the one that it was moved to, from the offset where it ended.

        That one must have been promoted. It has `topic_id` at the stage `source`, whose subscription `mirror` pushes
        it: create that next. Raises UnknownTopicError, and ConflictError for another move.
        """
        self._client.call(subscription_calls.return_topic(name, move, mirror, topic_id, source))

    def list_subscriptions(self) -> list[Subscription]:
        """All subscriptions, sorted by name; one request per hundred."""
        return self._client.call(subscription_calls.list_subscriptions())

    def describe_subscription(self, name: str) -> SubscriptionDescription:
        """The subscription, and the outcome of the last delivery of each partition. Raises NotFoundError."""
        return self._client.call(subscription_calls.describe_subscription(name))

    def pause_subscription(self, name: str) -> Subscription:
        """Begin no further delivery. A delivery that runs may go on for a minute. Raises NotFoundError."""
        return self._client.call(subscription_calls.pause_subscription(name))

    def resume_subscription(self, name: str) -> Subscription:
        """Go on where the subscription was. Raises NotFoundError."""
        return self._client.call(subscription_calls.resume_subscription(name))

    def delete_subscription(self, name: str) -> None:
        """Delete the subscription. The records stay in their topics. Raises NotFoundError."""
        self._client.call(subscription_calls.delete_subscription(name))

    def put_schedule(
        self,
        name: str,
        cron: str | None = None,
        topic: str | None = None,
        record: Mapping[str, Any] | bytes | str | None = None,
        *,
        time_zone: str | None = None,
        enabled: bool | None = None,
    ) -> Schedule:
        """Create a schedule, or change what you give of one. A new one needs `cron`, `topic` and `record`.

        `cron` is minute, hour, day, month and weekday in the local time of `time_zone`, by default UTC. `record` is its
        value, or as the HTTP API has it, such as {"key": "k", "value": "go", "headers": [["a", "b"]]}. You need the
        right to write to the topic. Raises InvalidError, RecordTooLargeError and UnknownTopicError.
        """
        settings = {"time_zone": time_zone, "enabled": enabled}
        return self._client.call(schedule_calls.put_schedule(name, cron, topic, record, settings))

    def list_schedules(self) -> list[Schedule]:
        """All schedules, sorted by name; one request per hundred."""
        return self._client.call(schedule_calls.list_schedules())

    def describe_schedule(self, name: str) -> Schedule:
        """The schedule, its next run and its last one. Raises NotFoundError."""
        return self._client.call(schedule_calls.describe_schedule(name))

    def delete_schedule(self, name: str) -> None:
        """Delete the schedule. No record of it comes later; those in its topic stay. Raises NotFoundError."""
        self._client.call(schedule_calls.delete_schedule(name))

    def list_acls(self, *, principal: str | None = None, resource: str | None = None) -> list[AccessRule]:
        """All access rules by resource, or those with these very texts; one request per thousand."""
        return self._client.call(acl_calls.list_acls(principal, resource))

    def change_acls(self, add: Iterable[AccessRule] = (), remove: Iterable[AccessRule] = ()) -> AccessChange:
        """Add some access rules and remove others, 100 together, all or none. They hold within 10 seconds.

        Raises InvalidError for a bad rule, and ConflictError if there are too many.
        """
        return self._client.call(acl_calls.change_acls(add, remove))

    def check_acl(self, operation: str, resource: str, *, principal: str | None = None) -> AccessDecision:
        """Ask if a principal may do the operation on a resource, such as "topic:orders". None is you."""
        return self._client.call(acl_calls.check_acl(operation, resource, principal))

    def release_transactional_id(self, transactional_id: str) -> None:
        """Let the IAM role or user that begins with this id next have it.

        An id belongs to the role or user that began it first, and the service refuses every other one. Release it when
        its program gets another role. Stop the program first: until another role begins, the old one may go on. Raises
        NotFoundError if no producer has ever begun with the id.
        """
        self._client.call(calls.release_transactional_id(transactional_id))

    def list_zones(self) -> list[Zone]:
        """Every zone and its state, in configured order."""
        return self._client.call(calls.list_zones())

    def take_zone_out(self, zone: str, reason: str = "") -> Zone:
        """Stop writing to a zone, and read from it last. Raises ConflictError if it would leave no majority in sync."""
        return self._client.call(calls.move_zone(zone, "taken_out", reason))

    def let_zone_in(self, zone: str, reason: str = "") -> Zone:
        """Let a zone that was taken out catch up, or have a zone in sync looked over after its bucket was harmed.

        The zone is in sync again by itself when it holds every committed segment: in minutes, or as long as the copying
        takes. Raises ConflictError for a zone that is out of sync, which comes back by itself, and if it would leave no
        majority in sync.
        """
        return self._client.call(calls.move_zone(zone, "catching_up", reason))

    def partitions(self, topics: Iterable[str]) -> list[TopicPartition]:
        """All partitions of the topics: one request each."""
        return self._client.call(calls.all_partitions(topics))

    def list_quotas(self) -> list[Quota]:
        """All quotas, sorted by subject and name; one request per thousand."""
        return self._client.call(acl_calls.list_quotas())

    def set_quota(self, subject: str, name: str, limits: Mapping[str, int], *, shared: bool = False) -> Quota:
        """Set all limits of a "principal" or a "topic"; the name "*" is the default of all without a quota.

        A limit that you leave out is taken away. A principal's name is the ARN of an IAM user or role, without a
        session. A name may end in "*": each name that matches has these limits, and with `shared` all of them together
        have them once. The most specific quota that has a limit holds. Takes effect everywhere within 30 seconds.
        Raises InvalidError, which names the value.
        """
        return self._client.call(acl_calls.set_quota(subject, name, limits, shared=shared))

    def delete_quota(self, subject: str, name: str) -> None:
        """Delete a quota: the default holds from then on. Raises NotFoundError if there is none."""
        self._client.call(acl_calls.delete_quota(subject, name))

    def close(self) -> None:
        """Close the connections. A later call opens new ones."""
        self._client.close()

    def __enter__(self) -> Self:
        """The client."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Close it."""
        self.close()
