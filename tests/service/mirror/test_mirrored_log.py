"""A mirror holds the same batches at the same offsets, whatever is lost, doubled, late, removed or restored."""

from dataclasses import replace
from typing import Any

import pytest

from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.ids import Offset, TopicName
from penstock_core.log.retention import written_ms
from penstock_core.push.targets.target import StageTarget
from penstock_core.records.codec import decode, empty_batch
from penstock_core.records.record_batch import stamp, walk
from penstock_core.zones.zone_state import Acks
from penstock_service.instance.instance import Instance
from penstock_service.mirror import push_log
from penstock_service.mirror.append_push import append_push
from penstock_service.mirror.promote_topic import promote_topic, resync_topic
from penstock_service.mirror.push_log import _behind
from penstock_service.records.produce import ProduceEntry, produce
from penstock_service.topics.alter_topic import alter_topic, delete_topic, remove_topic, truncate
from tests.service.mirror.stages import Stages, batches
from tests.service.records.test_idempotence import numbered
from tests.support.refusals import refused
from tests.support.restoring import jump
from tests.support.service import Intercepted, batch, head_of, key_of, new_topic, refs_of, send, with_stores


def stages_of(*values: str, **settings: Any) -> Stages:
    stages = Stages(**settings)
    for value in values:
        stages.source.append(value)
    stages.run()
    return stages


def assert_equal(stages: Stages, partition: int = 0) -> None:
    source, mirror = stages.logs(partition)
    assert source == mirror
    assert source


def test_mirror_has_the_same_bytes_at_the_same_offsets() -> None:
    stages = stages_of("a", "b", "c")
    assert_equal(stages)
    assert [push.next_offset for push in stages.pushes] == [3], "one push for all that there is"
    stages.source.append("d", "e")
    stages.run()
    assert_equal(stages)
    [source], [mirror] = (
        [*refs_of(each, key_of(each, "orders"))][-1:] for each in (stages.source.instance, stages.mirror)
    )
    assert (mirror.base_offset, mirror.ref.record_count) == (source.base_offset, source.ref.record_count)
    assert written_ms(mirror.ref) == written_ms(source.ref), "retention counts from the append at the source"
    assert stages.source.counts()["records_mirrored"] == 5


def test_settings_and_partitions_go_along() -> None:
    stages = stages_of("a", partitions=2)
    alter_topic(stages.source.instance, "orders", 4, {"retention_ms": 3_600_000})
    stages.clock.time_ms += 20_000
    stages.source.append("b")
    stages.run()
    source = stages.source.instance.topic_cache.read_through("orders")
    mirror = stages.mirror.topic_cache.read_through("orders")
    assert (mirror.partitions, mirror.config, mirror.layout) == (4, source.config, source.layout)
    assert mirror.topic_id != source.topic_id
    assert all(head_of(stages.mirror, "orders", number).is_closed for number in range(4))
    for settings_ms in (stages.pushes[0].topic.settings_ms, stages.clock.now_ms() + 300_000):
        topic = replace(stages.pushes[0].topic, settings_ms=settings_ms)
        append_push(stages.mirror, replace(stages.pushes[0], topic=topic, parts=[], data=b""))
        found = stages.mirror.topic_cache.read_through("orders")
        assert found == mirror, "older settings change nothing, though their clock is ahead"


def test_answer_that_was_lost_appends_once() -> None:
    stages = Stages(loses_answers=1)
    stages.source.append("a")
    stages.run()
    assert len(stages.pushes) == 2
    assert_equal(stages)
    assert len(refs_of(stages.mirror, key_of(stages.mirror, "orders"))) == 1


def test_late_push_appends_nothing() -> None:
    stages = stages_of("a")
    stages.source.append("b")
    stages.run()
    assert append_push(stages.mirror, stages.pushes[0]).next_offset == 2
    assert_equal(stages)


def test_pushes_wait_while_the_mirror_is_away() -> None:
    stages = Stages(is_away=True)
    stages.source.append("a")
    stages.run()
    state = stages.source.state()
    assert state is not None
    assert state.trouble is not None
    assert (state.offset, state.trouble.outages > 1, state.dead_lettered) == (0, True, 0)
    stages.is_away = False
    stages.run()
    assert_equal(stages)


def test_producer_ahead_of_the_mirror_is_told_of_no_gap() -> None:
    """It would go on under another id, and the source would append its records twice."""
    stages = Stages()
    _produce(stages.source.instance, numbered(0, "a"))
    stages.source.start()
    stages.run()
    entry = ProduceEntry(topic="orders", partition=0, data=numbered(2, "c"))
    refused(ErrorCode.MIRRORED, lambda: produce(stages.mirror, [entry], Acks.QUORUM).all_ok())
    again = ProduceEntry(topic="orders", partition=0, data=numbered(0, "a"))
    [repeat] = produce(stages.mirror, [again], Acks.QUORUM).all_ok()
    assert repeat.base_offset == 0
    promote_topic(stages.mirror, "orders")
    refused(ErrorCode.OUT_OF_ORDER_SEQUENCE, lambda: produce(stages.mirror, [entry], Acks.QUORUM).all_ok())


