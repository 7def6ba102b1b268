"""The promises that must hold after a run: all calls in flight have landed, all zones answer, and faults are over."""

from collections.abc import Sequence

from penstock_core.errors import PenstockError
from penstock_core.ids import GroupName, Partition, PartitionKey
from penstock_core.limits import FETCH_BYTES_MAX, TAIL_ROLL_REFS
from penstock_core.log.ref import Tier
from penstock_core.log.retention import searched_ms
from penstock_core.log.topic import Topic
from penstock_core.records.codec import NewRecord, decode, encode
from penstock_core.records.record_batch import check_stored
from penstock_core.zones.zone_state import BARRIER_MS, Acks
from penstock_service.records.fetch import FetchEntry, FetchResult, fetch
from penstock_service.records.produce import ProduceEntry, produce
from penstock_service.topics.describe_topic import describe_topic
from penstock_service.topics.list_offsets import OffsetSpec, list_offsets
from tests.history import format as history
from tests.simulation.engine.time_and_chance import EPOCH_MS
from tests.simulation.oracle.expected_log import MISSED
from tests.simulation.oracle.violation import expect
from tests.simulation.service.simulation import Simulation
from tests.simulation.verdict.cleanup import clear_away, restore
from tests.support.group_commits import commits_of


def judge(simulation: Simulation) -> None:
    """Raise ViolationError for the first broken promise."""
    topics = simulation.stores.topics.list()
    for topic in topics:
        for partition in topic.all_partitions():
            _check_partition(simulation, topic, PartitionKey(topic.topic_id, partition))
    restore(simulation)
    _check_claims(simulation, {topic.topic_id for topic in topics})
    _check_deleted(simulation)
    _check_commits(simulation, topics)
    for check in simulation.final_checks:
        check()
    clear_away(simulation)
    for topic in topics:
        _check_that_heads_shrink(simulation, topic)
    if not any(simulation.claims.topic_changes.values()):  # a history cannot tell apart two topics of one name
        report = simulation.history.judge(everything_was_read=True)
        expect(report.is_clean, f"the history has anomalies: {[each.anomaly for each in report.examples]}")


def _check_partition(simulation: Simulation, topic: Topic, key: PartitionKey) -> None:
    located = simulation.oracle.log.check_index(key)
    head = simulation.stores.log.heads([key])[key]
    expect(
        head.log_start_offset == simulation.oracle.log_starts.get(key, 0),
        f"log start of {key} is {head.log_start_offset}, was raised to {simulation.oracle.log_starts.get(key, 0)}",
    )
    expected = [
        (entry.base_offset + index, value)
        for entry in simulation.oracle.log.appends.get(key, ())
        for index, value in enumerate(entry.values)
    ]
    expect([offset for offset, _ in expected] == list(range(head.next_offset)), f"offsets of {key} are not dense")
    for each in located:
        if each.end_offset <= head.log_start_offset:
            continue  # its objects may be gone
        if each.ref.tier is Tier.ARCHIVE:
            data = simulation.stores.archive.get(each.ref.segment_id, each.ref.position, each.ref.length)
            check_stored(memoryview(data), each.ref.offset_span)
        if each.ref.tier.is_item:
            bodies = simulation.stores.inline.get_expiring([each.ref.segment_id])
            expect(each.ref.segment_id in bodies, f"{key} at {each.base_offset} has lost its item: {each.ref}")
            data = bodies[each.ref.segment_id][each.ref.position : each.ref.position + each.ref.length]
            check_stored(memoryview(data), each.ref.offset_span)
        for index, store in enumerate(simulation.stores.zones):
            if (
                each.ref.zones >> index & 1
                and (f"zone {store.zone}", each.ref.segment_id) not in simulation.oracle.destroyed
            ):
                data = store.get(each.ref.segment_id, each.ref.position, each.ref.length)
                check_stored(memoryview(data), each.ref.offset_span)
    if topic.config.is_compacted:
        _check_latest(simulation, topic, key)
        return
    found = _read_all(simulation, topic, key)
    wanted = [each for each in expected[head.log_start_offset :] if each[1] != MISSED]
    expect(
        found == wanted,
        f"{key} read from {head.log_start_offset} to its end differs from what was appended: "
        f"{_difference(found, wanted)}",
    )
    if topic.name in simulation.oracle.log.topics_of_the_service:
        return
    poll = simulation.recorder.invoke("final", history.Function.POLL)
    simulation.recorder.done(
        "final", history.Function.SEEK, [history.Seek((topic.name, key.partition), head.log_start_offset)]
    )
    simulation.recorder.ok(poll, [history.Poll((topic.name, key.partition), tuple(found))])
    _check_times(simulation, topic, key)


