"""What must hold when a run is over: everything still in flight has landed, all zones answer, no more faults."""

from collections.abc import Sequence

from penstock_broker.describe_topic import describe_topic
from penstock_broker.fetch import Fetched, FetchEntry, fetch
from penstock_broker.list_offsets import OffsetSpec, list_offsets, listed
from penstock_broker.produce import ProduceEntry, produce
from penstock_core.errors import PenstockError
from penstock_core.ids import GroupName, Partition
from penstock_core.keys import PartitionKey
from penstock_core.limits import FETCH_BYTES_MAX, TAIL_ROLL_REFS
from penstock_core.quorum import Acks
from penstock_core.record_batch import check_stored
from penstock_core.records import NewRecord, decode, encode
from penstock_core.ref import Tier
from penstock_core.topic import Topic
from penstock_core.zone_state import BARRIER_MS
from tests.history import format as history
from tests.simulation.aftermath import clear_away, restore
from tests.simulation.instance import EPOCH_MS
from tests.simulation.violation import expect
from tests.simulation.world import World


def judge(world: World) -> None:
    """Raises ViolationError for the first promise that was broken."""
    topics = world.stores.topics.list()
    for topic in topics:
        for partition in topic.all_partitions():
            _check_partition(world, topic, PartitionKey(topic.topic_id, partition))
    restore(world)
    _check_claims(world, {topic.topic_id for topic in topics})
    _check_deleted(world)
    _check_commits(world, topics)
    for check in world.final_checks:
        check()
    clear_away(world)
    for topic in topics:
        _check_that_heads_shrink(world, topic)
    if not any(world.claims.topic_changes.values()):  # a history knows no topic that is created twice
        report = world.story.judge(everything_was_read=True)
        expect(report.is_clean, f"the history has anomalies: {[each.anomaly for each in report.examples]}")


def _check_partition(world: World, topic: Topic, key: PartitionKey) -> None:
    located = world.truth.check_index(key)
    head = world.stores.log.heads([key])[key]
    expect(
        head.log_start_offset == world.truth.log_starts.get(key, 0),
        f"log start of {key} is {head.log_start_offset}, was raised to {world.truth.log_starts.get(key, 0)}",
    )
    truth = [
        (entry.base_offset + index, value)
        for entry in world.truth.appends.get(key, ())
        for index, value in enumerate(entry.values)
    ]
    expect([offset for offset, _ in truth] == list(range(head.next_offset)), f"offsets of {key} are not dense")
    for each in located:
        if each.end_offset <= head.log_start_offset:
            continue  # its objects may be gone
        if each.ref.tier is Tier.ARCHIVE:
            data = world.stores.archive.get(each.ref.segment_id, each.ref.position, each.ref.length)
            check_stored(memoryview(data), each.ref.offset_span)
        for index, store in enumerate(world.stores.zones):
            if each.ref.zones >> index & 1 and (f"zone {store.zone}", each.ref.segment_id) not in world.truth.destroyed:
                data = store.get(each.ref.segment_id, each.ref.position, each.ref.length)
                check_stored(memoryview(data), each.ref.offset_span)
    if topic.config.is_compacted:
        _check_latest(world, topic, key)
        return
    found = _read_all(world, topic, key)
    expect(
        found == truth[head.log_start_offset :],
        f"{key} read from {head.log_start_offset} to its end differs from what was appended: "
        f"{_difference(found, truth[head.log_start_offset :])}",
    )
    poll = world.story.recorder.invoke("final", history.Function.POLL)
    world.story.recorder.done(
        "final", history.Function.SEEK, [history.Seek((topic.name, key.partition), head.log_start_offset)]
    )
    world.story.recorder.ok(poll, [history.Poll((topic.name, key.partition), tuple(found))])
    _check_times(world, topic, key)


