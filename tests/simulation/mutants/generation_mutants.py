"""Defects put into the change of generations, in the service and in the producer."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from unittest.mock import patch

from penstock.producer.batching.accumulator import Accumulator, Entry
from penstock.producer.batching.producer_batch import TopicQueues
from penstock_core.groups.topic_patterns import TopicReach, topic_reach
from penstock_core.ids import Partition, TopicId
from penstock_core.log.topic import Topic
from penstock_service.groups import readable_ends as ends_module
from penstock_service.groups import rebalance as rebalance_module
from penstock_service.index import heads as open_module
from penstock_service.index.heads import settle_heads
from penstock_service.instance.instance import Instance
from tests.simulation.mutants.mutant import Mutant, Patch
from tests.simulation.workloads.generations import GenerationMember


def _no_head_closes() -> Patch:
    return patch.object(open_module, "settle_heads", lambda *_: None)


def _one_head_closes() -> Patch:
    def settle_first(instance: Instance, topic: Topic, partitions: Iterable[Partition]) -> None:
        settle_heads(instance, topic, [*partitions][:1])

    return patch.object(open_module, "settle_heads", settle_first)


def _group_waits_for_nothing() -> Patch:
    def no_ends(*_: object) -> Mapping[TopicId, TopicReach]:
        return {}

    return patch.object(rebalance_module, "readable_ends", no_ends)


def _any_commit_is_the_end() -> Patch:
    return patch.object(ends_module, "_is_read", lambda head, committed: committed > 0 or not head.next_offset)


def _group_waits_for_the_last_generation_only() -> Patch:
    def last_reach(topic: Topic, unread: Collection[int], begun: Collection[int]) -> TopicReach:
        return topic_reach(topic, [each for each in unread if each >= topic.generations[-2]], begun)

    return patch.object(ends_module, "topic_reach", last_reach)


def _commits_tell_nothing_of_late_partitions() -> Patch:
    def no_begun(topic: Topic, unread: Collection[int], _: Collection[int]) -> TopicReach:
        return topic_reach(topic, unread, ())

    return patch.object(ends_module, "topic_reach", no_begun)


def _draining_heads_stay_open() -> Patch:
    def settle_writable(instance: Instance, topic: Topic, partitions: Iterable[Partition]) -> None:
        settle_heads(instance, topic, [each for each in partitions if each < topic.writable_end])

    return patch.object(open_module, "settle_heads", settle_writable)


def _member_commits_records_only() -> Patch:
    def offset_to_commit(_: GenerationMember, returned: Sequence[int], __: int) -> int | None:
        return returned[-1] + 1 if returned else None

    return patch.object(GenerationMember, "offset_to_commit", offset_to_commit)


def _producer_turns_at_once() -> Patch:
    def update(self: TopicQueues, partitions: int, batch_bytes: int, batch_bytes_max: int, first: int = 0) -> None:
        self.batch_bytes, self.batch_bytes_max = min(batch_bytes, batch_bytes_max), batch_bytes_max
        self.turn(first, partitions)

    return patch.object(TopicQueues, "update", update)


def _refused_records_move_at_once() -> Patch:
    def refused(self: Accumulator, entry: Entry, first: int, partitions: int, now_ms: int) -> None:
        queue, topic = entry.queue, entry.queue.topic
        queue.numbering, queue.sent_together, queue.retry_at_ms = None, 0, 0
        if first >= topic.first:
            topic.turn(first, partitions)
        self._move(topic, entry.batches, now_ms)

    return patch.object(Accumulator, "_refused", refused)


GENERATION_MUTANTS = [
    Mutant("no head closes", "generations", _no_head_closes),
    Mutant("one head closes", "generations", _one_head_closes),
    Mutant("group waits for nothing", "generations", _group_waits_for_nothing),
    Mutant("any commit is the end", "generations", _any_commit_is_the_end),
    Mutant("group waits for the last generation only", "generations", _group_waits_for_the_last_generation_only),
    Mutant("commits tell nothing of late partitions", "generations", _commits_tell_nothing_of_late_partitions),
    Mutant("draining heads stay open", "generations", _draining_heads_stay_open),
    Mutant("member commits records only", "generations", _member_commits_records_only),
    Mutant("producer turns at once", "generations", _producer_turns_at_once),
    Mutant("refused records move at once", "generations", _refused_records_move_at_once),
]