def _check_latest(simulation: Simulation, topic: Topic, key: PartitionKey) -> None:
    """Check that the log has each record without a key, and each key's newest record unless that is a tombstone."""
    appended = simulation.oracle.merges.cleanings.appended(key)
    newest = {record_key: offset for offset, record_key, _ in appended}
    wanted = {
        offset
        for offset, record_key, value in appended
        if record_key is None or (newest[record_key] == offset and value is not None)
    }
    found = {offset for offset, _ in _read_all(simulation, topic, key)}
    expect(wanted <= found, f"{key} has lost the records at {sorted(wanted - found)}, the newest of their keys")
    expect(found <= {offset for offset, _, _ in appended}, f"{key} holds records that were never appended")


def _read_all(simulation: Simulation, topic: Topic, key: PartitionKey) -> list[tuple[int, str]]:
    head = simulation.stores.log.heads([key])[key]
    offset = int(head.log_start_offset)
    found: list[tuple[int, str]] = []
    while not head.move or offset < head.next_offset:  # the end of a moved log says where it goes on
        entry = FetchEntry(topic=topic.name, partition=key.partition, offset=offset, max_bytes=2_000)
        [fetched] = fetch(simulation.bare, [entry], max_bytes=FETCH_BYTES_MAX, min_bytes=1, wait_ms=0)
        if isinstance(fetched, PenstockError):
            expect(False, f"{key} cannot be read at {offset}: {fetched}")
        assert isinstance(fetched, FetchResult)
        found += [
            (record.offset, (record.value or b"").decode())
            for record in decode(memoryview(fetched.data))
            if record.offset >= offset
        ]
        if fetched.next_offset == fetched.high_watermark:
            return found
        expect(fetched.next_offset > offset, f"a fetch of {key} at {offset} does not move on")
        offset = fetched.next_offset
    return found


def _check_times(simulation: Simulation, topic: Topic, key: PartitionKey) -> None:
    """Compare the first record at or after some times with a scan of the log."""
    start = simulation.oracle.log_starts.get(key, 0)
    records = [
        (entry.base_offset + index, searched_ms(entry.ref))
        for entry in simulation.oracle.log.appends.get(key, ())
        for index in range(len(entry.values))
    ]
    if not records:
        return
    has_delayed = any(entry.ref.is_delayed for entry in simulation.oracle.log.appends.get(key, ()))
    for share in (0.0, 0.3, 0.6, 0.9):
        time_ms = EPOCH_MS + int(share * simulation.scheduler.now_ms)
        [answer] = list_offsets(simulation.bare, topic.name, time_ms, key.partition).all_ok()
        # Only the timestamp of a ref's newest record is known here.
        refs = [offset for offset, newest_ms in records if newest_ms >= time_ms and offset >= start]
        expect((answer.offset is None) == (not refs), f"offset of {key} at {time_ms} is {answer.offset}")
        # A merged ref has the newest time of the delayed records in it, so a search may begin too low there.
        if answer.offset is not None and not has_delayed:
            expect(answer.offset >= refs[0], f"offset of {key} at {time_ms} is {answer.offset}, below {refs[0]}")
    [end] = list_offsets(simulation.bare, topic.name, OffsetSpec.LATEST, key.partition).all_ok()
    expect(end.offset == simulation.oracle.log.ends.get(key, 0), f"the latest offset of {key} is {end.offset}")