def _check_latest(world: World, topic: Topic, key: PartitionKey) -> None:
    """Every key's newest record is there, unless it is a tombstone, and every record without a key."""
    appended = world.truth.cleanings.appended(key)
    newest = {record_key: offset for offset, record_key, _ in appended}
    wanted = {
        offset
        for offset, record_key, value in appended
        if record_key is None or (newest[record_key] == offset and value is not None)
    }
    found = {offset for offset, _ in _read_all(world, topic, key)}
    expect(wanted <= found, f"{key} has lost the records at {sorted(wanted - found)}, the newest of their keys")
    expect(found <= {offset for offset, _, _ in appended}, f"{key} holds records that were never appended")


def _read_all(world: World, topic: Topic, key: PartitionKey) -> list[tuple[int, str]]:
    offset = int(world.stores.log.heads([key])[key].log_start_offset)
    found: list[tuple[int, str]] = []
    while True:
        entry = FetchEntry(topic=topic.name, partition=key.partition, offset=offset, max_bytes=2_000)
        [fetched] = fetch(world.stores, [entry], max_bytes=FETCH_BYTES_MAX, min_bytes=1, wait_ms=0)
        if isinstance(fetched, PenstockError):
            expect(False, f"{key} cannot be read at {offset}: {fetched}")
        assert isinstance(fetched, Fetched)
        found += [
            (record.offset, (record.value or b"").decode())
            for record in decode(memoryview(fetched.data))
            if record.offset >= offset
        ]
        if fetched.next_offset == fetched.high_watermark:
            return found
        expect(fetched.next_offset > offset, f"a fetch of {key} at {offset} does not move on")
        offset = fetched.next_offset


def _check_times(world: World, topic: Topic, key: PartitionKey) -> None:
    """The first record at or after some times, against a scan of all."""
    start = world.truth.log_starts.get(key, 0)
    records = [
        (entry.base_offset + index, entry.ref.max_timestamp_ms)
        for entry in world.truth.appends.get(key, ())
        for index in range(len(entry.values))
    ]
    if not records:
        return
    for share in (0.0, 0.3, 0.6, 0.9):
        time_ms = EPOCH_MS + int(share * world.scheduler.now_ms)
        [answer] = listed(list_offsets(world.stores, topic.name, time_ms, key.partition))
        # Timestamps of single records are not known here: only that of a ref's newest.
        refs = [offset for offset, newest_ms in records if newest_ms >= time_ms and offset >= start]
        expect((answer.offset is None) == (not refs), f"offset of {key} at {time_ms} is {answer.offset}")
        if answer.offset is not None:
            expect(answer.offset >= refs[0], f"offset of {key} at {time_ms} is {answer.offset}, below {refs[0]}")
    [end] = listed(list_offsets(world.stores, topic.name, OffsetSpec.LATEST, key.partition))
    expect(end.offset == world.truth.ends.get(key, 0), f"the latest offset of {key} is {end.offset}")


