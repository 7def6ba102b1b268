"""A consumer of two stages goes on at the mirror: after a move where it was, and after a loss where the mirror is."""

import asyncio
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest

from penstock.cli import mirrors
from penstock.consumer.async_consumer import AsyncConsumer
from penstock.consumer.consumer import Consumer
from penstock.errors import ConflictError, ConnectionFailedError, NotConfiguredError
from penstock.group import async_stages
from penstock.group import stages as consumer_stages
from penstock.http.client import Client
from penstock.http.http_message import Response
from penstock.http.named_transport import StageFate, stage_to_read
from penstock.http.transport import Transport
from penstock.model import ConsumerRecord, TopicPartition
from penstock.testing import MemoryPenstock, ThreadedTransport
from penstock_core.errors import ErrorCode, PenstockError
from tests.sdk.cli.command import run, run_json
from tests.support.deadlines import until

A, B = "https://a.example", "https://b.example"
PLACE = TopicPartition("orders", 0)
PROMOTE = ("mirrors", "promote", "orders", "--yes")


class Line:
    """The transport to a stage, which may be cut."""

    def __init__(self, transport: Transport) -> None:
        self.is_cut = False
        self._transport = transport

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def call(self, *arguments: Any) -> Response:
        if self.is_cut:
            raise ConnectionFailedError("cut", maybe_applied=False)
        return self._transport.call(*arguments)

    def close(self) -> None:
        pass


class Pair:
    """A topic of one partition at `a`, and its mirror at `b`."""

    def __init__(self, a: MemoryPenstock, b: MemoryPenstock) -> None:
        self.a, self.b = a, b
        self.lines = {A: Line(a.transport), B: Line(b.transport)}

    def send(self, *values: bytes, to: MemoryPenstock | None = None) -> None:
        with (to or self.a).producer() as producer:
            for value in values:
                producer.send("orders", value=value, partition=0)

    def push(self, *values: bytes) -> None:
        """Send and mirror them."""
        self.send(*values)
        self.a.deliver_pushes()

    def consumer(self, **options: Any) -> Consumer:
        return Consumer("orders", urls=[A, B], auto_offset_reset="earliest", **options)


@pytest.fixture
def pair(monkeypatch: pytest.MonkeyPatch) -> Iterator[Pair]:
    with MemoryPenstock() as a, MemoryPenstock() as b:
        a.create_topic("orders", partitions=1)
        a.add_stage(B, b)
        pair = Pair(a, b)
        monkeypatch.setattr(consumer_stages, "open_transport", lambda url, *others: pair.lines.get(url, others[-1]))
        monkeypatch.setattr(mirrors, "open_transport", lambda url, _: {A: a.transport, B: b.transport}[url])
        run_json(a.transport, "mirrors", "create", "dr", "orders", "--to", B, "--source", A)
        a.deliver_pushes()
        yield pair


def values_of(consumer: Consumer, count: int) -> list[bytes | None]:
    """The values of the next records, so many."""
    found: list[ConsumerRecord] = []

    def poll() -> None:
        found.extend(consumer.poll(timeout_ms=100))

    until(lambda: len(found) >= count, step=poll, shown=lambda: found)
    return [each.value for each in found]


@pytest.mark.parametrize("group_id", [None, "billing"])
def test_reader_goes_on_at_the_mirror_after_a_move(pair: Pair, group_id: str | None) -> None:
    with pair.consumer(group_id=group_id) as consumer:
        pair.push(b"0", b"1", b"2")
        assert values_of(consumer, 3) == [b"0", b"1", b"2"]
        pair.push(b"3")
        assert run(pair.b.transport, *PROMOTE).exit_code == 0
        pair.send(b"4", b"5", to=pair.b)
        assert values_of(consumer, 3) == [b"3", b"4", b"5"], "none is read twice, and none is left out"
        assert consumer.position(PLACE) == 6
    if group_id is not None:
        assert pair.b.admin().group_offsets(group_id)[0].offset == 6


@pytest.mark.parametrize("group_id", [None, "billing"])
def test_reader_skips_no_record_of_a_mirror_that_took_over_in_the_middle_of_a_move(
    pair: Pair, group_id: str | None
) -> None:
    """The source answers again, and the reader has read there what the mirror never got."""
    with pair.consumer(group_id=group_id) as consumer:
        pair.push(b"0")
        pair.send(b"lost", b"lost, too")
        assert values_of(consumer, 3) == [b"0", b"lost", b"lost, too"]
        assert run(pair.b.transport, *PROMOTE, "--wait", "0").exit_code == 1
        assert run(pair.b.transport, *PROMOTE, "--source-lost").exit_code == 0
        pair.send(b"1", b"2", to=pair.b)
        assert values_of(consumer, 2) == [b"1", b"2"]


def test_iteration_goes_on_at_the_mirror(pair: Pair) -> None:
    pair.push(b"0", b"1")
    with pair.consumer(group_id="billing", consumer_timeout_ms=20_000) as consumer:
        records = iter(consumer)
        assert next(records).value == b"0"
        assert run(pair.b.transport, *PROMOTE).exit_code == 0
        pair.send(b"2", to=pair.b)
        assert [next(records).value, next(records).value] == [b"1", b"2"]
        consumer.stop()
        assert not [*records]


