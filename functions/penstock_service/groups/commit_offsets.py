"""Commit a group's offsets: as the member that owns the partitions, or without a member where no member owns them.

A simple consumer chooses its own partitions and commits without a member. The commit is refused while a live member
owns the lease. If the owner is gone, the commit takes the lease away, so that the owner cannot come back and commit.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from penstock_core.errors import ErrorCode, PenstockError, shown
from penstock_core.groups.lease import CommittedOffset, LeaseToken, MayGoBack, SeenCommit, check_committed
from penstock_core.ids import GroupName, MemberName, Offset, member_name, parse_group_name
from penstock_core.limits import COMMIT_OFFSETS_MAX, GROUP_PAGE_MAX
from penstock_core.log.index import check_position
from penstock_core.log.topic import Topic
from penstock_core.outcomes import Outcome, Outcomes, as_maybe_applied, errors_maybe_applied
from penstock_core.storage.groups.lease_item import committed_of
from penstock_service.groups.claim_group import keep_listed, list_group, release_abandoned_lease
from penstock_service.index.heads import announce_reader
from penstock_service.instance.caches import TopicCache
from penstock_service.instance.instance import Instance
from penstock_service.instance.update_window import UpdateWindow


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitEntry:
    """The offset of one topic-partition. `offset` is the one to read next, in `[0, OFFSET_MAX]`.

    `lease_epoch` is that of the member's lease, None without a member. An offset below the committed one counts only if
    `back_from` is the group's last commit. `topic_id` is the topic that the caller has read, None if it does not say.
    `leader_epoch` is kept with the offset.
    """

    topic: str
    partition: int
    offset: int
    metadata: str = ""
    lease_epoch: int | None = None
    back_from: SeenCommit | None = None
    topic_id: str | None = None
    leader_epoch: int | None = None


def commit_offsets(
    instance: Instance,
    group_name: str,
    entries: Sequence[CommitEntry],
    member_id: str | None = None,
    instance_id: str | None = None,
    *,
    principal: str = "",
) -> Outcomes[None]:
    """None or an error per entry, in order. One conditional update per entry.

    Without a member also one read per topic, and one of the heads for 100 partitions (docs/adr/0022). A commit without
    a member that meets an owner reads the lease, the group and the owner. The first one for a partition may make the
    group, which counts as the principal's then: it is refused once, and costs what `list_group` and `keep_listed` cost.

    An entry's error is LEASE_FENCED if the lease is not the member's, LEASE_HELD if the lease has an owner and the
    commit names no member, OFFSET_BEHIND, or OFFSET_OUT_OF_RANGE above `COMMIT_OFFSET_MAX` and within a jump
    (`check_position`). It is UNKNOWN_TOPIC_ID if the name stands for another topic than the caller has read, and
    QUOTA_EXCEEDED if the principal may have no more groups. Raises that if it holds for all entries, INVALID_NAME, and
    INVALID_REQUEST for too many entries or a topic-partition that is named twice.
    """
    group = parse_group_name(group_name)
    _check_entries(entries)
    if member_id is not None:
        owner = member_name(member_id, instance_id)
        return instance.executor.map(lambda entry: _commit_as_owner(instance, group, owner, entry), entries)
    if instance_id is not None:
        raise PenstockError(ErrorCode.INVALID_REQUEST, "a commit with an instance id names its member id too")
    return _commit_alone(instance, principal, group, entries)


def _commit_alone(
    instance: Instance, principal: str, group: GroupName, entries: Sequence[CommitEntry]
) -> Outcomes[None]:
    """Commit without a member. What topics and heads said counts while the window is open, and the claim, too."""
    window = UpdateWindow.open(instance.clock)
    # Read past the cache: a commit under the id of a deleted topic would be lost.
    names = list(dict.fromkeys(entry.topic for entry in entries))
    found = instance.executor.map(instance.topic_cache.read_through, names)
    refused = {name: topic for name, topic in zip(names, found, strict=True) if isinstance(topic, PenstockError)}

    def check(entry: CommitEntry) -> CommittedOffset:
        if entry.topic in refused:
            raise refused[entry.topic]
        if entry.lease_epoch is not None:
            raise PenstockError(ErrorCode.INVALID_REQUEST, "a commit with lease epochs names its member id")
        return _committed(instance.topic_cache, entry, instance.clock.now_ms())[1]

    checked = Outcomes.collect(check, entries)
    heads = instance.stores.log.heads([each.partition for each in checked.ok])

    def commit_one(index: int, *, may_create: bool = False) -> None:
        entry, committed = entries[index], checked[index]
        if isinstance(committed, PenstockError):
            raise committed
        if committed.partition not in heads:
            raise PenstockError(ErrorCode.UNKNOWN_TOPIC, f"topic {entry.topic!r} is being deleted")
        check_position(heads[committed.partition], entry.partition, entry.offset)
        _commit_unowned(instance, window, group, committed, entry.back_from or False, may_create)

    done = instance.executor.map(commit_one, range(len(entries)))
    first = [index for index, each in enumerate(done) if _is_first(each)]
    if not first:
        return _announced(instance, checked, done)
    try:
        list_group(instance, window, principal, group)
    except PenstockError as error:
        if len(first) == len(done):
            raise
        return _announced(instance, checked, done.merge(dict.fromkeys(first, error)))
    made = instance.executor.map(lambda index: commit_one(index, may_create=True), first)
    keep_listed(instance, principal, group)
    return _announced(instance, checked, done.merge(dict(zip(first, made, strict=True))))


def _announced(instance: Instance, checked: Outcomes[CommittedOffset], done: Outcomes[None]) -> Outcomes[None]:
    """`done`, once retention knows of each commit: it may be a partition's first, or repeat one that nobody announced.

    The group is listed by now, because retention reads the list.
    """
    made = {index: each for index, each in enumerate(checked) if isinstance(each, CommittedOffset)}
    made = {index: each for index, each in made.items() if done[index] is None}
    told = instance.executor.map(lambda each: announce_reader(instance, each.topic, each.partition), [*made.values()])
    failed = {index: each for index, each in zip(made, told, strict=True) if isinstance(each, PenstockError)}
    return done.merge({index: as_maybe_applied(error) for index, error in failed.items()})


def _is_first(outcome: Outcome[None]) -> bool:
    """True if the group has no lease on the partition: its commit may make the group."""
    return outcome is not None and outcome.code is ErrorCode.UNKNOWN_GROUP


def _commit_unowned(
    instance: Instance,
    window: UpdateWindow,
    group: GroupName,
    committed: CommittedOffset,
    may_go_back: MayGoBack,
    may_create: bool,
) -> None:
    """Commit where no member owns the lease, or take the lease away from an owner that is gone."""
    window.check()
    try:
        instance.stores.groups.commit(group, committed, None, may_go_back, may_create)
    except PenstockError as error:
        if error.code is not ErrorCode.LEASE_HELD:
            raise
        if not release_abandoned_lease(instance, group, committed.partition):
            raise
        window.check()
        instance.stores.groups.commit(group, committed, None, may_go_back, may_create)


def _commit_as_owner(instance: Instance, group: GroupName, owner: MemberName, entry: CommitEntry) -> None:
    """The remembered topic id will do: under the id of a deleted topic the member still has its lease, or is fenced."""
    if entry.lease_epoch is None:
        raise PenstockError(
            ErrorCode.INVALID_REQUEST,
            f"a member's commit for partition {entry.partition} of topic {shown(entry.topic)} names its lease_epoch",
        )
    token = LeaseToken(owner=owner, epoch=entry.lease_epoch)
    topic, committed = _committed(instance.topic_cache, entry, instance.clock.now_ms())
    check_jumps(instance, topic, committed)
    instance.stores.groups.commit(group, committed, token, entry.back_from or False, False)
    if entry.back_from is not None:
        with errors_maybe_applied():
            announce_reader(instance, topic.name, committed.partition)


def _committed(topic_cache: TopicCache, entry: CommitEntry, now_ms: int) -> tuple[Topic, CommittedOffset]:
    topic, key = topic_cache.get_partition(entry.topic, entry.partition, entry.topic_id)
    committed = CommittedOffset(
        topic=topic.name,
        partition=key,
        offset=Offset(entry.offset),
        metadata=entry.metadata,
        committed_at_ms=now_ms,
        leader_epoch=entry.leader_epoch,
    )
    check_committed(committed)
    return topic, committed


def check_jumps(instance: Instance, topic: Topic, committed: CommittedOffset) -> None:
    """Raises OFFSET_OUT_OF_RANGE for an offset within a jump (`check_position`).

    Costs nothing, unless the topic was restored: then one read of the head.
    """
    if topic.was_restored:
        head = instance.stores.log.heads([committed.partition]).get(committed.partition)
        if head is not None:
            check_position(head, committed.partition.partition, committed.offset)


def _check_entries(entries: Sequence[CommitEntry]) -> None:
    if len(entries) > COMMIT_OFFSETS_MAX:
        raise PenstockError(
            ErrorCode.INVALID_REQUEST, f"{len(entries)} offsets in one commit: send {COMMIT_OFFSETS_MAX} at most"
        )
    for (topic_name, partition), count in Counter((entry.topic, entry.partition) for entry in entries).items():
        if count > 1:
            raise PenstockError(
                ErrorCode.INVALID_REQUEST,
                f"partition {partition} of topic {shown(topic_name)} stands {count} times in one commit: "
                "send its last one",
            )


def committed_offsets(instance: Instance, group_name: str, topic_name: str | None) -> Sequence[CommittedOffset]:
    """The group's commits on one topic, or on all (None), sorted by topic and partition. All pages, one by one."""
    found: list[CommittedOffset] = []
    after: str | None = ""
    while after is not None:
        page, after = committed_page(instance, group_name, topic_name, after, GROUP_PAGE_MAX)
        found += page
    return sorted(found, key=lambda committed: (committed.topic, committed.partition.partition))


