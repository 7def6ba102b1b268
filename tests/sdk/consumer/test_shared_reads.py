"""Readers of the same records in one process: fetch buffers that share, on one stepped clock."""

import gc
import random
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pytest

from penstock import Consumer
from penstock.configuration import Configuration, StaticCredentials
from penstock.consumer.fetch_buffer import FetchAnswer, FetchBuffer, FetchRequest
from penstock.consumer.shared_reads import Place, SharedReader, SharedReads, Wanted, shared_reads_of
from penstock.errors import InvalidError
from penstock.http.abilities import reader_of
from penstock.http.transport import HttpTransport, token_transport
from penstock.model import TopicPartition
from penstock.retry import NEVER_MS
from penstock.testing import MemoryPenstock
from penstock.wake_ups.events import WakeUp
from penstock_core.errors import ErrorCode
from penstock_core.limits import SDK_SAFETY_NET_MS, SDK_SHARED_BYTES_MAX, SDK_SHARED_MS, SDK_SHARED_PATIENCE_MS
from tests.sdk.client_kinds import ClientKind
from tests.sdk.consumer.fetch_buffer_fixtures import T0, T1, UNAVAILABLE, PartitionsService, new_buffer, offsets_of
from tests.support.deadlines import until

ID = "id-of-t"
REFUSED = InvalidError(ErrorCode.NOT_AUTHORIZED, "no right")


@dataclass
class Process:
    """Readers that share, the service, and one clock."""

    service: PartitionsService = field(default_factory=PartitionsService)
    shared: SharedReads = field(default_factory=SharedReads)
    now_ms: int = 1_000_000
    woken: list[FetchBuffer] = field(default_factory=list)

    def reader(self, *partitions: TopicPartition, shares: bool = True, **changes: Any) -> FetchBuffer:
        buffer = new_buffer(*partitions, **changes)
        for each in partitions:
            buffer.start(each, 0, ID)
        if shares:
            buffer.share(SharedReader(self.shared, lambda: self.woken.append(buffer)))
        return buffer

    def send(self, buffer: FetchBuffer) -> FetchRequest | None:
        return buffer.next_request(self.now_ms)

    def ask(self, buffer: FetchBuffer) -> FetchRequest:
        """A request that needs a call of the service."""
        request = self.send(buffer)
        assert request is not None
        assert request.kept is None
        return request

    def answer(self, buffer: FetchBuffer, request: FetchRequest, **more: Any) -> None:
        if request.kept is not None:
            buffer.complete(request, request.kept, self.now_ms, 0.0)
            return
        entries, body = self.service.answer(request)
        told = [{"topic_id": ID, **more, **each} for each in entries]
        buffer.complete(request, FetchAnswer(told, body), self.now_ms, 0.0)

    def take_shared(self, buffer: FetchBuffer) -> list[int]:
        """The offsets that come without a call."""
        request = self.send(buffer)
        assert request is not None
        assert request.kept is not None
        self.answer(buffer, request)
        return offsets_of(buffer.take(100))


@pytest.fixture
def process() -> Process:
    process = Process()
    process.service.append(T0, 3)
    return process


def test_second_reader_takes_what_the_first_has_fetched(process: Process) -> None:
    first, second = process.reader(T0), process.reader(T0)
    process.answer(first, process.ask(first))
    assert process.take_shared(second) == [0, 1, 2]
    assert offsets_of(first.take(100)) == [0, 1, 2]


def test_second_reader_waits_for_the_fetch_of_the_first(process: Process) -> None:
    first, second = process.reader(T0), process.reader(T0)
    request = process.ask(first)
    assert process.send(second) is None
    assert second.wake_at_ms > process.now_ms
    process.answer(first, request)
    assert process.woken == [second]
    assert process.take_shared(second) == [0, 1, 2]


def test_reader_fetches_for_itself_when_the_others_fetch_fails_and_meets_no_error(process: Process) -> None:
    first, second = process.reader(T0), process.reader(T0)
    request = process.ask(first)
    assert process.send(second) is None
    first.complete(request, REFUSED, process.now_ms, 0.0)
    assert process.woken == [second]
    process.answer(second, process.ask(second))
    assert offsets_of(second.take(100)) == [0, 1, 2]
    with pytest.raises(InvalidError):
        first.take(100)


