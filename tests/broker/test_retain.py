"""Retention: what is expired goes, first for readers, then from the index; what is not stays, whoever dies or meets."""

from collections.abc import Callable
from typing import NoReturn

import pytest

from penstock_broker.alter_topic import alter_topic
from penstock_broker.broker import Broker
from penstock_broker.create_topic import create_topic
from penstock_broker.delete_topic import delete_topic
from penstock_broker.produce import produce
from penstock_broker.retain import Retained, retain
from penstock_broker.truncate import truncate
from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.ids import Offset, Partition, TopicId
from penstock_core.keys import PartitionKey
from penstock_core.limits import LOG_START_GRACE_MS, TAIL_ROLL_REFS, TOPIC_PARTITIONS_MAX
from penstock_core.quorum import Acks
from tests.broker.expiring import HOUR_MS, NEW, OLD, old_and_new, put
from tests.broker.interleaving import dying, that_dies, watched
from tests.broker.setting import (
    UNAVAILABLE,
    Intercepted,
    SteppedClock,
    another_instance,
    ask,
    batch,
    entry,
    head_of,
    key_of,
    new_topic,
    patient_broker,
    read_all,
    send,
)

BUDGET_MS = 60_000.0


def run(broker: Broker) -> Retained:
    return retain(broker, budget_ms=BUDGET_MS)


def test_expired_refs_are_hidden_at_once_and_their_pages_go_after_the_grace(
    broker: Broker, clock: SteppedClock
) -> None:
    topic = old_and_new(broker, clock)
    unexpired = read_all(broker, topic)[OLD:]
    assert run(broker) == Retained(partitions=1, refs_expired=OLD)
    assert read_all(broker, topic, offset=OLD) == unexpired
    with pytest.raises(PenstockError, match="OFFSET_OUT_OF_RANGE") as caught:
        ask(broker, topic, OLD - 1)
    assert caught.value.facts == {"log_start_offset": OLD, "high_watermark": OLD + NEW}
    clock.time_ms += LOG_START_GRACE_MS - 1
    assert run(broker) == Retained(partitions=1), "a function that began before the log start rose may still read pages"
    clock.time_ms += 1
    assert run(broker) == Retained(partitions=1, pages_deleted=2)
    first = broker.log.pages(key_of(broker, topic), Offset(0), 9)[0]
    assert first.base_offset == 2 * TAIL_ROLL_REFS, "the page that also holds unexpired refs stays"
    assert read_all(broker, topic, offset=OLD) == unexpired
    assert run(broker) == Retained(partitions=1)


def test_everything_may_expire_and_the_partition_goes_on(broker: Broker, clock: SteppedClock) -> None:
    topic = old_and_new(broker, clock)
    for _ in range(3):
        clock.time_ms += HOUR_MS
        run(broker)
    head = head_of(broker, topic)
    assert head.log_start_offset == head.next_offset == OLD + NEW
    assert head.settling_offset == OLD + NEW
    assert read_all(broker, topic, offset=OLD + NEW) == []
    put(broker, topic, 30, clock.now_ms())
    assert len(read_all(broker, topic, offset=OLD + NEW)) == 30


@pytest.mark.parametrize("config", [{"retention_ms": -1}, {"retention_ms": 2 * HOUR_MS}, {}])
def test_nothing_unexpired_goes(broker: Broker, clock: SteppedClock, config: dict[str, int]) -> None:
    topic = old_and_new(broker, clock)
    alter_topic(broker, topic, None, {"retention_ms": None} | config)
    before = read_all(broker, topic)
    for _ in range(3):
        clock.time_ms += 10 * 60_000
        assert run(broker) == Retained(partitions=1)
    assert read_all(broker, topic) == before