def test_producer_goes_on_at_the_promoted_mirror() -> None:
    stages = Stages()
    first, second = numbered(0, "a"), numbered(1, "b")
    _produce(stages.source.instance, first)
    stages.source.start()
    stages.run()
    promote_topic(stages.mirror, "orders")
    assert _produce(stages.mirror, first) == (0, 1), "a repeat is known by the mirrored entry and bytes"
    assert _produce(stages.mirror, second) == (1, 2)
    refused(ErrorCode.OUT_OF_ORDER_SEQUENCE, lambda: _produce(stages.mirror, numbered(5, "x")))


def test_mirrored_topic_refuses_what_its_source_alone_may_do() -> None:
    stages = stages_of("a")
    mirror = stages.mirror
    for change in (
        lambda: send(mirror, "orders", "x"),
        lambda: alter_topic(mirror, "orders", 3, {}),
        lambda: alter_topic(mirror, "orders", None, {"retention_ms": 3_600_000}),
        lambda: delete_topic(mirror, "orders"),
        lambda: truncate(mirror, "orders", {0: 1}),
    ):
        error = refused(ErrorCode.MIRRORED, change)
        assert (error.facts["mirror"], error.facts["source"]) == ("packing", "https://a.example")
    assert_equal(stages)


def test_promoted_topic_takes_appends_and_no_push() -> None:
    stages = stages_of("a", "b")
    [found] = promote_topic(stages.mirror, "orders").partitions
    assert (found.partition, found.promoted_at) == (0, 2)
    assert found.appended_ms is not None
    assert send(stages.mirror, "orders", "own").base_offset == 2
    stages.source.append("c")
    stages.run()
    assert stages.source.state() is not None
    assert [values for *_, values in stages.logs()[1]][-1] == [b"own"]
    assert promote_topic(stages.mirror, "orders").partitions == [found], "a repeat answers as the first call"
    assert alter_topic(stages.mirror, "orders", 2, {}).partitions == 2
    assert send(stages.mirror, "orders", "new", partition=1).base_offset == 0


def test_push_meets_a_head_that_was_promoted_before_its_topic() -> None:
    stages = stages_of("a")
    key = key_of(stages.mirror, "orders")
    stages.mirror.stores.log.promote(key, "packing", 0, None)
    push = stages.pushes[-1]
    assert append_push(stages.mirror, push).next_offset == 1, "it has it"
    refused(ErrorCode.MIRROR_ENDED, lambda: append_push(stages.mirror, replace(push, base_offset=Offset(1))))
    promote_topic(stages.mirror, "orders")
    assert head_of(stages.mirror, "orders").promoted_at == 1


def test_topic_that_is_no_mirror_is_neither_promoted_nor_resynced_nor_pushed_to() -> None:
    stages = Stages()
    new_topic(stages.mirror, "orders")
    refused(ErrorCode.INVALID_REQUEST, lambda: promote_topic(stages.mirror, "orders"))
    refused(ErrorCode.INVALID_REQUEST, lambda: resync_topic(stages.mirror, "orders"))
    stages.source.append("a")
    stages.run()
    refused(ErrorCode.TOPIC_EXISTS, lambda: append_push(stages.mirror, stages.pushes[0]))
    assert stages.logs()[1] == []


def test_topic_made_anew_at_the_source_does_not_go_into_the_old_mirror() -> None:
    stages = stages_of("a")
    [push] = stages.pushes
    other = replace(push, topic=replace(push.topic, topic_id="ff" * 10), base_offset=Offset(1))
    refused(ErrorCode.TOPIC_EXISTS, lambda: append_push(stages.mirror, other))
    assert_equal(stages)


def test_log_of_a_topic_that_was_deleted_does_not_go_under_the_name_of_a_new_one() -> None:
    stages = Stages()
    stages.source.append("a")
    old = key_of(stages.source.instance, "orders").topic_id
    delete_topic(stages.source.instance, "orders")
    new_topic(stages.source.instance, "orders")
    refused(
        ErrorCode.UNKNOWN_TOPIC,
        lambda: push_log.told_topic(stages.source.instance, TopicName("orders"), old, ""),
    )


def test_resync_begins_anew_under_another_id() -> None:
    stages = stages_of("a", "b")
    before = key_of(stages.mirror, "orders")
    resync_topic(stages.mirror, "orders")
    stages.again()
    assert_equal(stages)
    assert key_of(stages.mirror, "orders") != before