def _check_claims(world: World, alive: set[str]) -> None:
    zone_count = len(world.stores.zones)
    for value, sent in world.claims.sent.items():
        places = world.truth.places.get(value, [])
        # The driver repeats an idempotent append whose answer was lost: one may have met the topic that was deleted
        # meanwhile, and the other the one made anew. Within a topic there is one copy, unless it is one whose deletion
        # nobody confirmed: who still remembers it, and who knows the new one, answer a producer by turns.
        driver_repeats = int(sent.is_idempotent and sent.topic in world.claims.topic_changes)
        living = [key for key, _, _ in places if key.topic_id in alive]
        expect(
            len(sent.acked) <= len(places) <= len(sent.acked) + sent.maybe + driver_repeats
            and (not sent.is_idempotent or len(set(living)) == len(living)),
            f"{value} was acknowledged {len(sent.acked)} and maybe applied {sent.maybe} times, and stands "
            f"{len(places)} times in the log: {[(str(key), offset) for key, offset, _ in places]}",
        )
        for offset in sent.acked:
            at = [
                (key, entry)
                for key, place, entry in places
                if place == offset and key.partition == sent.partition and world.truth.names[key.topic_id] == sent.topic
            ]
            expect(bool(at), f"{value} was acknowledged at offset {offset}, and stands elsewhere: {places}")
            key, entry = at[0]
            needed = 1 if sent.acks in (Acks.NONE, Acks.LEADER) else zone_count // 2 + 1
            expect(
                entry.stored_in.bit_count() >= needed and entry.ref.zones.bit_count() >= needed,
                f"{value} was acknowledged with acks={sent.acks.value}, and {entry.stored_in:03b} zones held it",
            )
            if sent.acks is Acks.ALL:
                since_ms = entry.at_ms - BARRIER_MS
                if not world.truth.was_in_sync(entry.ref.zones, since_ms, entry.at_ms):
                    excused = entry.ref.zones | world.truth.given_up(entry.ref.segment_id, entry.at_ms)
                    world.count("all without a failing zone")
                    expect(
                        world.truth.was_in_sync(excused, since_ms, entry.at_ms),
                        f"{value} was acknowledged with acks=all, and zones {entry.ref.zones:03b} only confirmed it",
                    )
            deleted_at_ms = world.truth.deleted_at_ms.get(key.topic_id)
            expect(
                deleted_at_ms is None or entry.at_ms <= deleted_at_ms,
                f"{value} was appended at {entry.at_ms} to a topic whose deletion was confirmed at {deleted_at_ms}",
            )


def _check_deleted(world: World) -> None:
    for topic_id in world.truth.deleted_at_ms:
        # A head of a partition that was being added meanwhile may be left: no topic has ever named it. So may an empty
        # one whose creation was not answered, was made again, and lands late. Both go by retention (aftermath.py).
        keys = [PartitionKey(topic_id, Partition(number)) for number in range(world.truth.partitions_deleted[topic_id])]
        left = [str(key) for key, head in world.stores.log.heads(keys).items() if head.next_offset]
        expect(not left, f"the deletion of topic {topic_id} was confirmed, and heads are left: {left}")


def _check_commits(world: World, topics: Sequence[Topic]) -> None:
    by_name = {str(topic.name): topic for topic in topics}
    for where in world.claims.commits:
        group, topic_name, partition = where
        allowed = world.claims.allowed_commits(where, world.faults.late_ms + 60_000.0)
        topic = by_name.get(topic_name)
        if allowed is None or topic is None:
            continue
        stored = [
            committed.offset
            for committed in world.stores.groups.committed(GroupName(group))
            if committed.partition == PartitionKey(topic.topic_id, Partition(partition))
        ]
        expect(len(stored) == 1 and stored[0] in allowed, f"{where} has committed {stored}, told were {allowed}")
        told = history.Committed((topic_name, partition), int(stored[0]))
        world.story.recorder.done("final", history.Function.COMMITTED, [told], group=group)


def _check_that_heads_shrink(world: World, topic: Topic) -> None:
    """However long faults have left a tail, a few undisturbed appends make it short again."""
    for partition in topic.all_partitions():
        key = PartitionKey(topic.topic_id, partition)
        data = encode([NewRecord(1, None, b"calm")])
        for _ in range(TAIL_ROLL_REFS):
            if len(world.stores.log.heads([key])[key].tail) < TAIL_ROLL_REFS:
                break
            [result] = produce(
                world.stores, [ProduceEntry(topic=topic.name, partition=partition, data=data)], Acks.QUORUM
            )
            expect(not isinstance(result, PenstockError), f"a calm append failed: {result}")
        length = len(world.stores.log.heads([key])[key].tail)
        expect(length < TAIL_ROLL_REFS, f"the tail of {key} keeps {length} refs")
    _, bounds = describe_topic(world.stores, topic.name)
    expect(len(bounds) == topic.partitions, f"topic {topic.name} has lost heads")


def _difference(found: list[tuple[int, str]], wanted: list[tuple[int, str]]) -> str:
    for index, (left, right) in enumerate(zip(found, wanted, strict=False)):
        if left != right:
            return f"record {index} is {left}, not {right}"
    return f"{len(found)} records, not {len(wanted)}"
