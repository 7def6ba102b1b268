"""A share consumer of two stages goes on at the mirror once the moved topic's records are finished, or it is lost."""

import asyncio
import threading
from types import SimpleNamespace
from typing import Any

import pytest

from penstock.cli import mirrors
from penstock.errors import InvalidError, LockLostError, NotConfiguredError
from penstock.group import async_stages
from penstock.model.share import ShareRecord
from penstock.share.async_share_consumer import AsyncShareConsumer
from penstock.share.share_consumer import ShareConsumer
from penstock.testing import ThreadedTransport
from penstock_core.errors import ErrorCode, PenstockError
from tests.sdk.cli.command import run
from tests.sdk.group.test_stages import PROMOTE, A, B, Pair
from tests.sdk.group.test_stages import pair as pair  # the fixture
from tests.support.deadlines import until

OPTIONS: dict[str, Any] = {"group_id": "workers", "max_records": 10}


@pytest.fixture
def shared(pair: Pair) -> Pair:
    for stage in (pair.a, pair.b):
        stage.admin().create_share_group("workers", ["orders"], {"start": "earliest"})
    return pair


def consumer_of(**options: Any) -> ShareConsumer:
    return ShareConsumer("orders", urls=[A, B], **OPTIONS, **options)


def values_of(consumer: ShareConsumer, count: int) -> list[bytes | None]:
    """The values of the next records, so many. The next poll accepts them."""
    found: list[ShareRecord] = []
    until(lambda: len(found) >= count, step=lambda: found.extend(consumer.poll(timeout_ms=100)), shown=lambda: found)
    return [each.value for each in found]


def test_share_consumer_finishes_the_source_and_goes_on_at_the_mirror(shared: Pair) -> None:
    with consumer_of() as consumer:
        shared.push(b"0", b"1")
        assert values_of(consumer, 2) == [b"0", b"1"]
        shared.push(b"2")
        assert run(shared.b.transport, *PROMOTE).exit_code == 0
        shared.send(b"3", to=shared.b)
        assert values_of(consumer, 1) == [b"2"]
        assert values_of(consumer, 2)[-1] == b"3"


def test_records_that_were_finished_before_the_promotion_do_not_come_again(shared: Pair) -> None:
    with consumer_of() as consumer:
        shared.push(b"0", b"1")
        assert values_of(consumer, 2) == [b"0", b"1"]
        consumer.poll(timeout_ms=0)
        consumer.flush()
        shared.push(b"2")
        assert run(shared.b.transport, *PROMOTE).exit_code == 0
        shared.send(b"3", to=shared.b)
    with ShareConsumer("orders", transport=shared.b.transport, **OPTIONS) as other:
        assert values_of(other, 2) == [b"2", b"3"]


def test_finished_records_that_the_mirror_lacked_at_the_move_do_not_come_again(
    shared: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mirrors, "time", SimpleNamespace(sleep=lambda _: shared.a.deliver_pushes()))
    with ShareConsumer("orders", transport=shared.a.transport, **OPTIONS) as consumer:
        shared.send(b"0", b"1")
        assert values_of(consumer, 2) == [b"0", b"1"]
        consumer.poll(timeout_ms=0)
        consumer.flush()
        assert run(shared.b.transport, *PROMOTE).exit_code == 0
    shared.send(b"2", to=shared.b)
    with ShareConsumer("orders", transport=shared.b.transport, **OPTIONS) as other:
        assert values_of(other, 1) == [b"2"]


def test_promotion_takes_no_share_group_of_the_mirror_back(shared: Pair) -> None:
    shared.push(b"0", b"1")
    with ShareConsumer("orders", transport=shared.b.transport, **OPTIONS) as reader:
        assert values_of(reader, 2) == [b"0", b"1"]
    assert run(shared.b.transport, *PROMOTE).exit_code == 0
    shared.send(b"2", to=shared.b)
    with ShareConsumer("orders", transport=shared.b.transport, **OPTIONS) as reader:
        assert values_of(reader, 1) == [b"2"]


def test_share_consumer_of_one_stage_is_told_that_its_topic_has_moved(shared: Pair) -> None:
    shared.push(b"0")
    with ShareConsumer("orders", transport=shared.a.transport, **OPTIONS) as consumer:
        assert values_of(consumer, 1) == [b"0"]
        assert run(shared.b.transport, *PROMOTE).exit_code == 0
        with pytest.raises(PenstockError) as failure:
            until(lambda: False, step=lambda: consumer.poll(timeout_ms=100))
        assert (failure.value.code, failure.value.facts["url"]) == (ErrorCode.MOVED, B)


def test_group_with_a_topic_that_stays_works_on(shared: Pair) -> None:
    shared.a.create_topic("stays", partitions=1)
    shared.a.admin().create_share_group("both", ["orders", "stays"], {"start": "earliest"})
    assert run(shared.b.transport, *PROMOTE).exit_code == 0
    with ShareConsumer(transport=shared.a.transport, group_id="both") as consumer, shared.a.producer() as producer:
        assert consumer.poll(timeout_ms=300) == []
        producer.send("stays", value=b"here").result()
        assert values_of(consumer, 1) == [b"here"]


