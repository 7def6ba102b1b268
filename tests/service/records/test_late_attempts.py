"""A write whose first attempt comes late: refused since, and possible again, once its partition has opened again.

A process that sleeps between its put and its update, longer than the sweep waits, appends nothing by that update.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest

from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.ids import Offset, TopicId
from penstock_core.limits import APPEND_MS_MAX, STORAGE_REPEAT_MS_MAX, SWEEP_GRACE_MS
from penstock_core.log.topic import Topic
from penstock_core.zones.zone_state import FUNCTION_MS_MAX, Acks
from penstock_service.adapters.dynamodb.client import DynamoDbClient
from penstock_service.adapters.dynamodb.driver_errors import NoAnswerError
from penstock_service.adapters.dynamodb.log import DynamoDbLogIndex
from penstock_service.adapters.dynamodb.topics import DynamoDbTopicStore
from penstock_service.adapters.dynamodb.transactions import DynamoDbTransactionStore
from penstock_service.adapters.tables.tables import InterposedTables
from penstock_service.instance.instance import Instance
from penstock_service.records.produce import produce
from penstock_service.retention.sweep import sweep
from penstock_service.topics.alter_topic import alter_topic
from tests.service.records.test_idempotence import crowd, numbered, tell
from tests.service.transactions.test_transactions import begin, commit
from tests.support.service import (
    FrozenClock,
    Intercepted,
    SteppedClock,
    another_instance,
    appended,
    batch,
    entry,
    key_of,
    new_topic,
    read_all,
)
from tests.support.tables import tables_of


class LateAttempt:
    """The first call of one operation gets no answer, and is applied when `arrive` is called.

    An operator closes a partition of the topic before the next `closings` calls. If there are two, another one opens it
    before each look at the topic.
    """

    def __init__(self, instance: Instance, topic: str, operation: str, closings: int) -> None:
        self._instance, self._topic, self._operation = instance, topic, operation
        self._closings, self._opens = closings, closings > 1
        self.fails = ""  # an operation that gets no answer once the write was refused
        self.arrive: Callable[[], object] | None = None
        tables = InterposedTables(tables_of(instance), self._interpose)
        self.client = DynamoDbClient(tables, instance.clock, instance.entropy)
        self.late = another_instance(
            instance,
            log=DynamoDbLogIndex(self.client, "log"),
            transactions=DynamoDbTransactionStore(self.client, "log", "groups"),
            topics=Intercepted(instance.stores.topics, get=self._look),
        )

    def _interpose(self, operation: str, arguments: Mapping[str, Any], apply: Callable[[], Any]) -> Any:
        if operation == self._operation and self.arrive is None:
            self.arrive = apply
            raise NoAnswerError("too late")
        if operation == self.fails and self.arrive is not None and not self._closings:
            raise NoAnswerError("no answer")
        if operation == self._operation and self._closings:
            self._closings -= 1
            alter_topic(self._instance, self._topic, 1, {})
        return apply()

    def _look(self, get: Callable[[str], Topic | None], name: str) -> Topic | None:
        if self._opens:
            alter_topic(self._instance, self._topic, 2, {})
        return get(name)


@pytest.fixture
def topic(instance: Instance) -> str:
    return new_topic(instance, partitions=2)


def check_comes_late(instance: Instance, topic: str, late: LateAttempt, write: Callable[[], object]) -> None:
    """The write is refused, though not surely, and is there once its first attempt has come."""
    with pytest.raises(PenstockError) as caught:
        write()
    assert (caught.value.code, caught.value.maybe_applied) == (ErrorCode.PARTITION_CLOSED, True)
    assert read_all(instance, topic, 1) == []
    alter_topic(instance, topic, 2, {})
    assert late.arrive is not None
    late.arrive()
    assert read_all(instance, topic, 1) == [(0, "a")]


@pytest.mark.parametrize("closings", [1, 2])
def test_append_whose_first_attempt_may_come_is_not_surely_refused(
    instance: Instance, topic: str, closings: int
) -> None:
    late = LateAttempt(instance, topic, "update_item", closings)
    check_comes_late(instance, topic, late, lambda: tell(late.late, topic, numbered(0, "a"), partition=1))


@pytest.mark.parametrize("closings", [1, 3])
def test_commit_whose_first_attempt_may_come_is_not_surely_refused(
    instance: Instance, topic: str, closings: int
) -> None:
    producer = begin(instance)
    late = LateAttempt(instance, topic, "transact_write_items", closings)
    check_comes_late(instance, topic, late, lambda: commit(late.late, producer, 0, entry(topic, 1, batch("a"))))


@pytest.mark.parametrize("operation", ["get_item", "batch_get_item"])
def test_refusal_of_a_late_commit_that_cannot_be_explained_is_not_sure(
    instance: Instance, topic: str, operation: str
) -> None:
    producer = begin(instance)
    late = LateAttempt(instance, topic, "transact_write_items", 1)
    late.fails = operation
    with pytest.raises(PenstockError) as caught:
        commit(late.late, producer, 0, entry(topic, 1, batch("a")))
    assert caught.value.maybe_applied
    alter_topic(instance, topic, 2, {})
    assert late.arrive is not None
    late.arrive()
    assert read_all(instance, topic, 1) == [(0, "a")]


def test_gap_behind_a_lost_attempt_is_not_sure(instance: Instance, topic: str) -> None:
    """The append before it comes later, and then the lost one."""
    late = LateAttempt(instance, topic, "update_item", 0)
    with pytest.raises(PenstockError) as caught:
        tell(late.late, topic, numbered(1, "b"), partition=1)
    assert (caught.value.code, caught.value.maybe_applied) == (ErrorCode.OUT_OF_ORDER_SEQUENCE, True)
    tell(instance, topic, numbered(0, "a"), partition=1)
    assert late.arrive is not None
    late.arrive()
    assert read_all(instance, topic, 1) == [(0, "a"), (1, "b")]


def test_name_that_others_took_is_not_surely_refused(instance: Instance, topic: str) -> None:
    late = LateAttempt(instance, topic, "transact_write_items", 0)
    store = DynamoDbTopicStore(late.client, "topics")
    taken = instance.topic_cache.read_through(topic)
    with pytest.raises(PenstockError) as caught:
        store.create(replace(taken, topic_id=TopicId("another")))
    assert (caught.value.code, caught.value.maybe_applied) == (ErrorCode.TOPIC_EXISTS, True)


def test_truncation_whose_first_attempt_may_come_is_not_surely_refused(instance: Instance, topic: str) -> None:
    late = LateAttempt(instance, topic, "update_item", 0)
    with pytest.raises(PenstockError) as caught:
        late.late.stores.log.raise_log_start(key_of(instance, topic), Offset(1))
    assert (caught.value.code, caught.value.maybe_applied) == (ErrorCode.OFFSET_OUT_OF_RANGE, True)


DAY_AND_AN_HOUR_MS = SWEEP_GRACE_MS + 3_600_000


def _sleeping(instance: Instance, clock: FrozenClock, sleep: Callable[[], object]) -> Instance:
    """An instance whose process sleeps once, at the end of its first put."""
    is_awake = False

    def put(original: Any, *arguments: Any) -> Any:
        nonlocal is_awake
        original(*arguments)
        if not is_awake:
            is_awake = True
            sleep()

    first, *others = instance.stores.zones
    return another_instance(instance, clock=clock, zones=[Intercepted(first, put=put), *others])


@pytest.mark.parametrize("is_idempotent", [False, True])
@pytest.mark.parametrize("stopped", ["monotonic", "wall", "none"])
def test_append_is_refused_when_its_process_slept_since_the_put(
    instance: Instance, clock: SteppedClock, is_idempotent: bool, stopped: str
) -> None:
    topic = new_topic(instance)
    frozen = FrozenClock(clock)

    def sleep() -> None:
        clock.time_ms += DAY_AND_AN_HOUR_MS
        if stopped == "monotonic":
            frozen.frozen_ms += DAY_AND_AN_HOUR_MS
        if stopped == "wall":
            frozen.set_back_ms += DAY_AND_AN_HOUR_MS
        assert sweep(another_instance(instance), budget_ms=60_000).is_finished

    slow = _sleeping(instance, frozen, sleep)
    sent = entry(topic, 0, numbered(0, "a") if is_idempotent else batch("a"))
    [refused] = produce(slow, [sent], Acks.QUORUM)
    assert isinstance(refused, PenstockError)
    assert (refused.code, refused.maybe_applied) == (ErrorCode.STORAGE_UNAVAILABLE, False)
    [again] = produce(slow, [sent], Acks.QUORUM)
    assert again == appended(0, 1)
    assert read_all(instance, topic) == [(0, "a")], "what is acknowledged can be read"


def test_append_looks_at_the_clocks_before_each_update(instance: Instance, clock: SteppedClock) -> None:
    topic = new_topic(instance)
    crowd(instance, topic)

    def sleeps(original: Any, *arguments: Any) -> Any:
        clock.time_ms += DAY_AND_AN_HOUR_MS
        return original(*arguments)

    slow = another_instance(instance, log=Intercepted(instance.stores.log, evicted_producer=sleeps))
    before = read_all(instance, topic)
    [refused] = produce(slow, [entry(topic, 0, numbered(0, "late", producer_id=99))], Acks.QUORUM)
    assert isinstance(refused, PenstockError)
    assert (refused.code, refused.maybe_applied) == (ErrorCode.STORAGE_UNAVAILABLE, False)
    assert read_all(instance, topic) == before


def test_transaction_is_refused_when_its_process_slept_since_the_put(instance: Instance, clock: SteppedClock) -> None:
    topic = new_topic(instance)
    frozen = FrozenClock(clock)
    slow = _sleeping(instance, frozen, lambda: frozen.freeze(DAY_AND_AN_HOUR_MS))
    producer = begin(instance)
    with pytest.raises(PenstockError) as caught:
        commit(slow, producer, 0, entry(topic, 0, batch("a")))
    assert (caught.value.code, caught.value.maybe_applied) == (ErrorCode.STORAGE_UNAVAILABLE, False)
    commit(slow, producer, 0, entry(topic, 0, batch("a")))
    assert read_all(instance, topic) == [(0, "a")]


def test_writer_names_no_segment_later_than_the_barrier_of_a_zone_assumes() -> None:
    assert APPEND_MS_MAX + STORAGE_REPEAT_MS_MAX <= FUNCTION_MS_MAX