@pytest.mark.parametrize("is_resumed", [True, False])
@pytest.mark.parametrize("lanes", [1, 4])
def test_idle_partitions_come_again_next_to_a_busy_one(lanes: int, is_resumed: bool) -> None:
    stages = Stages(partitions=4, lanes=lanes)
    for number in range(4):
        send(stages.source.instance, "orders", f"value {number}", partition=number)
    stages.run()
    resync_topic(stages.mirror, "orders")
    stages.source.append("new")
    if is_resumed:
        stages.again()
    stages.run()
    for number in range(4):
        assert_equal(stages, number)


def test_idle_partitions_are_asked_though_the_answer_of_the_newer_version_is_lost() -> None:
    """The repeat of its write meets what the first try has stored."""
    stages = Stages(partitions=2, lanes=2)
    for number in range(2):
        send(stages.source.instance, "orders", f"value {number}", partition=number)
    stages.run()
    resync_topic(stages.mirror, "orders")
    stages.source.append("new")
    push = stages.source.instance.stores.push

    def change_subscription(change: Any, old: Any, new: Any) -> None:
        change(old, new)
        raise PenstockError(ErrorCode.CONCURRENT_UPDATE, "a newer version")

    lossy = Intercepted(push, change_subscription=change_subscription)
    stages.source.run_once(with_stores(stages.source.instance, push=lossy))
    stages.run()
    for number in range(2):
        assert_equal(stages, number)


def test_resync_that_is_late_removes_no_promoted_topic() -> None:
    stages = stages_of("a")
    seen = stages.mirror.topic_cache.read_through("orders")
    promote_topic(stages.mirror, "orders")
    send(stages.mirror, "orders", "own")
    refused(ErrorCode.CONCURRENT_UPDATE, lambda: remove_topic(stages.mirror, seen))
    assert head_of(stages.mirror, "orders").next_offset == 2


def test_resync_removes_no_topic_whose_promotion_has_begun() -> None:
    stages = stages_of("a", partitions=2)
    topic = stages.mirror.topic_cache.read_through("orders")
    assert topic.mirror is not None
    stages.mirror.stores.topics.replace(topic, replace(topic, mirror=replace(topic.mirror, decided=0)))
    stages.mirror.stores.log.promote(key_of(stages.mirror, "orders"), "packing", 0, None)
    assert send(stages.mirror, "orders", "own").base_offset == 1
    refused(ErrorCode.INVALID_REQUEST, lambda: resync_topic(stages.mirror, "orders"))
    promote_topic(stages.mirror, "orders")
    assert head_of(stages.mirror, "orders").next_offset == 2


def test_records_that_went_before_they_were_mirrored_are_a_jump_and_counted() -> None:
    stages = stages_of("a")
    stages.is_away = True
    stages.source.append("b", "c")
    stages.source.append("d")
    stages.source.instance.stores.log.raise_log_start(key_of(stages.source.instance, "orders"), Offset(3))
    stages.is_away = False
    stages.run()
    assert [(start, end, values) for start, end, _, values in batches(stages.mirror, "orders", 0)] == [
        (0, 1, [b"a"]),
        (1, 3, []),
        (3, 4, [b"d"]),
    ]
    assert stages.source.counts()["records_missed"] == 2


def test_mirror_of_a_log_that_has_lost_its_begin_starts_with_a_jump_that_nobody_misses() -> None:
    stages = Stages()
    stages.source.append("a", "b")
    truncate(stages.source.instance, "orders", {0: 1})
    stages.source.append("c")
    stages.run()
    assert [(start, end, values) for start, end, _, values in batches(stages.mirror, "orders", 0)] == [
        (0, 1, []),
        (1, 2, [b"b"]),
        (2, 3, [b"c"]),
    ]
    assert "records_missed" not in stages.source.counts()


def test_records_behind_the_mirrors_end_keep_their_offsets_in_a_batch_of_their_own() -> None:
    """Compaction merges batches that a mirror has with those that it lacks."""
    merged = batch("a", "b", "c")
    cut, end = _behind(merged, 10, 11)
    assert end == 13
    stamped = bytearray(cut)
    assert stamp(stamped, 11) == 13
    assert [(each.offset, each.value) for each in decode(stamped)] == [(11, b"b"), (12, b"c")]
    gap = empty_batch(5)
    assert stamp(bytearray(_behind(gap, 10, 12)[0]), 12) == 15


