"""The check of order by key: key-overtaken. No record is handed out while an earlier one of its key is unfinished.

An earlier record is out of the way if an accept or a reject of it began before the acquire ended. It is also out of the
way on its last delivery, once that lock may have ended: it then belongs to the dead-letter topic. One acquire may hand
out several records of a key.
"""

from collections.abc import Iterator

from tests.history.checks.truncation import Truncations
from tests.history.checks.version_order import VersionOrder
from tests.history.format import Verb
from tests.history.model.anomaly import Anomaly, Kind
from tests.history.queue.facts import NEVER_NS, Delivery, SharedRecord
from tests.history.queue.locks import GroupPartition

_NONE = SharedRecord()


def check_key_order(partition: GroupPartition, order: VersionOrder, truncations: Truncations) -> Iterator[Anomaly]:
    """Judge the deliveries of each key, in order of the log."""
    share, records = partition.facts.share, partition.facts.records.get(partition.where, {})
    if share is None or not share.is_by_key or not records:
        return
    first_offset = max(min(records), truncations.start_offset(partition.where))
    by_key: dict[str, list[int]] = {}
    for offset, value in sorted(order[partition.where].value_at.items()):
        key = partition.shares.key_of(partition.where, value)
        is_wanted = share.ending is None or str(value).endswith(share.ending)
        if key is not None and is_wanted and offset >= first_offset:
            by_key.setdefault(key, []).append(offset)
    for key, offsets in by_key.items():
        ahead: list[tuple[int, int]] = []  # the unfinished ones that gave way last: when, and their offset
        for offset in offsets:
            record = records.get(offset, _NONE)
            for delivery in record.deliveries:
                yield from _overtaken(partition, key, delivery, ahead)
            ahead.append((_gives_way_ns(partition, record) - partition.clock_skew_ns, offset))


def _overtaken(
    partition: GroupPartition, key: str, delivery: Delivery, ahead: list[tuple[int, int]]
) -> Iterator[Anomaly]:
    where, records = partition.where, partition.facts.records[partition.where]
    if partition.facts.was_reset(where, 0, delivery.end_ns):
        return
    for way_ns, offset in ahead:
        if way_ns <= delivery.end_ns:
            continue
        if any(each.line == delivery.line for each in records.get(offset, _NONE).deliveries):
            continue
        yield Anomaly(
            kind=Kind.KEY_OVERTAKEN,
            where=where,
            text=f"{delivery.value!r} at offset {delivery.offset} was handed out to {delivery.process} by group "
            f"{partition.group}, while offset {offset} of the same key {key!r} was unfinished",
            offsets=(offset, delivery.offset),
            values=(delivery.value,),
            lines=(delivery.line,),
        )
        return


def _gives_way_ns(partition: GroupPartition, record: SharedRecord) -> int:
    """The earliest time at which the record may have left the order of its key."""
    most = partition.facts.share.deliveries_max if partition.facts.share else None
    last = [each for each in record.deliveries if most is not None and each.count >= most]
    ways = [each.start_ns for each in record.decisions if partition.may_finish(each)]
    for delivery in last:
        given_up = [each.start_ns for each in record.decisions_under(delivery.lock_id)]
        ways.append(min([delivery.until_ns, *given_up]))
    is_explained = last or any(each.verb is Verb.REJECT for each in record.decisions)
    if record.letters and (not is_explained or partition.where in partition.facts.resets):
        return 0  # its last delivery reached nobody
    return min(ways, default=NEVER_NS)
