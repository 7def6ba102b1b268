"""Tell operators of a segment that is lost: every zone was asked for it, and none has a good copy.

Zone recovery, the scrub and a repair call this when they meet one. It changes nothing. An operator decides what happens
of the records (docs/how-to/operate.md).
"""

from collections.abc import Sequence

from penstock_core.errors import PenstockError
from penstock_core.ids import SegmentId
from penstock_core.log.repair import NamedRef
from penstock_service.index.refs_of import refs_of
from penstock_service.instance.instance import Instance
from penstock_service.ports.log import LogIndex


def report_lost(instance: Instance, segment_id: SegmentId, refs: Sequence[NamedRef], error: PenstockError) -> int:
    """Logs each of the refs that is still there, with its partition and offsets, and counts them.

    A ref that retention or a deletion has removed meanwhile has lost nothing. Costs a look at the index for each ref,
    and a read of the topics if any ref is there. Raises what these reads raise.
    """
    standing = [named for named in refs if _stands(instance.stores.log, named)]
    if standing:  # a deletion that died leaves heads behind, so the topics decide, as they do for the sweep
        topic_ids = {topic.topic_id for topic in instance.stores.topics.list()}
        standing = [named for named in standing if named.key.topic_id in topic_ids]
    for named in standing:
        instance.telemetry.log(
            "segment_lost",
            segment=segment_id.hex(),
            partition=str(named.key),
            base_offset=named.located.base_offset,
            end_offset=named.located.end_offset,
            error=str(error),
        )
    return len(standing)


def _stands(log: LogIndex, named: NamedRef) -> bool:
    found = next(refs_of(log, named.key, named.located.base_offset), None)
    return found is not None and found.ref.segment_id == named.located.ref.segment_id
