"""Keep the items of small appends whose topic's retention was raised after they got their TTL (docs/adr/0064).

A walk over the topic's live refs copies each item that would go too early to the keys of inline items. These have no
TTL, and the sweep removes them once no ref names them. The item itself goes by its TTL. Readers ask for it first, and
for the copy where it is gone.

The walk misses no item, for these reasons:

1. It begins `RAISE_SETTLED_MS` after the newest raise. By then every append that went by an older retention is over,
   and its refs are in the index. Later appends take no TTL while the note is there.
2. The head is read before the pages (`refs_of`). A ref that has left the tail by then is in a page.
3. The note goes on condition that no newer raise has come. A walk that was begun for an older one is done again.
4. Records that were younger than the old retention at the raise live `EXPIRING_MARGIN_DAYS` longer by their TTL.

A walk may die anywhere, be repeated, and meet another one: a copy has the bytes of its item, whoever puts it.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import islice

from penstock_core.ids import PartitionKey
from penstock_core.limits import BATCH_GET_KEYS_MAX, RAISE_LATE_MS
from penstock_core.log.ref import LocatedRef
from penstock_core.log.retention import written_ms
from penstock_core.log.retention_raise import RetentionRaise, had_expired, is_kept_longer
from penstock_core.log.topic import Topic
from penstock_service.index.reader import refs_of
from penstock_service.instance.instance import Instance

_JOB = "keep_items"


@dataclass(frozen=True, slots=True, kw_only=True)
class KeepResult:
    """The counts of one run.

    `kept` items were copied, and those of `lost` refs were gone although their records had not expired. `raises_ended`
    counts notes that went, and `raises_late` those that are older than a day.
    """

    kept: int = 0
    lost: int = 0
    raises_ended: int = 0
    raises_late: int = 0
    is_finished: bool = True


def keep_items(instance: Instance, *, budget_ms: float) -> KeepResult:
    """One run over the topics whose raise has settled, until the time is over. The next run goes on from the cursor.

    One read of the topics. For each such topic it costs what `refs_of` costs, a read of 100 items, a put for each of
    them, and an update of the topic. Raises what these raise.
    """
    deadline_ms = instance.clock.monotonic_ms() + budget_ms
    total = KeepResult()
    for topic in instance.stores.topics.list():
        noted, now_ms = topic.retention_raise, instance.clock.now_ms()
        if noted is None:
            continue
        if now_ms - noted.since_ms > RAISE_LATE_MS:
            total = replace(total, raises_late=total.raises_late + 1)
        if noted.is_settled(now_ms) and total.is_finished:
            total = _keep_of_topic(instance, topic, noted, deadline_ms, total)
    return total


def _keep_of_topic(
    instance: Instance, topic: Topic, noted: RetentionRaise, deadline_ms: float, total: KeepResult
) -> KeepResult:
    cursors, name = instance.stores.cursors, f"{topic.topic_id}#{noted.noted_ms}"
    first, offset = _place(cursors.get(_JOB), name)
    for partition in topic.all_partitions()[first:]:
        key = PartitionKey(topic.topic_id, partition)
        refs = refs_of(instance.stores.log, key, offset if partition == first else 0)
        while some := list(islice(refs, BATCH_GET_KEYS_MAX)):
            if instance.clock.monotonic_ms() >= deadline_ms:
                cursors.put(_JOB, f"{name}#{partition}#{some[0].base_offset}")
                return replace(total, is_finished=False)
            kept, lost = _keep(instance, topic, key, [each for each in some if is_kept_longer(each.ref, topic)])
            total = replace(total, kept=total.kept + kept, lost=total.lost + lost)
    is_ended = instance.stores.topics.end_raise(topic)
    instance.topic_cache.forget(topic.name)
    cursors.clear(_JOB)
    return replace(total, raises_ended=total.raises_ended + int(is_ended))


def _place(cursor: str | None, name: str) -> tuple[int, int]:
    """The partition and the offset where the walk for this raise goes on."""
    if cursor is None or not cursor.startswith(f"{name}#"):
        return 0, 0
    partition, offset = cursor.removeprefix(f"{name}#").split("#")
    return int(partition), int(offset)


def _keep(instance: Instance, topic: Topic, key: PartitionKey, refs: Sequence[LocatedRef]) -> tuple[int, int]:
    """Copies the items of these refs; gives how many it copied, and how many refs have lost theirs."""
    if not refs:
        return 0, 0
    inline = instance.stores.inline
    bodies = inline.get_expiring(list(dict.fromkeys(each.ref.segment_id for each in refs)))
    instance.executor.map(lambda each: inline.overwrite(each, bodies[each], 0), [*bodies]).all_ok()
    missing = [each for each in refs if each.ref.segment_id not in bodies]
    return len(bodies), _pass(instance, topic, key, missing) if missing else 0


def _pass(instance: Instance, topic: Topic, key: PartitionKey, missing: Iterable[LocatedRef]) -> int:
    """Raises the log start past what had expired at the raise; logs and counts the refs that have lost their item.

    Once the note has gone, nothing would tell that those had expired. Retention should have passed them before.
    """
    now_ms = instance.clock.now_ms()
    lost = 0
    for located in missing:
        if had_expired(topic, written_ms(located.ref), now_ms):
            instance.stores.log.raise_log_start(key, located.end_offset)
            continue
        head = instance.stores.log.heads([key]).get(key)
        if head is None or head.log_start_offset >= located.end_offset:
            continue  # removed since the walk has read it
        lost += 1
        instance.telemetry.log(
            "segment_lost",
            segment=located.ref.segment_id.hex(),
            partition=str(key),
            base_offset=located.base_offset,
            end_offset=located.end_offset,
            error="the item of a small append is gone before its retention was over",
        )
    return lost