def test_reader_waits_no_longer_when_the_other_one_leaves(process: Process) -> None:
    first, second = process.reader(T0), process.reader(T0)
    late = process.ask(first)
    assert process.send(second) is None
    first.close()
    assert process.woken == [second]
    process.answer(second, process.ask(second))
    process.answer(first, late)  # what is closed tells nothing more
    assert offsets_of(second.take(100)) == [0, 1, 2]


def test_reader_waits_no_longer_than_its_patience(process: Process) -> None:
    first, second = process.reader(T0), process.reader(T0)
    process.ask(first)
    assert process.send(second) is None
    process.now_ms = second.wake_at_ms
    assert process.ask(second).body["partitions"][0]["offset"] == 0
    assert process.now_ms <= 1_000_000 + 500 + SDK_SHARED_PATIENCE_MS


def test_readers_far_apart_do_not_wait_for_each_other(process: Process) -> None:
    process.service.append(T0, 3)
    first, second = process.reader(T0), process.reader(T0)
    second.start(T0, 3, ID)
    process.ask(first)
    assert process.ask(second).body["partitions"][0]["offset"] == 3


def test_reader_in_the_middle_of_an_answer_takes_the_batches_from_its_offset_on(process: Process) -> None:
    process.service.append(T0, 3)
    first, second = process.reader(T0), process.reader(T0)
    process.answer(first, process.ask(first))
    second.start(T0, 4, ID)
    assert process.take_shared(second) == [4, 5]


def test_answer_above_the_readers_bound_is_not_taken(process: Process) -> None:
    first, second = process.reader(T0), process.reader(T0, fetch_max_bytes=10, buffer_bytes=100)
    process.answer(first, process.ask(first))
    process.ask(second)


def test_answers_are_kept_for_a_moment_only(process: Process) -> None:
    first, second = process.reader(T0), process.reader(T0)
    process.answer(first, process.ask(first))
    process.now_ms += SDK_SHARED_MS + 1
    process.ask(second)


def test_topic_made_anew_shares_nothing_with_the_old_one(process: Process) -> None:
    first, second = process.reader(T0), process.reader(T0)
    process.answer(first, process.ask(first))
    second.start(T0, 0, "id-of-another")
    process.ask(second)


def test_readers_with_other_filters_share_nothing(process: Process) -> None:
    first, second = process.reader(T0), process.reader(T0, filter='{"type":["order"]}')
    process.answer(first, process.ask(first))
    process.ask(second)


def test_reader_alone_keeps_nothing(process: Process) -> None:
    first = process.reader(T0)
    process.reader(T1)
    request = process.ask(first)
    assert request.flight is None
    process.answer(first, request)
    process.ask(process.reader(T0))


def test_reader_that_is_gone_without_close_is_no_reader(process: Process) -> None:
    first, second = process.reader(T0), process.reader(T0)
    del second
    process.woken.clear()
    gc.collect()
    first.assign([T0])
    assert process.ask(first).flight is None


def test_broken_bytes_are_the_readers_that_fetched_them(process: Process) -> None:
    first, second = process.reader(T0), process.reader(T0)
    request = process.ask(first)
    entries, body = process.service.answer(request)
    broken = bytearray(body)
    broken[-1] ^= 1
    answer = FetchAnswer([{"topic_id": ID, **each} for each in entries], memoryview(bytes(broken)))
    first.complete(request, answer, process.now_ms, 0.0)
    process.answer(second, process.ask(second))
    assert offsets_of(second.take(100)) == [0, 1, 2]


def test_error_of_a_partition_is_not_shared(process: Process) -> None:
    process.service.starts[T0] = 2
    first, second = process.reader(T0), process.reader(T0)
    process.answer(first, process.ask(first))
    assert process.ask(second).body["partitions"][0]["offset"] == 0


def test_end_of_the_log_counts_once_for_each_reader(process: Process) -> None:
    first, second = process.reader(T0), process.reader(T0)
    for each in (first, second):
        each.start(T0, 3, ID)
    process.answer(first, process.ask(first))
    assert process.take_shared(second) == []
    process.now_ms += 10
    process.ask(second)


