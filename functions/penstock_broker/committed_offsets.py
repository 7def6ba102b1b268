"""Read a group's committed offsets."""

from collections.abc import Sequence

from penstock_broker.broker import Broker
from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.ids import TopicId, parse_group_name
from penstock_core.items import CommittedOffset


def committed_offsets(broker: Broker, group_name: str, topic_name: str | None) -> Sequence[CommittedOffset]:
    """The group's commits, of one topic or of all, sorted by topic and partition; commits on topics that were deleted
    since are left out. One query, and one read per topic that is not remembered. UNKNOWN_TOPIC for `topic_name`."""
    group = parse_group_name(group_name)
    wanted = None if topic_name is None else broker.directory.find(topic_name).topic_id
    found = [
        committed
        for committed in broker.groups.committed(group)
        if wanted is None or committed.partition.topic_id == wanted
    ]
    current = {committed.topic: _current_id(broker, committed.topic) for committed in found}
    alive = [committed for committed in found if current[committed.topic] == committed.partition.topic_id]
    return sorted(alive, key=lambda committed: (committed.topic, committed.partition.partition))


def _current_id(broker: Broker, topic_name: str) -> TopicId | None:
    try:
        return broker.directory.find(topic_name).topic_id
    except PenstockError as error:
        if error.code is not ErrorCode.UNKNOWN_TOPIC:
            raise
        return None