def test_end_of_a_moved_topic_is_told_to_a_reader_of_one_stage(pair: Pair) -> None:
    pair.push(b"0")
    with pair.a.consumer("orders", auto_offset_reset="earliest") as consumer:
        assert values_of(consumer, 1) == [b"0"]
        pair.a.admin().move_topic("orders", "dr")
        with pytest.raises(ConflictError, match=B) as caught:
            values_of(consumer, 1)
    assert caught.value.code is ErrorCode.MOVED
    assert (caught.value.facts["url"], caught.value.facts["topic"]) == (B, "orders")


def test_reader_waits_at_the_source_until_the_mirror_has_taken_over(pair: Pair) -> None:
    pair.push(b"0")
    with pair.consumer(group_id="billing") as consumer:
        assert values_of(consumer, 1) == [b"0"]
        pair.a.admin().move_topic("orders", "dr")
        assert [consumer.poll(timeout_ms=200) for _ in range(5)] == [[]] * 5
        assert pair.b.admin().list_groups() == [], "it joins no mirror"
        assert run(pair.b.transport, *PROMOTE).exit_code == 0
        pair.send(b"1", to=pair.b)
        assert values_of(consumer, 1) == [b"1"]


def test_group_goes_on_where_the_mirror_was_told_after_a_loss(pair: Pair) -> None:
    pair.push(b"0", b"1", b"2")
    pair.a.admin().commit_group_offsets("billing", {PLACE: 1})
    pair.a.advance(60_000)
    pair.push(b"3")
    with pair.consumer(group_id="billing") as consumer:
        assert values_of(consumer, 3) == [b"1", b"2", b"3"]
        pair.send(b"lost")
        assert values_of(consumer, 1) == [b"lost"]
        pair.lines[A].is_cut = True
        assert not consumer.poll(timeout_ms=500)
        assert run(pair.b.transport, *PROMOTE, "--source-lost").exit_code == 0
        pair.send(b"4", to=pair.b)
        assert values_of(consumer, 4) == [b"1", b"2", b"3", b"4"]


def test_reader_without_a_group_skips_no_record_after_a_loss(pair: Pair) -> None:
    pair.push(b"0", b"1")
    with pair.consumer() as consumer:
        pair.send(b"lost", b"lost too")
        assert values_of(consumer, 4)[2:] == [b"lost", b"lost too"]
        pair.lines[A].is_cut = True
        assert run(pair.b.transport, *PROMOTE, "--source-lost").exit_code == 0
        pair.send(b"2", b"3", b"4", to=pair.b)
        assert values_of(consumer, 3) == [b"2", b"3", b"4"], "they have the offsets of what was lost, and more"


