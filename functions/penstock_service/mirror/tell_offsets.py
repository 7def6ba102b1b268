"""Tell the mirror what groups have committed in a topic, so that a promotion without the source can give it to them.

```
 read the groups, and their leases on the topic ─▶ as told before?  rest
                                                   else one request, in place of the mirror's last telling
    it has another one by now:  once more from the start, in place of that
```
The delivery of a topic's first partition does it, at most each `MIRROR_OFFSETS_MS`. While offsets change, it comes
back by itself. The look of each five minutes wakes it after a rest.
"""

from dataclasses import replace

from penstock_core.errors import PenstockError
from penstock_core.groups.lease import CommittedOffset
from penstock_core.ids import GroupName, Offset, Partition, TopicId
from penstock_core.limits import (
    GROUP_LIST_MAX,
    GROUP_PAGE_MAX,
    MIRROR_OFFSETS_GROUP_MS,
    MIRROR_OFFSETS_GROUPS,
    MIRROR_OFFSETS_MS,
    PUSH_TARGET_MS,
    SHARE_GROUP_LIST_MAX,
)
from penstock_core.mirror.group_offsets import (
    MirroredOffset,
    MirroredOffsets,
    OffsetsTelling,
    digest_of,
    encode_offsets,
    fitted,
)
from penstock_core.mirror.push import MirrorPush, PushAnswer, SourceTopic
from penstock_core.push.batch import Failed
from penstock_core.push.delivery import OffsetsNote
from penstock_core.push.targets.target import StageTarget
from penstock_core.share.share_group import ShareGroup
from penstock_core.share.share_state import ShareKey
from penstock_core.storage.groups.lease_item import committed_of
from penstock_service.instance.instance import Instance
from penstock_service.push.lane_work import LaneWork

_TRIES = 3  # the first telling of all learns its number
_OF_ALL = "-"  # partitions: no log


def tell_offsets(work: LaneWork, topic_id: TopicId, told: SourceTopic, note: OffsetsNote | None) -> OffsetsNote:
    """The note after the telling, to be stored.

    One query for 100 groups, one for each of them, one of all share groups, a read for 100 partitions of each that has
    the topic, and one request if their offsets have changed. Raises nothing: if reads fail, or the mirror refuses, or
    is away, it is told later. Records are pushed all the same.
    """
    version = work.subscription.version
    is_known = note is not None and note.version == version
    note = replace(note or OffsetsNote(next_ms=0), version=version)
    for _ in range(_TRIES):
        read_ms = work.instance.clock.now_ms()
        note = replace(note, next_ms=read_ms + MIRROR_OFFSETS_MS, is_quiet=True)
        if not work.has_time():
            break
        try:
            offsets, groups = _read(
                work.instance, topic_id, told, read_ms
            )  # after the number that the telling replaces
        except PenstockError as error:
            return _not_told(work, note, str(error))
        note = replace(note, next_ms=read_ms + max(MIRROR_OFFSETS_MS, MIRROR_OFFSETS_GROUP_MS * groups))
        digest = digest_of(offsets)
        has_none = not (offsets.groups or offsets.share_groups or note.number or offsets.left_out)
        if has_none or (is_known and digest == note.digest):
            break
        if offsets.left_out:
            work.instance.telemetry.log("offsets_left_out", **_facts(work), groups=offsets.left_out)
        answer = _send(work, told, offsets, note.number)
        note = replace(note, digest="")
        if isinstance(answer, Failed) or answer.offsets_number is None:
            return _not_told(work, note, answer.error if isinstance(answer, Failed) else "its release keeps none")
        note = replace(note, number=answer.offsets_number, is_quiet=False)
        if answer.is_offsets_kept:
            told_of = [*offsets.groups.values(), *offsets.share_groups.values()]
            work.instance.telemetry.count("offsets_mirrored", sum(map(len, told_of)))
            return replace(note, digest=digest)
    return note


def _facts(work: LaneWork) -> dict[str, str]:
    return {"subscription": work.subscription.name}


def _not_told(work: LaneWork, note: OffsetsNote, why: str) -> OffsetsNote:
    work.instance.telemetry.log("offsets_not_told", **_facts(work), error=why)
    return note


def _send(work: LaneWork, told: SourceTopic, offsets: MirroredOffsets, replaces: int) -> PushAnswer | Failed:
    target = work.subscription.target
    assert isinstance(target, StageTarget)
    push = MirrorPush(
        mirror=work.subscription.name,
        source=target.source,
        topic=told,
        partition=0,
        log_id=_OF_ALL,
        base_offset=Offset(0),
        parts=(),
        offsets=OffsetsTelling(replaces=replaces, read_ms=offsets.read_ms, left_out=offsets.left_out),
        data=encode_offsets(offsets),
    )
    return work.instance.stores.targets.mirror(target, push, PUSH_TARGET_MS)


def _read(instance: Instance, topic_id: TopicId, told: SourceTopic, read_ms: int) -> tuple[MirroredOffsets, int]:
    """The offsets of the groups and share groups on the topic, and of how many groups they were read."""
    names = [*instance.stores.memberships.registered("", GROUP_LIST_MAX)]
    while names and len(names) % GROUP_LIST_MAX == 0:  # the last page was full
        page = instance.stores.memberships.registered(names[-1], GROUP_LIST_MAX)
        if not page:
            break
        names += page
    chosen = names[:MIRROR_OFFSETS_GROUPS]
    read = instance.executor.map(lambda name: _committed(instance, name, topic_id), chosen).all_ok()
    committed = dict(zip(chosen, read, strict=True))
    share_groups: list[ShareGroup] = []
    after = ""
    while of_page := instance.stores.share.list_groups(after, SHARE_GROUP_LIST_MAX):
        share_groups += [each for each in of_page if topic_id in each.topics.values()]
        after = of_page[-1].name
    sharing = share_groups[:MIRROR_OFFSETS_GROUPS]
    found = instance.executor.map(lambda each: _unfinished(instance, each, topic_id, told.partitions), sharing).all_ok()
    places = {group.name: of_group for group, of_group in zip(sharing, found, strict=True) if of_group}
    unread = len(names) - len(chosen) + len(share_groups) - len(sharing)
    return fitted(committed, read_ms, unread, places), len(chosen) + len(sharing)


def _unfinished(
    instance: Instance, group: ShareGroup, topic_id: TopicId, partitions: int
) -> dict[Partition, MirroredOffset]:
    """The first offset of each partition that the group has not finished. All below it are."""
    keys = [ShareKey(group.share_group_id, topic_id, Partition(number)) for number in range(partitions)]
    states = instance.stores.share.find_states(keys)
    return {key.partition: MirroredOffset(offset=state.start_offset) for key, state in states.items()}


def _committed(instance: Instance, group: GroupName, topic_id: TopicId) -> list[CommittedOffset]:
    found: list[CommittedOffset] = []
    after, has_more = "", True
    while has_more:
        leases, has_more = instance.stores.groups.lease_page(group, topic_id, after, GROUP_PAGE_MAX)
        found += [each for each in map(committed_of, leases) if each is not None]
        after = str(leases[-1].partition) if leases else ""
    return found
