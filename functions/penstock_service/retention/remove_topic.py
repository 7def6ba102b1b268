"""Remove the data that a deleted topic, or a creation that died, left behind: heads, pages, and last the note.

The order makes each step final:

1. The heads go first, and the note tells when they were gone. After that no append succeeds. A roll that read a head
   before may put a page yet, within `PAGE_PUT_MS_MAX` of its read (docs/adr/0019).
2. The timers that wait, and the pages, go once that time is older than the grace. So no function still reads them, and
   no roll brings another.
3. The states of share groups in the topic go next: no state begins without a head (remove_share_states.py).
4. Heads above the last partition go next. An unfinished partition increase may have left them behind.
5. The note that names all of this goes last. As long as it exists, the next run does the steps again.

If a creation has not come to its end within the grace, this first gives it up. It can never get its name then, and its
heads are removed in the same way.

Remove the states of share groups that nothing reads any more: those of deleted groups, and those of deleted topics.

A state begins only while its group is there (`ShareStore.begin_state`) and its partition has a head. So both removals
are final, and each can be done again:

- A deleted group leaves a note, which goes after its last state. Normally the deletion itself removes both.
- The states of a deleted topic go after its heads and pages, and before the topic's note.

A group that has left a topic keeps its state there: it goes on from it if the topic is added again. So the group's item
notes each topic that it has left, also one that was made anew under its name, until the topic's removal has taken
the states.

One run of retention: its bounds and counts, and the deletion of pages that all its parts share.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from penstock_core.errors import PenstockError
from penstock_core.ids import Offset, Partition, PartitionKey, TopicId
from penstock_core.limits import (
    INDEX_EXPIRY_PAGES,
    SHARE_GROUP_LIST_MAX,
    TIMER_MS_MAX,
    TIMERS_READ_MAX,
    TOPIC_PARTITIONS_MAX,
)
from penstock_core.log.timer import PlaceRange
from penstock_core.log.topic import DeletedTopic
from penstock_core.share.share_group import ShareGroup, is_deletion_note, redrive_name
from penstock_core.share.share_state import ShareKey
from penstock_service.index.heads import waiting_timers
from penstock_service.index.reader import pages_below
from penstock_service.instance.instance import Instance


@dataclass(frozen=True, slots=True, kw_only=True)
class RetentionRun:
    """A run stops at `deadline_ms` of the monotonic clock.

    `grace_ms` is the age at which a note of a log start, or of a deletion, is older than every reader.
    """

    instance: Instance
    grace_ms: int
    deadline_ms: float

    @property
    def is_time_up(self) -> bool:
        """Tells if the run has to end before its next step."""
        return self.time_left_ms <= 0

    @property
    def time_left_ms(self) -> float:
        """The time until the run has to end."""
        return self.deadline_ms - self.instance.clock.monotonic_ms()


@dataclass(frozen=True, slots=True, kw_only=True)
class RetentionResult:
    """The counts of one run. `is_finished` is false if the time was up before the run had been everywhere."""

    partitions: int = 0
    refs_expired: int = 0
    pages_deleted: int = 0
    topics_removed: int = 0
    partitions_retired: int = 0
    failures: int = 0
    is_finished: bool = True

    def plus(self, other: "RetentionResult") -> "RetentionResult":
        """The sum of both; finished if both are."""
        return RetentionResult(
            partitions=self.partitions + other.partitions,
            refs_expired=self.refs_expired + other.refs_expired,
            pages_deleted=self.pages_deleted + other.pages_deleted,
            topics_removed=self.topics_removed + other.topics_removed,
            partitions_retired=self.partitions_retired + other.partitions_retired,
            failures=self.failures + other.failures,
            is_finished=self.is_finished and other.is_finished,
        )


def delete_pages(run: RetentionRun, key: PartitionKey, below: Offset | None) -> tuple[int, bool]:
    """Deletes the pages that end at `below` or before it (None: all pages), oldest first.

    Gives how many it deleted, and whether those were all. One query for each 25 pages, and one delete for each page.
    """
    log = run.instance.stores.log
    pages = pages_below(log, key, below, INDEX_EXPIRY_PAGES)
    count = 0
    while not run.is_time_up:
        page = next(pages, None)
        if page is None:
            return count, True
        log.delete_page(key, page.end_offset)
        count += 1
    return count, False


def remove_topic(run: RetentionRun, note: DeletedTopic) -> RetentionResult:
    """Removes the heads of a topic, and after the grace its pages and its note.

    It costs one delete for each head, and an update of the note. After the grace it also costs what `delete_pages`
    costs for each partition, one read of up to 10 calls, a delete of each timer, and two more deletes. Raises
    nothing: failures are counted, and the next run meets them again.
    """
    instance = run.instance
    now_ms = instance.clock.now_ms()
    if note.is_being_created:
        try:
            if now_ms - note.deleted_at_ms < run.grace_ms or not instance.stores.topics.give_up(note):
                return RetentionResult()
        except PenstockError:
            return RetentionResult(failures=1)
    keys = [PartitionKey(note.topic_id, Partition(number)) for number in range(note.partitions)]
    failures = len(instance.executor.map(instance.stores.log.delete_head, keys).errors)
    if failures:
        return RetentionResult(failures=failures)
    if note.heads_removed_at_ms is None:
        try:
            instance.stores.topics.note_heads_removed(note.topic_id, instance.clock.now_ms())
        except PenstockError:
            return RetentionResult(failures=1)
        return RetentionResult()
    if now_ms - note.heads_removed_at_ms < run.grace_ms:
        return RetentionResult()
    if not _delete_timers(run, keys):
        return RetentionResult(is_finished=False)
    results = instance.executor.map(lambda key: delete_pages(run, key, None), keys)
    done = results.ok
    failures = len(results.errors)
    is_finished = all(is_empty for _, is_empty in done)
    if is_finished and not failures:
        failures = remove_states_of_topic(run, note) or _forget(run, note)
    return RetentionResult(
        pages_deleted=sum(count for count, _ in done),
        topics_removed=int(is_finished and not failures),
        failures=failures,
        is_finished=is_finished,
    )


def _delete_timers(run: RetentionRun, keys: Sequence[PartitionKey]) -> bool:
    """Deletes the timers that wait for these partitions; false if some are left, as after a failure. Marks expire."""
    timers = run.instance.stores.timers

    def delete_of(key: PartitionKey) -> bool:
        while not run.is_time_up:
            found = waiting_timers(run.instance, key, PlaceRange(0, TIMER_MS_MAX), TIMERS_READ_MAX)
            if not found:
                return True
            run.instance.executor.map(lambda timer: timers.delete(key, timer.place), found).all_ok()
        return False

    try:
        if timers.switched_on_ms() is None:
            return True
        return all(map(delete_of, keys))
    except PenstockError:
        return False


def _forget(run: RetentionRun, note: DeletedTopic) -> int:
    """Steps 4 and 5; gives how many deletes failed."""
    instance = run.instance
    beyond = range(note.partitions, TOPIC_PARTITIONS_MAX)
    try:
        heads = instance.stores.log.heads([PartitionKey(note.topic_id, Partition(number)) for number in beyond])
        failures = len(instance.executor.map(instance.stores.log.delete_head, list(heads)).errors)
        if not failures:
            instance.stores.log.delete_offsets(note.topic_id)  # of a mirror
            instance.stores.topics.forget_deleted(note.topic_id)
    except PenstockError:
        return 1
    return failures


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