def test_reader_keeps_its_place_if_the_first_call_at_the_mirror_fails(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    line, refused = pair.lines[B], list[str]()
    answered = line.call

    def refuse_once(method: str, path: str, *others: Any) -> Response:
        if path == "/v1/metadata" and not refused:
            refused.append(path)
            return Response(403, {}, b'{"error": {"code": "ACCESS_DENIED", "message": "not yet"}}')
        return answered(method, path, *others)

    monkeypatch.setattr(line, "call", refuse_once)
    pair.push(b"0", b"1")
    with pair.consumer() as consumer:
        assert values_of(consumer, 2) == [b"0", b"1"]
        assert run(pair.b.transport, *PROMOTE).exit_code == 0
        pair.send(b"2", to=pair.b)
        with suppress(PenstockError):
            values_of(consumer, 1)
        assert consumer.position(PLACE) in (2, 3)
    assert refused


@pytest.mark.parametrize("group_id", [None, "billing"])
def test_reader_does_not_go_back_to_a_moved_stage(
    pair: Pair, group_id: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would begin anew there, behind the end of that log."""
    line, asked = pair.lines[A], list[str]()
    answered = line.call

    def note(method: str, path: str, *others: Any) -> Response:
        asked.append(path)
        return answered(method, path, *others)

    monkeypatch.setattr(line, "call", note)
    pair.push(b"0", b"1")
    with pair.consumer(group_id=group_id) as consumer:
        assert values_of(consumer, 2) == [b"0", b"1"]
        assert run(pair.b.transport, *PROMOTE).exit_code == 0
        pair.send(b"2", b"3", to=pair.b)
        assert values_of(consumer, 2) == [b"2", b"3"]
        pair.lines[B].is_cut = True
        asked.clear()
        until(lambda: asked, step=lambda: consumer.poll(timeout_ms=100))
        assert {*asked} == {"/v1/topics/orders"}, "it looks, and reads nothing there"
        pair.lines[B].is_cut = False
        pair.send(b"4", to=pair.b)
        assert values_of(consumer, 1) == [b"4"]


def test_reader_of_the_mirror_does_not_go_back_to_a_source_that_was_lost(pair: Pair) -> None:
    pair.push(b"0", b"1")
    with pair.consumer() as consumer:
        assert values_of(consumer, 2) == [b"0", b"1"]
        pair.lines[A].is_cut = True
        assert run(pair.b.transport, *PROMOTE, "--source-lost").exit_code == 0
        pair.send(b"2", to=pair.b)
        assert values_of(consumer, 1) == [b"2"]
        pair.lines[A].is_cut, pair.lines[B].is_cut = False, True
        stages = consumer._stages
        assert stages is not None
        until(lambda: stages.is_lost, step=lambda: consumer.poll(timeout_ms=100))
        assert not stages.moves(["orders"]), "it takes appends, and is another log"
        pair.lines[B].is_cut = False
        pair.send(b"3", to=pair.b)
        assert values_of(consumer, 1) == [b"3"]


def test_reader_goes_on_if_the_mirror_lacks_a_partition(pair: Pair) -> None:
    pair.push(b"0")
    pair.a.admin().add_partitions("orders", 2)
    with pair.a.producer() as producer:
        producer.send("orders", value=b"lost", partition=1)
    with pair.consumer() as consumer:
        assert sorted(values_of(consumer, 2), key=str) == [b"0", b"lost"]
        pair.lines[A].is_cut = True
        assert run(pair.b.transport, *PROMOTE, "--source-lost").exit_code == 0
        pair.send(b"1", to=pair.b)
        assert values_of(consumer, 1) == [b"1"]


def test_an_offset_that_would_go_back_keeps_no_other_one_from_the_group(pair: Pair) -> None:
    second = TopicPartition("orders", 1)
    pair.push(b"0", b"1")
    pair.a.admin().add_partitions("orders", 2)
    with pair.a.producer() as producer:
        producer.send("orders", value=b"x", partition=1)
        producer.send("orders", value=b"y", partition=1)
    pair.a.deliver_pushes()
    pair.a.admin().commit_group_offsets("billing", {PLACE: 1, second: 1})
    assert run(pair.b.transport, *PROMOTE).exit_code == 0
    pair.b.admin().commit_group_offsets("billing", {PLACE: 2})
    pair.a.admin().commit_group_offsets("billing", {second: 2})
    stages = consumer_stages.Stages([A, B], [pair.lines[A], pair.lines[B]])
    assert stages.moves(["orders"])
    stages.copy_offsets(Client(pair.a.transport), "billing", ["orders"])
    assert {each.partition: each.offset for each in pair.b.admin().group_offsets("billing")} == {0: 2, 1: 2}


def test_consumer_that_begins_after_the_promotion_reads_the_mirror(pair: Pair) -> None:
    pair.push(b"0")
    assert run(pair.b.transport, *PROMOTE).exit_code == 0
    pair.send(b"1", to=pair.b)
    with pair.consumer(group_id="new") as consumer:
        assert values_of(consumer, 2) == [b"0", b"1"]


def test_assigned_and_paused_partitions_stay_so(pair: Pair) -> None:
    second = TopicPartition("orders", 1)
    pair.a.admin().add_partitions("orders", 2)
    pair.push(b"0")
    with Consumer(urls=[A, B], group_id="billing", auto_offset_reset="earliest") as consumer:
        consumer.assign([PLACE, second])
        assert values_of(consumer, 1) == [b"0"]
        consumer.pause(second)
        assert run(pair.b.transport, *PROMOTE).exit_code == 0
        pair.send(b"1", to=pair.b)
        assert values_of(consumer, 1) == [b"1"]
        assert (consumer.assignment(), consumer.paused()) == ([PLACE, second], [second])


def test_asynchronous_consumer_goes_on_at_the_mirror(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    stages = {A: pair.a, B: pair.b}
    monkeypatch.setattr(async_stages, "open_async_transport", lambda url, *_: ThreadedTransport(stages[url].transport))
    pair.push(b"0", b"1")
    assert run(pair.b.transport, *PROMOTE).exit_code == 0
    pair.send(b"2", to=pair.b)

    async def read() -> list[bytes | None]:
        async with AsyncConsumer("orders", urls=[A, B], auto_offset_reset="earliest") as consumer:
            return [(await anext(consumer)).value for _ in range(3)]

    assert asyncio.run(read()) == [b"0", b"1", b"2"]


@pytest.mark.parametrize("urls", [[], A])
def test_urls_are_a_list(urls: Any) -> None:
    with pytest.raises(NotConfiguredError, match="urls"):
        Consumer("orders", urls=urls)


@pytest.mark.parametrize(
    ("fates", "at", "wanted"),
    [
        ("open open", 1, 1),
        ("closed open", 0, 1),
        ("moved closed", 0, 0),
        ("moved open", 0, 1),
        ("away closed", 0, 0),
        ("closed away", 0, 1),
        ("closed closed", 1, 1),
        ("away moved", 0, 1),
    ],
)
def test_stage_that_is_read(fates: str, at: int, wanted: int) -> None:
    assert stage_to_read({number: StageFate(each) for number, each in enumerate(fates.split())}, at) == wanted