def test_share_consumer_leaves_a_lost_stage_once_the_mirror_has_taken_over(shared: Pair) -> None:
    with consumer_of(retry_backoff_ms=1, retry_backoff_max_ms=1) as consumer:
        shared.push(b"0")
        assert values_of(consumer, 1) == [b"0"]
        shared.lines[A].is_cut = True
        assert run(shared.b.transport, *PROMOTE, "--source-lost").exit_code == 0
        shared.send(b"1", to=shared.b)
        assert values_of(consumer, 2) == [b"0", b"1"], "it never heard that the first one is done"


def test_share_group_goes_on_where_a_lost_source_has_told_it(shared: Pair) -> None:
    shared.b.admin().create_share_group("other", ["orders"], {"start": "earliest"})
    with ShareConsumer("orders", transport=shared.a.transport, **OPTIONS) as consumer:
        shared.push(b"0", b"1")
        assert values_of(consumer, 2) == [b"0", b"1"]
        consumer.poll(timeout_ms=0)
        consumer.flush()
    shared.a.advance(60_000)
    shared.push(b"2")
    assert run(shared.b.transport, *PROMOTE, "--source-lost").exit_code == 0
    with ShareConsumer("orders", transport=shared.b.transport, **OPTIONS) as reader:
        assert values_of(reader, 1) == [b"2"]
    with ShareConsumer("orders", transport=shared.b.transport, group_id="other") as reader:
        assert values_of(reader, 3) == [b"0", b"1", b"2"]


def test_record_in_hand_loses_its_lock_with_its_stage(shared: Pair) -> None:
    lost: list[ShareRecord] = []
    options = {"acknowledge": "explicit", "retry_backoff_ms": 1, "retry_backoff_max_ms": 1}
    with consumer_of(**options, on_lock_lost=lost.extend) as consumer:
        shared.push(b"0")
        found: list[ShareRecord] = []
        until(lambda: bool(found), step=lambda: found.extend(consumer.poll(timeout_ms=100)))
        shared.lines[A].is_cut = True
        assert run(shared.b.transport, *PROMOTE, "--source-lost").exit_code == 0
        until(lambda: len(found) == 2, step=lambda: found.extend(consumer.poll(timeout_ms=100)))
        with pytest.raises(LockLostError):
            consumer.accept(found[0])
        consumer.accept(found[1])
        assert (lost, consumer.locks_lost) == (found[:1], 1)


def test_move_that_is_given_up_leaves_the_consumer_where_it_is(shared: Pair) -> None:
    shared.push(b"0")
    with consumer_of() as consumer:
        assert values_of(consumer, 1) == [b"0"]
        shared.a.admin().move_topic("orders", "dr")
        consumer.poll(timeout_ms=0)
        consumer.flush()
        for _ in range(3):
            assert consumer.poll(timeout_ms=10) == []
        assert run(shared.a.transport, "mirrors", "reopen", "orders", "--yes").exit_code == 0
        shared.send(b"1")
        assert values_of(consumer, 1) == [b"1"]


def test_iteration_and_handlers_go_on_at_the_mirror(shared: Pair) -> None:
    shared.push(b"0")
    with consumer_of(consumer_timeout_ms=60_000) as consumer:
        assert next(iter(consumer)).value == b"0"
    handled: list[bytes | None] = []
    running = consumer_of()
    thread = threading.Thread(target=running.run, args=(lambda record: handled.append(record.value),))
    thread.start()
    shared.push(b"1")
    until(lambda: b"1" in handled, shown=lambda: handled)
    assert run(shared.b.transport, *PROMOTE).exit_code == 0
    shared.send(b"2", to=shared.b)
    until(lambda: b"2" in handled, shown=lambda: handled)
    running.stop()
    thread.join()


def test_asynchronous_share_consumer_goes_on_at_the_mirror(shared: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    stages = {A: shared.a, B: shared.b}
    monkeypatch.setattr(async_stages, "open_async_transport", lambda url, *_: ThreadedTransport(stages[url].transport))
    shared.push(b"0")
    assert run(shared.b.transport, *PROMOTE).exit_code == 0
    shared.send(b"1", to=shared.b)

    async def read() -> list[bytes | None]:
        async with AsyncShareConsumer("orders", urls=[A, B], **OPTIONS) as consumer:
            return [(await anext(consumer)).value for _ in range(2)]

    assert asyncio.run(read()) == [b"0", b"1"]


def test_urls_need_topics_and_are_a_list() -> None:
    with pytest.raises(InvalidError, match="topics"):
        ShareConsumer(urls=[A, B], group_id="workers")
    with pytest.raises(NotConfiguredError, match="urls"):
        ShareConsumer("orders", urls=[], group_id="workers")
