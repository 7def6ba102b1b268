"""Read a group's committed offsets."""

from collections.abc import Sequence

from penstock_broker.broker import Broker
from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.ids import parse_group_name
from penstock_core.items import CommittedOffset
from penstock_core.topic import Topic


def committed_offsets(broker: Broker, group_name: str, topic_name: str | None) -> Sequence[CommittedOffset]:
    """The group's commits, of one topic or of all, sorted by topic and partition; commits on topics that were deleted
    since are left out. One query, and one read per topic. Raises INVALID_NAME, and UNKNOWN_TOPIC for `topic_name`."""
    found = broker.groups.committed(parse_group_name(group_name))
    names: list[str] = list(dict.fromkeys(committed.topic for committed in found))
    # What is remembered will not do: a topic created again would be read from where the group was in the old one.
    topics = broker.parallel.map(broker.directory.look_up, names if topic_name is None else [topic_name])
    for topic in topics:
        if isinstance(topic, PenstockError) and not (topic_name is None and topic.code is ErrorCode.UNKNOWN_TOPIC):
            raise topic
    current = {topic.topic_id for topic in topics if isinstance(topic, Topic)}
    alive = [committed for committed in found if committed.partition.topic_id in current]
    return sorted(alive, key=lambda committed: (committed.topic, committed.partition.partition))