def test_batch_that_is_sent_in_portions_goes_before_the_next_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(push_log, "BATCH_DECODED_BYTES_MAX", 300)  # of two records
    source = Stages().source.instance
    _produce(source, batch("a", "b", "c", "d", "e") + batch("f", "g"))
    key, head = key_of(source, "orders"), head_of(source, "orders")
    offset, found = Offset(1), []
    while offset < head.next_offset:
        gathered = push_log._gathered(source, key, head, offset)
        data = bytearray(b"".join(gathered.data))
        stamp(data, offset)
        batches_of = [data[at : at + header.length] for at, header in walk(data)]
        found += [(each.offset, each.value) for one in batches_of for each in decode(one)]
        offset = gathered.offset
    assert found == [*enumerate([b"b", b"c", b"d", b"e", b"f", b"g"], 1)]


def test_ref_that_is_larger_than_a_push_keeps_its_producer(monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = numbered(0, "a"), numbered(1, "b")
    monkeypatch.setattr(push_log, "MIRROR_PUSH_BYTES", len(first))
    stages = Stages()
    _produce(stages.source.instance, first + second)
    stages.source.start()
    stages.run()
    assert [push.next_offset for push in stages.pushes] == [1, 2]
    append_push(stages.mirror, stages.pushes[0])
    promote_topic(stages.mirror, "orders")
    assert _produce(stages.mirror, second) == (1, 2), "a repeat is known by the mirrored entry and bytes"
    assert _produce(stages.mirror, numbered(2, "c")) == (2, 3)


@pytest.mark.parametrize("side", ["source", "mirror"])
def test_restored_side_is_another_log(side: str) -> None:
    stages = stages_of("a", "b")
    jump(stages.source.instance if side == "source" else stages.mirror, 20)
    stages.source.append("c")
    stages.again()
    state = stages.source.state()
    assert state is not None
    assert state.trouble is not None
    assert "DIVERGED" in state.trouble.error
    resync_topic(stages.mirror, "orders")
    stages.again()
    assert_equal(stages)


def test_source_that_was_restored_without_its_jump_is_noticed() -> None:
    stages = stages_of("a", "b")
    key = key_of(stages.mirror, "orders")
    ahead = replace(stages.pushes[0], base_offset=Offset(2))
    assert append_push(stages.mirror, ahead).next_offset > head_of(stages.source.instance, "orders").next_offset
    assert key == key_of(stages.mirror, "orders")
    stages.source.append("c")
    stages.run()
    state = stages.source.state()
    assert state is not None
    assert state.offset <= head_of(stages.source.instance, "orders").next_offset


def test_mirror_of_a_mirror_gives_an_empty_log_no_name_that_lasts() -> None:
    stages = stages_of("a", partitions=2)
    push_log._named(stages.mirror, key_of(stages.mirror, "orders", 1), head_of(stages.mirror, "orders", 1))
    stages.source.append("b", partition=1)
    stages.run()
    assert_equal(stages, 1)


@pytest.mark.parametrize("spoil", ["cut", "span", "crc"])
def test_push_that_is_not_what_it_tells_is_refused(spoil: str) -> None:
    stages = stages_of("a")
    [push] = stages.pushes
    data = bytearray(push.data)
    [part] = push.parts
    if spoil == "cut":
        data.pop()
    elif spoil == "crc":
        data[-1] ^= 1
    else:
        part = replace(part, offset_span=2)
    refused(ErrorCode.CORRUPT_BATCH, lambda: append_push(stages.mirror, replace(push, data=bytes(data), parts=[part])))


def test_prefix_begins_the_names() -> None:
    stages = stages_of("a", target=StageTarget(url="https://b.example", prefix="eu."))
    assert stages.logs(topic="eu.orders")[0] == stages.logs(topic="eu.orders")[1]
    assert stages.mirror.stores.topics.get(TopicName("orders")) is None


def test_many_refs_and_producers_take_several_pushes() -> None:
    stages = Stages()
    for producer in range(40):
        _produce(stages.source.instance, numbered(0, str(producer), producer_id=100 + producer))
    stages.source.start()
    stages.run()
    assert_equal(stages)
    assert max(len(push.producers) for push in stages.pushes) <= 16
    assert len(head_of(stages.mirror, "orders").tail) < 32
    assert len(head_of(stages.mirror, "orders").producers) < 36, "producers leave the mirror's head, too"


def test_push_whose_topic_loses_its_head_for_good_is_tried_again_later() -> None:
    stages = stages_of("a")
    stages.mirror.stores.log.delete_head(key_of(stages.mirror, "orders"))
    refused(ErrorCode.THROTTLED, lambda: append_push(stages.mirror, stages.pushes[0]))


def _produce(instance: Instance, data: bytes) -> tuple[int, int]:
    [done] = produce(instance, [ProduceEntry(topic="orders", partition=0, data=data)], Acks.QUORUM).all_ok()
    return done.base_offset, done.next_offset
