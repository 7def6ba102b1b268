"""Retire partitions: take the last partitions of a topic away once they have drained (docs/adr/0046).

A partition goes if all of this holds:

- It was closed `DRAIN_MS_MIN` ago. No transaction, no put of a timer and no retry is on its way from before.
- Its log start is at its end, and that is safe: no function reads below it any more. Its pages are deleted.
- No timer waits for it.

Then the topic has a partition less. Its head stays, closed and empty: if the number rises again, it opens, and its
offsets go on where they ended. So no offset ever means two records. Until then it answers clients that still know it.
"""

from itertools import takewhile

from penstock_core.errors import PenstockError
from penstock_core.ids import Offset, PartitionKey
from penstock_core.limits import DRAIN_MS_MIN, TIMER_MS_MAX
from penstock_core.log.index import Head, safe_log_start
from penstock_core.log.timer import PlaceRange
from penstock_core.log.topic import Topic
from penstock_service.index.open_generation import open_generation
from penstock_service.index.settle_head import is_unsettled, settle_head
from penstock_service.index.waiting_timers import waiting_timers
from penstock_service.retention.retention_run import RetentionResult, RetentionRun


def retire_partitions(run: RetentionRun, topic: Topic) -> RetentionResult:
    """Closes heads that an alteration has left open, opens a coming generation, and takes drained partitions away.

    Costs nothing for a topic without draining partitions. Else one read of the topic, one of the heads for each 100
    partitions, and for the last ones a query of pages and the reads of `waiting_timers`; one conditional update if some
    go. Raises nothing: failures are counted, and the next run meets them again.
    """
    if not topic.draining_partitions() and topic.opening is None:
        return RetentionResult()
    instance = run.instance
    try:
        now = open_generation(instance, topic.name)
        keys = [PartitionKey(now.topic_id, each) for each in now.draining_partitions()]
        heads = instance.stores.log.heads(keys)
        for key, head in heads.items():
            if is_unsettled(now, key.partition, head):
                settle_head(instance, now, key.partition)
        drained = takewhile(lambda key: key in heads and _is_drained(run, key, heads[key]), reversed(keys))
        count = sum(1 for _ in drained)
        if count:
            instance.stores.topics.retire(now, now.with_partitions(now.partitions - count))
            instance.topic_cache.forget(now.name)
    except PenstockError:
        return RetentionResult(failures=1)
    return RetentionResult(partitions_retired=count)


def _is_drained(run: RetentionRun, key: PartitionKey, head: Head) -> bool:
    instance, now_ms = run.instance, run.instance.clock.now_ms()
    if head.closed_ms is None or now_ms - head.closed_ms < DRAIN_MS_MIN:
        return False
    if safe_log_start(head, now_ms, run.grace_ms) < head.next_offset or instance.stores.log.pages(key, Offset(0), 1):
        return False
    return instance.stores.timers.switched_on_ms() is None or not waiting_timers(
        instance, key, PlaceRange(0, TIMER_MS_MAX), 1
    )
