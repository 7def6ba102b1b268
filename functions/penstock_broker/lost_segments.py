"""Tell of a segment that every zone was asked for and none has a good copy of: its records are lost.

Whoever meets one tells of it, the keeper, the scrub and a repair; nothing is changed by that. An operator decides what
becomes of the records (docs/running.md).
"""

from collections.abc import Sequence

from penstock_broker.broker import Broker
from penstock_broker.walk_index import refs_of
from penstock_core.errors import PenstockError
from penstock_core.ids import SegmentId
from penstock_core.repair import NamedRef


def report_lost(broker: Broker, segment_id: SegmentId, refs: Sequence[NamedRef], error: PenstockError) -> int:
    """How many of the refs still stand, each told of with its partition and offsets: one that retention or a deletion
    has removed meanwhile has lost nothing. A look at the index per ref, and one at the topics if any is there. Raises
    what reading them raises."""
    standing = [named for named in refs if _stands(broker, named)]
    if standing:  # a deletion that died leaves heads, and the sweep goes by the topics
        topic_ids = {topic.topic_id for topic in broker.topics.list()}
        standing = [named for named in standing if named.key.topic_id in topic_ids]
    for named in standing:
        broker.events.tell(
            "segment_lost",
            segment=segment_id.hex(),
            partition=str(named.key),
            base_offset=named.located.base_offset,
            end_offset=named.located.end_offset,
            error=str(error),
        )
    return len(standing)


def _stands(broker: Broker, named: NamedRef) -> bool:
    found = next(refs_of(broker, named.key, named.located.base_offset), None)
    return found is not None and found.ref.segment_id == named.located.ref.segment_id
