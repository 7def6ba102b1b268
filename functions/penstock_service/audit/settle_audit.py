"""Move the notes of changes into the topic `_audit`, which is made when the first note is there.

The notes go in order of their ids, one batch at a time: an append, then a delete for each note. A run that dies between
the two leaves notes, and the next run appends them again. So a change is in the topic at least once, and its `audit_id`
tells copies apart. A note that is `begun` waits for its request, which may go on for `AUDIT_UNKNOWN_MS` at most.
"""

from dataclasses import dataclass, replace

from penstock_core.audit.audit_entry import AuditEntry, AuditResult, audit_key, audit_value
from penstock_core.ids import AUDIT_TOPIC, Partition, PartitionKey
from penstock_core.limits import AUDIT_AT_ONCE, AUDIT_UNKNOWN_MS
from penstock_core.log.topic import Topic
from penstock_core.records.codec import NewRecord, encode
from penstock_core.records.record_batch import validate
from penstock_core.zones.zone_state import Acks
from penstock_service.instance.instance import Instance
from penstock_service.records.append import PartitionBatches, append
from penstock_service.topics.alter_topic import alter_any_topic
from penstock_service.topics.create_topic import create_any_topic


@dataclass(slots=True, kw_only=True)
class AuditRun:
    """The counts of one run. `begun` are notes that wait for their requests."""

    settled: int = 0
    begun: int = 0
    is_finished: bool = True


def settle_audit(instance: Instance, retention_ms: int, *, budget_ms: float) -> AuditRun:
    """Moves the notes for `budget_ms` at most. `retention_ms` is that of the topic, which is altered if it differs.

    One query, where there is nothing to do. Else one append and one delete for each note of a batch.
    """
    ends_ms = instance.clock.monotonic_ms() + budget_ms
    run = AuditRun()
    topic: Topic | None = None
    while True:
        found = instance.stores.audit.entries(AUDIT_AT_ONCE)
        ripe = [each for each in found if _is_ripe(each, instance.clock.now_ms())]
        run.begun = len(found) - len(ripe)
        if not ripe:
            return run
        topic = topic or _topic(instance, retention_ms)
        _append(instance, topic, [_settled(each) for each in ripe])
        instance.executor.map(instance.stores.audit.forget, [each.audit_id for each in ripe]).all_ok()
        run.settled += len(ripe)
        if len(found) < AUDIT_AT_ONCE:
            return run
        if instance.clock.monotonic_ms() >= ends_ms:
            run.is_finished = False
            return run


def _is_ripe(entry: AuditEntry, now_ms: int) -> bool:
    return entry.result is not AuditResult.BEGUN or now_ms - entry.time_ms > AUDIT_UNKNOWN_MS


def _settled(entry: AuditEntry) -> AuditEntry:
    return replace(entry, result=AuditResult.UNKNOWN) if entry.result is AuditResult.BEGUN else entry


def _topic(instance: Instance, retention_ms: int) -> Topic:
    config = {"retention_ms": retention_ms}
    topic = instance.topic_cache.find(AUDIT_TOPIC)
    if topic is None:
        return create_any_topic(instance, AUDIT_TOPIC, 1, config)
    if topic.config.retention_ms != retention_ms:
        return alter_any_topic(instance, AUDIT_TOPIC, None, config)
    return topic


def _append(instance: Instance, topic: Topic, entries: list[AuditEntry]) -> None:
    data = encode([NewRecord(each.time_ms, audit_key(each), audit_value(each)) for each in entries])
    batches = PartitionBatches(
        key=PartitionKey(topic.topic_id, Partition(0)),
        data=data,
        summary=validate(data),
        min_insync_zones=topic.config.min_insync_zones,
    )
    append(instance, [batches], Acks.QUORUM).all_ok()
