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
"""

from collections.abc import Sequence

from penstock_core.errors import PenstockError
from penstock_core.ids import Partition, PartitionKey
from penstock_core.limits import TIMER_MS_MAX, TIMERS_READ_MAX, TOPIC_PARTITIONS_MAX
from penstock_core.log.timer import PlaceRange
from penstock_core.log.topic import DeletedTopic
from penstock_service.index.waiting_timers import waiting_timers
from penstock_service.retention.remove_share_states import remove_states_of_topic
from penstock_service.retention.retention_run import RetentionResult, RetentionRun, delete_pages


def remove_topic(run: RetentionRun, note: DeletedTopic) -> RetentionResult:
    """Removes the heads of a topic, and after the grace its pages and its note.

    It costs one delete for each head, and an update of the note. After the grace it also costs what `delete_pages`
    costs for each partition, one read of up to 10 calls, a delete of each timer, and a delete of the note. Raises
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
            instance.stores.topics.forget_deleted(note.topic_id)
    except PenstockError:
        return 1
    return failures
