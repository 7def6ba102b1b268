"""The check of a subscription that copies to another topic: copied-twice, wrong-copy, handled-late and wrong-filter.

A copy is exact: each record is there once, and in ordered mode in the order of its partition. The topic that takes the
copies has as many partitions, and no other writer.
"""

from collections.abc import Iterator

from tests.history.model.anomaly import Anomaly, Kind
from tests.history.push.subscribed_partition import SubscribedPartition


def check_copies(partition: SubscribedPartition) -> Iterator[Anomaly]:
    """Judge the copies of the partition's records."""
    push, (_, number) = partition.facts.push, partition.where
    if push.copies_to is None:
        return
    known: dict[object, int] = {}
    highest = -1
    for at, (value, line) in sorted(partition.facts.copies.get((push.copies_to, number), {}).items()):
        offset = partition.order[partition.where].offset_of.get(value)
        text = f"subscription {partition.name} has copied {value!r} to {push.copies_to}/{number} at {at}"
        if offset is None:
            yield partition.anomaly(Kind.WRONG_COPY, f"{text}, which is not in this partition", lines=(line,))
            continue
        if push.ending is not None and not str(value).endswith(push.ending):
            text += f", which does not end with {push.ending!r}"
            yield partition.anomaly(Kind.WRONG_FILTER, text, (offset, value), lines=(line,))
        elif value in known:
            twice = f"{text}, and at {known[value]} before"
            yield partition.anomaly(Kind.COPIED_TWICE, twice, (offset, value), lines=(line,))
        elif push.is_ordered and offset < highest:
            late = f"{text}, after the record at offset {highest}"
            yield partition.anomaly(Kind.HANDLED_LATE, late, (offset, value), lines=(line,))
        known.setdefault(value, at)
        highest = max(highest, offset)
