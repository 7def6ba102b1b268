"""A group's reach ends with the first generation that it has not read (docs/protocol/partitions)."""

import pytest

from penstock_core.groups.topic_patterns import TopicReach, topic_reach
from penstock_core.ids import TopicId, TopicName
from penstock_core.log.topic import Topic

TOPIC = Topic(
    name=TopicName("turned"), topic_id=TopicId("aa" * 10), partitions=7, created_at_ms=0, generations=(0, 2, 4)
)


@pytest.mark.parametrize(
    ("unread", "begun", "expected"),
    [
        ([], [], TopicReach(start=4, end=7)),
        ([1], [], TopicReach(start=0, end=2, holder=1)),
        ([1, 3], [0], TopicReach(start=0, end=2, late_from=2, holder=1)),
        ([3], [1, 2], TopicReach(start=2, end=4, late_from=2, holder=3)),
        ([], [3], TopicReach(start=4, end=7, late_from=4)),
    ],
)
def test_reach_follows_from_what_is_unread_and_begun(unread: list[int], begun: list[int], expected: TopicReach) -> None:
    assert topic_reach(TOPIC, unread, begun) == expected
