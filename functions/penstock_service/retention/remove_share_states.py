"""Remove the states of share groups that nothing reads any more: those of deleted groups, and those of deleted topics.

A state begins only while its group is there (`ShareStore.begin_state`) and its partition has a head. So both removals
are final, and each can be done again:

- A deleted group leaves a note, which goes after its last state. Normally the deletion itself removes both.
- The states of a deleted topic go after its heads and pages, and before the topic's note.

A group that has left a topic keeps its state there: it goes on from it if the topic is added again. So the group's item
notes each topic that it has left, also one that was made anew under its name, until the topic's removal has taken
the states.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence

from penstock_core.errors import PenstockError
from penstock_core.ids import Partition, TopicId
from penstock_core.limits import SHARE_GROUP_LIST_MAX
from penstock_core.log.topic import DeletedTopic
from penstock_core.share.share_group import ShareGroup, is_deletion_note, redrive_name
from penstock_core.share.share_state import ShareKey
from penstock_service.instance.instance import Instance
from penstock_service.retention.retention_run import RetentionResult, RetentionRun


def remove_deleted_groups(run: RetentionRun) -> RetentionResult:
    """Removes the states of deleted share groups, and then the notes of these.

    One query where no deletion has died. Otherwise also a scan of the topics, and one delete for each partition. Raises
    nothing: failures are counted, and the next run meets them again.
    """
    stores = run.instance.stores
    try:
        notes = [group for group in _pages(stores.share.hidden_groups) if is_deletion_note(group)]
        if not notes:
            return RetentionResult()
        partitions = {topic.topic_id: topic.head_count for topic in stores.topics.list()}
        partitions |= {topic.topic_id: topic.partitions for topic in stores.topics.deleted()}
    except PenstockError:
        return RetentionResult(failures=1)
    failures = 0
    for note in notes:
        if run.is_time_up:
            return RetentionResult(failures=failures, is_finished=False)
        topics = {topic_id: partitions.get(topic_id, 0) for topic_id in note.topic_ids}
        failures += _remove(run.instance, _states(note, topics), [note])
    return RetentionResult(failures=failures)


def remove_states_of_topic(run: RetentionRun, topic: DeletedTopic) -> int:
    """Removes the states that share groups have in the topic; gives how many deletes failed.

    One query for each 100 share groups, one delete for each partition of the groups that read the topic or have left
    it, and one write for each that has left it.
    """
    share = run.instance.stores.share
    try:
        groups = [*_pages(share.list_groups), *_pages(share.hidden_groups)]
    except PenstockError:
        return 1
    bound = [group for group in groups if topic.topic_id in group.topic_ids]
    keys = [key for group in bound for key in _states(group, {topic.topic_id: topic.partitions})]
    hidden = [group for group in bound if group.name == redrive_name(topic.topic_id)]
    left = [group for group in bound if topic.topic_id in group.left_topics]
    return _remove(run.instance, keys, hidden) or len(
        run.instance.executor.map(lambda group: share.change_group(group, group.without(topic.topic_id)), left).errors
    )


def _remove(instance: Instance, keys: Iterable[ShareKey], groups: Sequence[ShareGroup]) -> int:
    """Removes the states, then the hidden groups; gives how many deletes failed."""
    share = instance.stores.share
    failures = len(instance.executor.map(share.delete_state, [*keys]).errors)
    return failures or len(instance.executor.map(share.forget_group, groups).errors)


def _states(group: ShareGroup, partitions: dict[TopicId, int]) -> Iterator[ShareKey]:
    for topic_id, count in partitions.items():
        for number in range(count):
            yield ShareKey(group.share_group_id, topic_id, Partition(number))


def _pages(read: Callable[[str, int], Sequence[ShareGroup]]) -> Iterator[ShareGroup]:
    after = ""
    while found := read(after, SHARE_GROUP_LIST_MAX):
        yield from found
        after = found[-1].name
