"""A group as its operators see it, by which tests watch members without a look inside the consumers."""

from penstock.model import TopicPartition
from penstock.testing import MemoryPenstock
from tests.sdk.group.group_fixtures import BEAT
from tests.sdk.http.faulty_transport import FaultyTransport
from tests.support.deadlines import until


def lease_epochs(service: MemoryPenstock, topic: str) -> dict[int, int]:
    """The lease epoch of each partition of the topic in group `g`. A partition that changes hands has a new one."""
    found = service.admin().describe_group("g").partitions
    return {each.partition: each.lease_epoch for each in found if each.topic == topic}


def moving(service: MemoryPenstock) -> list[TopicPartition]:
    """The partitions of group `g` that a member owns and that the group gives to another, sorted."""
    found = service.admin().describe_group("g").partitions
    return sorted(
        TopicPartition(each.topic, each.partition)
        for each in found
        if each.assigned_to is not None and each.owner is not None and each.owner != each.assigned_to
    )


def until_heard(faulty: FaultyTransport) -> None:
    """Wait until the members behind the transport have heard what the group says now: until two more heartbeats begin.

    The second begins after the answer to the first was taken.
    """
    beats = faulty.count(BEAT)
    until(lambda: faulty.count(BEAT) >= beats + 2)