def committed_page(
    instance: Instance, group_name: str, topic_name: str | None, after: str, limit: int
) -> tuple[Sequence[CommittedOffset], str | None]:
    """Up to `limit` of the group's commits on one topic, or on all (None), and the `after` of the next page, or None.

    They come in the order of `str(committed.partition)`, from behind `after`, which is such a text or empty. Leaves out
    commits on topics that were deleted since, so a page may be empty and not the last. One query, and one read per
    topic. Raises INVALID_NAME, and UNKNOWN_TOPIC for `topic_name`.
    """
    group = parse_group_name(group_name)
    # Read past the cache: in a topic created again, the group would start from its offset in the old topic.
    only = None if topic_name is None else instance.topic_cache.read_through(topic_name).topic_id
    leases, has_more = instance.stores.groups.lease_page(group, only, after, limit)
    found = [committed for committed in map(committed_of, leases) if committed is not None]
    current = {only} if only else _current_ids(instance, found)
    alive = [committed for committed in found if committed.partition.topic_id in current]
    return alive, str(leases[-1].partition) if has_more else None


def _current_ids(instance: Instance, found: Sequence[CommittedOffset]) -> set[str]:
    """The ids that the topics of these commits have now."""
    names = list(dict.fromkeys(committed.topic for committed in found))
    topics = instance.executor.map(instance.topic_cache.read_through, names)
    for error in topics.errors:
        if error.code is not ErrorCode.UNKNOWN_TOPIC:
            raise error
    return {topic.topic_id for topic in topics.ok}