def _check_claims(simulation: Simulation, alive: set[str]) -> None:
    zone_count = len(simulation.stores.zones)
    for value, sent in simulation.claims.sent.items():
        places = simulation.oracle.log.places.get(value, [])
        # The driver repeats an idempotent append whose answer was lost. One try may have met a topic that was deleted
        # meanwhile, and the other try the topic made anew. Within a topic there is one copy, unless its deletion was
        # never confirmed. Then instances that remember the old topic and instances that know the new one answer a
        # producer by turns.
        driver_repeats = int(sent.is_idempotent and sent.topic in simulation.claims.topic_changes)
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
                if place == offset
                and key.partition == sent.partition
                and simulation.oracle.log.names[key.topic_id] == sent.topic
            ]
            expect(bool(at), f"{value} was acknowledged at offset {offset}, and stands elsewhere: {places}")
            key, entry = at[0]
            is_inline = entry.ref.tier.is_item  # the oracle has seen its item, which meets all acks
            needed = 1 if sent.acks in (Acks.NONE, Acks.ONE) else zone_count // 2 + 1
            expect(
                is_inline or (entry.stored_in.bit_count() >= needed and entry.ref.zones.bit_count() >= needed),
                f"{value} was acknowledged with acks={sent.acks.value}, and {entry.stored_in:03b} zones held it",
            )
            if sent.acks is Acks.ALL and not is_inline:
                since_ms = entry.at_ms - BARRIER_MS
                if not simulation.oracle.was_in_sync(entry.ref.zones, since_ms, entry.at_ms):
                    excused = entry.ref.zones | simulation.oracle.given_up(entry.ref.segment_id, entry.at_ms)
                    simulation.count("all without a failing zone")
                    expect(
                        simulation.oracle.was_in_sync(excused, since_ms, entry.at_ms),
                        f"{value} was acknowledged with acks=all, and zones {entry.ref.zones:03b} only confirmed it",
                    )
            deleted_at_ms = simulation.oracle.deleted_at_ms.get(key.topic_id)
            expect(
                deleted_at_ms is None or entry.at_ms <= deleted_at_ms,
                f"{value} was appended at {entry.at_ms} to a topic whose deletion was confirmed at {deleted_at_ms}",
            )


def _check_deleted(simulation: Simulation) -> None:
    for topic_id in simulation.oracle.deleted_at_ms:
        # Two kinds of head may be left. A partition was being added meanwhile, so no topic ever named its head. Or the
        # creation of an empty head got no answer, was repeated, and lands late. Retention removes both (cleanup.py).
        keys = [
            PartitionKey(topic_id, Partition(number))
            for number in range(simulation.oracle.partitions_deleted[topic_id])
        ]
        left = [str(key) for key, head in simulation.stores.log.heads(keys).items() if head.next_offset]
        expect(not left, f"the deletion of topic {topic_id} was confirmed, and heads are left: {left}")


def _check_commits(simulation: Simulation, topics: Sequence[Topic]) -> None:
    by_name = {str(topic.name): topic for topic in topics}
    for where in simulation.claims.commits:
        group, topic_name, partition = where
        allowed = simulation.claims.allowed_commits(where, simulation.faults.late_ms + 60_000.0)
        topic = by_name.get(topic_name)
        if allowed is None or topic is None:
            continue
        stored = [
            committed.offset
            for committed in commits_of(simulation.stores.groups, GroupName(group))
            if committed.partition == PartitionKey(topic.topic_id, Partition(partition))
        ]
        expect(len(stored) == 1 and stored[0] in allowed, f"{where} has committed {stored}, allowed are {allowed}")
        answer = history.Committed((topic_name, partition), int(stored[0]))
        simulation.recorder.done("final", history.Function.COMMITTED, [answer], group=group)


def _check_that_heads_shrink(simulation: Simulation, topic: Topic) -> None:
    """Check that a few undisturbed appends make a tail short again, however long the faults left it."""
    for partition in topic.all_partitions():
        key = PartitionKey(topic.topic_id, partition)
        data = encode([NewRecord(1, None, b"calm")])
        for _ in range(TAIL_ROLL_REFS):
            head = simulation.stores.log.heads([key])[key]
            if head.is_closed or len(head.tail) < TAIL_ROLL_REFS:
                break
            [result] = produce(
                simulation.bare, [ProduceEntry(topic=topic.name, partition=partition, data=data)], Acks.QUORUM
            )
            expect(not isinstance(result, PenstockError), f"a calm append failed: {result}")
        head = simulation.stores.log.heads([key])[key]
        expect(head.is_closed or len(head.tail) < TAIL_ROLL_REFS, f"the tail of {key} keeps {len(head.tail)} refs")
    now, bounds = describe_topic(simulation.bare.topic_cache, simulation.bare.stores.log, topic.name)
    expect(len(bounds) == now.partitions, f"topic {topic.name} has lost heads")


def _difference(found: list[tuple[int, str]], wanted: list[tuple[int, str]]) -> str:
    for index, (left, right) in enumerate(zip(found, wanted, strict=False)):
        if left != right:
            return f"record {index} is {left}, not {right}"
    return f"{len(found)} records, not {len(wanted)}"
