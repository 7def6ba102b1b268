"""A topic as a restore leaves it: its log ends below offsets that were given, and then goes on behind a jump."""

from penstock_core.ids import Offset, Partition
from penstock_core.limits import JUMP_OFFSETS_MAX
from penstock_service.adapters.memory.service import memory_stores
from penstock_service.instance.instance import Instance
from penstock_service.ports.log import LogIndex
from penstock_service.records.jump_heads import PartitionJump, Restore, jump_heads
from tests.support.refs import ref_at
from tests.support.service import key_of


def harmed_log(instance: Instance, topic: str, *ends: int) -> LogIndex:
    """An index in which the first partitions end at these offsets. It has no head of the others."""
    harmed = memory_stores().log
    for partition, end in enumerate(ends):
        key = key_of(instance, topic, partition)
        harmed.create_head(key)
        for number, start in enumerate(range(0, end, JUMP_OFFSETS_MAX)):
            harmed.append(key, ref_at(1 + number, span=min(JUMP_OFFSETS_MAX, end - start)), 0)
    return harmed


def jump(
    instance: Instance, *ends: int, topic: str = "orders", restore_id: str = "restore-1", is_dry_run: bool = False
) -> list[PartitionJump]:
    """Let the topic go on behind the ends of the harmed log; behind lost heads without them."""
    harmed = harmed_log(instance, topic, *ends) if ends else None
    restore = Restore(restore_id=restore_id, harmed=harmed, is_dry_run=is_dry_run)
    return [*jump_heads(instance, instance.topic_cache.read_through(topic), restore)]


def made(start: int, end: int, partition: int = 0, *, is_lost: bool = False, was_done: bool = False) -> PartitionJump:
    """What `jump_heads` tells of a partition."""
    return PartitionJump(
        partition=Partition(partition), start=Offset(start), end=Offset(end), is_lost=is_lost, was_done=was_done
    )