def test_waits_in_the_service_are_shared(process: Process) -> None:
    readers = [process.reader(T0) for _ in range(10)]
    for each in readers:
        each.start(T0, 3, ID)
    request = process.ask(readers[0])
    assert [process.send(each) for each in readers[1:]] == [None] * 9
    process.service.append(T0, 1)
    process.answer(readers[0], request)
    assert [process.take_shared(each) for each in readers[1:]] == [[3]] * 9


class TestArming:
    """Readers that sleep until a wake-up. The watches are driven by hand."""

    @pytest.fixture
    def readers(self, process: Process) -> list[FetchBuffer]:
        """Two that have read to the end, and are covered; the first one is about to arm."""
        readers = [process.reader(T0, is_woken=True) for _ in range(2)]
        for each in readers:
            each.start(T0, 3, ID)
            process.answer(each, process.send(each) or pytest.fail("nothing to send"))
            process.now_ms += 1
        for each in readers:
            assert process.send(each) is None
            watch = each.waiting.watch
            assert watch is not None
            for leaf in watch.leaves:
                watch.subscribed(leaf)
            each.look_again()
        process.now_ms += 1
        return readers

    def test_one_request_arms_for_all_that_were_covered_before_it(
        self, process: Process, readers: list[FetchBuffer]
    ) -> None:
        first, second = readers
        early = process.ask(second)  # which sees its subscription for the first time
        assert early.body["arm"]
        process.answer(second, early, armed=False)
        process.now_ms += 10_000
        request = process.ask(first)
        assert request.body["arm"]
        assert process.send(second) is None  # it waits for the other one
        process.answer(first, request, armed=True)
        assert process.take_shared(second) == []
        for each in readers:
            assert process.send(each) is None
            assert each.wake_at_ms > process.now_ms + 50_000

    def test_reader_fetches_if_it_was_woken_since_the_other_one_armed(
        self, process: Process, readers: list[FetchBuffer]
    ) -> None:
        first, second = readers
        process.answer(second, process.ask(second), armed=False)
        process.now_ms += 10_000
        request = process.ask(first)
        process.service.append(T0, 1)  # behind the arming, whose answer is still under way
        second.woken(WakeUp(topic_id=ID, partition=0, next_offset=4))
        entries, body = process.service.answer(request)
        old = [
            {**each, "topic_id": ID, "next_offset": 3, "high_watermark": 3, "length": 0, "armed": True}
            for each in entries
        ]
        first.complete(request, FetchAnswer(old, body[:0]), process.now_ms, 0.0)
        process.answer(second, process.ask(second))
        assert offsets_of(second.take(100)) == [3]

    def test_answer_that_has_armed_nothing_puts_no_other_reader_to_sleep(
        self, process: Process, readers: list[FetchBuffer]
    ) -> None:
        first, second = readers
        for each in readers:  # each has seen its subscription
            process.answer(each, process.ask(each), armed=False)
        process.now_ms += 10_000
        process.answer(first, process.ask(first), armed=False)
        process.answer(second, process.ask(second), armed=True)

    def test_subscription_that_began_later_arms_for_itself(self, process: Process, readers: list[FetchBuffer]) -> None:
        first, second = readers
        process.answer(first, process.ask(first), armed=True)
        process.now_ms += 1
        assert process.ask(second).body["arm"]


def test_random_readers_get_each_record_once_and_in_order(process: Process) -> None:
    for seed in range(60):
        chance = random.Random(seed)
        process = Process()
        readers = [process.reader(T0, is_woken=chance.random() < 0.5, fetch_interval_ms=200) for _ in range(4)]
        got: dict[int, list[int]] = {index: [] for index in range(4)}
        under_way: list[tuple[int, FetchRequest]] = []
        for _ in range(300):
            process.now_ms += chance.choice([0, 1, 20, 200, 2_500])
            what, index = chance.random(), chance.randrange(4)
            if what < 0.15:
                process.service.append(T0, chance.randrange(1, 4))
            elif what < 0.6:
                request = process.send(readers[index])
                if request is not None:
                    under_way.append((index, request))
            elif under_way:
                index, request = under_way.pop(chance.randrange(len(under_way)))
                if request.kept is None and chance.random() < 0.1:
                    readers[index].complete(request, UNAVAILABLE, process.now_ms, chance.random())
                else:
                    process.answer(readers[index], request)
                got[index] += offsets_of(readers[index].take(100))
        for each in got.values():
            assert each == [*range(len(each))], f"seed {seed}"
        for index, buffer in enumerate(readers):  # each comes to the end without the others
            for left_index, request in under_way:
                if left_index == index:
                    process.answer(buffer, request)
                    got[index] += offsets_of(buffer.take(100))
            for _ in range(50):
                process.now_ms += 10_000
                if (request := process.send(buffer)) is not None:
                    process.answer(buffer, request)
                got[index] += offsets_of(buffer.take(100))
            assert len(got[index]) == process.service.end(T0), f"seed {seed}"