def test_size_keeps_the_newest(broker: Broker, clock: SteppedClock) -> None:
    topic = new_topic(broker, retention_ms=-1, retention_bytes=2**20)
    large = batch("x" * 100_000)
    for _ in range(30):
        produce(broker, [entry(topic, 0, large)], Acks.QUORUM)
    run(broker)
    kept = head_of(broker, topic).next_offset - head_of(broker, topic).log_start_offset
    assert kept == -(-(2**20) // len(large))


def test_truncations_in_quick_succession_do_not_keep_pages_for_ever(broker: Broker, clock: SteppedClock) -> None:
    topic = new_topic(broker)
    deleted = 0
    for number in range(20):
        put(broker, topic, TAIL_ROLL_REFS, clock.now_ms())
        truncate(broker, topic, {0: (number + 1) * TAIL_ROLL_REFS})
        clock.time_ms += LOG_START_GRACE_MS // 3
        deleted += run(broker).pages_deleted
    assert deleted >= 12


def test_setting_raised_while_a_run_is_under_way_is_heeded(broker: Broker, clock: SteppedClock) -> None:
    topic = old_and_new(broker, clock)

    def heads_late(original: object, *arguments: object) -> object:
        alter_topic(another_instance(broker), topic, None, {"retention_ms": -1})
        clock.time_ms += 10_000
        return original(*arguments)  # type: ignore[operator]

    running = another_instance(broker, log=Intercepted(broker.log, heads=heads_late))
    running.directory.find(topic)
    assert run(running).refs_expired == 0


@pytest.mark.parametrize("is_applied", [False, True])
def test_run_that_dies_anywhere_loses_nothing_and_the_next_ones_end_in_the_same_place(is_applied: bool) -> None:
    for place in range(200):
        clock = SteppedClock()
        broker = patient_broker(clock)
        gone = old_and_new(broker, clock, "gone")
        delete_topic(broker, gone)
        topic = old_and_new(broker, clock)
        unexpired = read_all(broker, topic)[OLD:]
        left = head_of(broker, topic)
        with dying() as was_killed:
            mortal = that_dies(broker, place, is_applied=is_applied)
            for _ in range(2):
                run(mortal)
                clock.time_ms += LOG_START_GRACE_MS
        assert read_all(broker, topic, offset=OLD) == unexpired
        assert head_of(broker, topic).next_offset == left.next_offset
        for _ in range(3):
            clock.time_ms += LOG_START_GRACE_MS
            run(broker)
        assert read_all(broker, topic, offset=OLD) == unexpired
        assert [page.base_offset for page in broker.log.pages(key_of(broker, topic), Offset(0), 9)] == [32]
        assert list(broker.topics.deleted()) == []
        if not was_killed:
            assert place > 10
            return
    raise AssertionError("it never ran to its end")


def test_two_runs_at_once_do_no_harm(broker: Broker, clock: SteppedClock) -> None:
    topic = old_and_new(broker, clock)
    unexpired = read_all(broker, topic)[OLD:]
    twin = watched(broker, lambda _: run(another_instance(broker)) and None)
    for _ in range(3):
        run(twin)
        clock.time_ms += LOG_START_GRACE_MS
    assert read_all(broker, topic, offset=OLD) == unexpired
    assert len(broker.log.pages(key_of(broker, topic), Offset(0), 9)) == 1


def test_deleted_topic_goes_with_its_note_and_the_new_one_of_its_name_stays(
    broker: Broker, clock: SteppedClock
) -> None:
    topic = old_and_new(broker, clock)
    key = key_of(broker, topic)
    delete_topic(broker, topic)
    new_topic(broker, topic)
    put(broker, topic, 20, clock.now_ms())
    new = read_all(broker, topic)
    assert run(broker).pages_deleted == 0, "a fetch may be under way"
    clock.time_ms += LOG_START_GRACE_MS
    assert run(broker) == Retained(partitions=1, pages_deleted=3, topics_removed=1)
    assert list(broker.log.pages(key, Offset(0), 9)) == list(broker.topics.deleted()) == []
    assert read_all(broker, topic) == new


def test_head_that_the_deletion_of_its_topic_did_not_reach_goes(broker: Broker, clock: SteppedClock) -> None:
    topic = old_and_new(broker, clock)
    key = key_of(broker, topic)
    with dying():
        delete_topic(that_dies(broker, 2, is_applied=False), topic)
    assert key in broker.log.heads([key])
    run(broker)
    assert broker.log.heads([key]) == {}


def heads_left(broker: Broker, topic_id: TopicId) -> int:
    return len(broker.log.heads([PartitionKey(topic_id, Partition(number)) for number in range(TOPIC_PARTITIONS_MAX)]))


@pytest.mark.parametrize("is_applied", [False, True])
@pytest.mark.parametrize("calls", range(8))
def test_creation_that_dies_leaves_a_topic_with_all_its_heads_or_in_time_nothing(
    calls: int, is_applied: bool, clock: SteppedClock
) -> None:
    """It dies at each of its calls to storage, before the effect and after it."""
    broker = patient_broker(clock)
    begun: list[TopicId] = []
    noting = Intercepted(broker.topics, begin=lambda original, note: (begun.append(note.topic_id), original(note)))
    with dying() as was_killed:
        create_topic(that_dies(another_instance(broker, topics=noting), calls, is_applied=is_applied), "orders", 3, {})
    assert was_killed
    for _ in range(2):
        clock.time_ms += LOG_START_GRACE_MS
        run(broker)
    is_visible = bool(broker.topics.list())
    assert [heads_left(broker, topic_id) for topic_id in begun] == [3 if is_visible else 0] * len(begun)
    assert list(broker.topics.deleted()) == []
    if not is_visible:
        create_topic(broker, "orders", 3, {})
    assert send(broker, "orders", "x", partition=2).base_offset == 0


def test_creation_under_way_is_left_alone(broker: Broker, clock: SteppedClock) -> None:
    def create_late(original: Callable[..., None], *arguments: object) -> None:
        clock.time_ms += LOG_START_GRACE_MS - 1
        assert run(broker) == Retained()
        original(*arguments)

    create_topic(another_instance(broker, topics=Intercepted(broker.topics, create=create_late)), "orders", 2, {})
    assert send(broker, "orders", "x", partition=1).base_offset == 0


def test_creation_that_outlasts_the_grace_is_refused_and_leaves_no_topic_without_heads(
    broker: Broker, clock: SteppedClock
) -> None:
    def create_late(original: Callable[..., None], *arguments: object) -> None:
        clock.time_ms += LOG_START_GRACE_MS
        run(broker)
        original(*arguments)

    late = another_instance(broker, topics=Intercepted(broker.topics, create=create_late))
    with pytest.raises(PenstockError) as caught:
        create_topic(late, "orders", 2, {})
    assert caught.value.code is ErrorCode.CONCURRENT_UPDATE
    assert list(broker.topics.list()) == []


def test_partitions_of_an_alteration_that_died_go_after_their_topic(broker: Broker, clock: SteppedClock) -> None:
    topic = new_topic(broker)
    topic_id = key_of(broker, topic).topic_id
    refusing = Intercepted(broker.topics, replace=lambda *_: _raise(UNAVAILABLE))
    with pytest.raises(PenstockError, match="STORAGE_UNAVAILABLE"):
        alter_topic(another_instance(broker, topics=refusing), topic, 4, {})
    delete_topic(broker, topic)
    assert heads_left(broker, topic_id) == 3
    run(broker)
    assert heads_left(broker, topic_id) == 3, "another alteration may be under way"
    clock.time_ms += LOG_START_GRACE_MS
    bad = Intercepted(broker.log, heads=lambda *_: _raise(UNAVAILABLE))
    assert run(another_instance(broker, log=bad)) == Retained(failures=1)
    assert run(broker) == Retained(topics_removed=1)
    assert heads_left(broker, topic_id) == 0


def _raise(error: PenstockError) -> NoReturn:
    raise error


def test_partition_that_fails_is_counted_and_met_again(broker: Broker, clock: SteppedClock) -> None:
    topic = old_and_new(broker, clock)
    kept = old_and_new(broker, clock, "kept")
    bad = key_of(broker, topic)

    def refuse(original: object, key: PartitionKey, *arguments: object) -> object:
        if key == bad:
            raise UNAVAILABLE
        return original(key, *arguments)  # type: ignore[operator]

    faulty = another_instance(broker, log=Intercepted(broker.log, raise_log_start=refuse))
    assert run(faulty).failures == 1
    assert head_of(broker, topic).log_start_offset == 0
    assert head_of(broker, kept).log_start_offset == OLD
    assert run(broker).failures == 0
    assert head_of(broker, topic).log_start_offset == OLD + NEW, "an hour later it is all expired"


def test_run_out_of_time_goes_on_where_it_stopped(broker: Broker, clock: SteppedClock) -> None:
    names = [new_topic(broker, f"t{number}", partitions=150, retention_ms=600_000) for number in range(3)]
    for name in names:
        send(broker, name, "x", partition=149)
    clock.time_ms += HOUR_MS

    def heads_slow(original: object, *arguments: object) -> object:
        clock.time_ms += 30
        return original(*arguments)  # type: ignore[operator]

    slow = another_instance(broker, log=Intercepted(broker.log, heads=heads_slow))
    seen = [retain(slow, budget_ms=100) for _ in range(2)]
    assert [part.partitions for part in seen] == [250, 200]
    assert [part.is_finished for part in seen] == [False, True]
    assert [head_of(broker, name, 149).log_start_offset for name in names] == [1, 1, 1]
    assert broker.cursors.get("retention") is None


def test_partition_with_much_to_let_go_of_takes_several_runs(broker: Broker, clock: SteppedClock) -> None:
    topic = new_topic(broker, retention_ms=600_000)
    put(broker, topic, 60 * TAIL_ROLL_REFS, clock.now_ms())
    clock.time_ms += HOUR_MS

    def pages_slow(original: object, *arguments: object) -> object:
        clock.time_ms += 40
        return original(*arguments)  # type: ignore[operator]

    slow = another_instance(broker, log=Intercepted(broker.log, pages=pages_slow))
    starts = []
    for _ in range(3):
        retain(slow, budget_ms=100)
        starts.append(head_of(broker, topic).log_start_offset // TAIL_ROLL_REFS)
    assert starts == [25, 50, 60]