def test_kept_bytes_are_bounded() -> None:
    shared = SharedReads()
    process = Process()
    process.service.append(T0, 1)
    entries, body = process.service.answer(new_buffer(T0).next_request(0) or pytest.fail("nothing to send"))
    place = Place(ID, 0)
    for number in range(10):
        claim = shared.claim(lambda: None, [Wanted(place, 0, joins_after_ms=NEVER_MS)], 0, number, 0)
        assert claim.flight is not None
        shared.end(claim.flight, [(entries[0], body)], SDK_SHARED_BYTES_MAX // 2)
        assert shared._bytes <= SDK_SHARED_BYTES_MAX
    claim = shared.claim(lambda: None, [Wanted(Place(ID, 1), 0)], 0, 10, 0)
    assert claim.flight is not None
    shared.end(claim.flight, [(entries[0], body)], SDK_SHARED_BYTES_MAX + 1)
    assert not shared.claim(lambda: None, [Wanted(Place(ID, 1), 0)], 10**6, 11, 0).kept


def _end_of_an_idle_partition(shared: SharedReads, after_ms: int) -> bytearray:
    """The body of a fetch at 1,000 ms of a busy partition and an idle one, whose fetch has ended."""
    process = Process()
    process.service.append(T0, 1)
    entries, body = process.service.answer(new_buffer(T0).next_request(0) or pytest.fail("nothing to send"))
    data = bytearray(body)
    wanted = [Wanted(Place(ID, 0), 0, after_ms), Wanted(Place(ID, 1), 7, after_ms)]
    claim = shared.claim(lambda: None, wanted, 0, 1_000, 0)
    assert claim.flight is not None
    idle = {"next_offset": 7, "high_watermark": 7, "log_start_offset": 0, "length": 0}
    view = memoryview(data)
    shared.end(claim.flight, [(entries[0], view), (idle, view[len(data) :])], len(data))
    return data


def test_end_of_the_log_holds_no_bytes_of_its_answer() -> None:
    shared = SharedReads()
    data = _end_of_an_idle_partition(shared, after_ms=-1)
    assert shared.forget_old(1_000 + SDK_SHARED_MS) == 1_000 + SDK_SHARED_MS + 1
    with pytest.raises(BufferError):
        data.append(0)  # the records are kept
    assert shared.forget_old(1_000 + SDK_SHARED_MS + 1) == 1_000 + SDK_SAFETY_NET_MS + 1
    data.append(0)
    assert shared.claim(lambda: None, [Wanted(Place(ID, 1), 7, -1)], 0, 1_000 + SDK_SHARED_MS + 1, 0).kept


def test_ends_are_forgotten_without_a_claim() -> None:
    shared = SharedReads()
    _end_of_an_idle_partition(shared, after_ms=-1)
    assert shared.forget_old(1_000 + SDK_SAFETY_NET_MS + 1) == NEVER_MS
    assert not shared.claim(lambda: None, [Wanted(Place(ID, 1), 7, -1)], 0, 1_000, 0).kept


def test_no_end_is_kept_for_a_reader_that_takes_none() -> None:
    shared = SharedReads()
    _end_of_an_idle_partition(shared, after_ms=NEVER_MS)
    assert not shared._ends
    assert shared.forget_old(1_000 + SDK_SHARED_MS + 1) == NEVER_MS


def test_readers_that_do_nothing_let_go_what_is_too_old(process: Process) -> None:
    first, second = process.reader(T0), process.reader(T0)
    for each in (first, second):
        each.pause(T0, True)
    first.pause(T0, False)
    process.answer(first, process.ask(first))
    first.pause(T0, True)
    assert process.shared._bytes
    assert process.send(second) is None
    assert second.wake_at_ms == process.now_ms + SDK_SHARED_MS + 1
    process.now_ms = second.wake_at_ms
    assert process.send(second) is None
    assert not process.shared._bytes


@pytest.mark.parametrize("begins", ["assigned", "sought", "resumed"])
def test_first_question_takes_no_end_from_before_it(process: Process, begins: str) -> None:
    first, second = process.reader(T0), process.reader(T0)
    for each in (first, second):
        each.start(T0, 3, ID)
    if begins != "assigned":
        process.answer(second, process.ask(second))
        second.pause(T0, True)
    process.now_ms += 10
    process.answer(first, process.ask(first))
    process.now_ms += 50_000
    process.service.append(T0, 5)  # a writer has its answer before the reader begins
    if begins == "sought":
        second.seek(T0, 3)
    if begins != "assigned":
        second.pause(T0, False)
    process.answer(second, process.ask(second))
    assert offsets_of(second.take(100)) == [3, 4, 5, 6, 7]


class _ChangingProof:
    """A transport whose caller proves with another key after a while."""

    def __init__(self, service: MemoryPenstock) -> None:
        self.key = f"first-{id(self)}"
        self.call = service.transport.call
        self.close = service.transport.close

    def reader(self) -> str:
        return self.key


def test_reader_shares_by_the_proof_that_it_has_now(
    clients: ClientKind, service: MemoryPenstock, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("fetcher", "async_fetcher"):
        monkeypatch.setattr(f"penstock.consumer.{module}.SDK_SHARED_MS", 0)
    service.create_topic("orders")
    transport = _ChangingProof(service)
    old, new = shared_reads_of(transport.key), shared_reads_of("second")
    settings: dict[str, Any] = {"wait": "poll", "fetch_wait_ms": 10}
    with clients.consumer("orders", transport=transport, **settings) as consumer:
        until(lambda: len(old._reading) == 1, step=lambda: consumer.poll(timeout_ms=10))
        transport.key = "second"
        until(lambda: len(new._reading) == 1, step=lambda: consumer.poll(timeout_ms=10))
        assert not old._reading


def test_shared_reads_belong_to_the_service_and_the_caller() -> None:
    def reader(url: str, key: str) -> object:
        credentials = StaticCredentials(key, "secret")
        return reader_of(HttpTransport(Configuration(url=url, region="us-east-1", credentials=credentials)))

    mine = shared_reads_of(reader("https://one", "key"))
    assert shared_reads_of(reader("https://one", "key")) is mine
    assert shared_reads_of(reader("https://one", "another")) is not mine
    assert shared_reads_of(reader("https://two", "key")) is not mine
    tokens = [reader_of(token_transport(partial(str, token), "https://one")) for token in ("a.b.c", "a.b.c", "d")]
    assert tokens[0] == tokens[1] != tokens[2]


def test_consumers_that_share_get_all_records_and_one_of_another_caller_too() -> None:
    with MemoryPenstock() as service:
        service.create_topic("orders", partitions=2)
        other = service.transport_as("arn:aws:iam::123456789012:user/other")
        with service.producer(linger_ms=0) as producer, Consumer("orders", transport=other) as alone:
            consumers: list[Consumer] = [*(service.consumer("orders") for _ in range(5)), alone]
            sent = [b"%d" % number for number in range(60)]
            got: list[list[bytes | None]] = [[] for _ in consumers]
            for number, value in enumerate(sent):
                producer.send("orders", value, partition=number % 2)
                for each, consumer in zip(got, consumers, strict=True):
                    each += [record.value for record in consumer.poll(timeout_ms=1)]

            def poll_all() -> None:
                for each, consumer in zip(got, consumers, strict=True):
                    each.extend(record.value for record in consumer.poll(timeout_ms=10))

            until(lambda: all(len(each) >= len(sent) for each in got), step=poll_all)
        assert [sorted(each, key=lambda value: int(value or b"-1")) for each in got] == [sent] * len(consumers)
