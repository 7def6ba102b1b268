"""What a producer says of its transactions when requests are lost, late, repeated or cancelled."""

import asyncio
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import Any

import pytest

from penstock import FencedError, Producer, TransactionAbortedError, UnavailableError
from penstock.errors import ConnectionFailedError
from penstock.http.http_message import Response
from penstock.http.transport import Transport
from penstock.producer.async_producer import AsyncProducer
from penstock.testing import MemoryPenstock, ThreadedTransport
from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.ids import TransactionalId
from penstock_core.limits import KIB, TRANSACTIONAL_ID_KEPT_MS
from penstock_core.storage.transaction_items import state_key
from tests.sdk.http.faulty_transport import FaultyTransport, lost_answer, lost_request
from tests.support.deadlines import DEADLINE_S
from tests.support.tables import tables_of

TRANSACT, BEGIN = "/v1/transactions", "/v1/producers"
MANY = 10_000  # more than the tries that there is time for
PART = 100 * KIB  # a record that fills a request, by the settings of `staging`
Send = Callable[[], Response]


@pytest.fixture
def service() -> Iterator[MemoryPenstock]:
    with MemoryPenstock() as service:
        service.create_topic("ledger")
        service.create_topic("other")
        yield service


@pytest.fixture
def faulty(service: MemoryPenstock) -> FaultyTransport:
    return FaultyTransport(service.transport)


def new_producer(transport: Transport, **settings: Any) -> Producer:
    return Producer(transport=transport, transactional_id="t", retry_backoff_ms=1, **settings)


def values(service: MemoryPenstock) -> list[bytes]:
    return [bytes(record.value or b"")[:9].rstrip(b"\0") for record in service.records("ledger")]


def transact(producer: Producer, value: bytes) -> Any:
    with producer.transaction() as transaction:
        return transaction.send("ledger", value)


class Held:
    """Keeps the first request of a path: `release` lets it through, however late. `fails` answers it meanwhile."""

    def __init__(self, inner: Transport, path: str, *, fails: bool) -> None:
        self._inner, self._path, self._fails = inner, path, fails
        self.held: tuple[Any, ...] | None = None
        self.has_come, self.may_go, self.is_done = threading.Event(), threading.Event(), threading.Event()

    def call(
        self, method: str, path: str, query: Mapping[str, str], headers: Mapping[str, str], body: bytes
    ) -> Response:
        if path != self._path or self.held is not None:
            return self._inner.call(method, path, query, headers, body)
        self.held = method, path, query, headers, body
        self.has_come.set()
        if self._fails:
            raise ConnectionFailedError("timed out", maybe_applied=True)
        self.may_go.wait(DEADLINE_S)
        answer = self._inner.call(*self.held)
        self.is_done.set()
        return answer

    def release(self) -> None:
        assert self.held is not None
        if self._fails:
            self._inner.call(*self.held)
        else:
            self.may_go.set()
            assert self.is_done.wait(DEADLINE_S)

    def close(self) -> None:
        pass


def test_commit_that_never_arrived_is_not_taken_for_that_of_the_successor(
    service: MemoryPenstock, faulty: FaultyTransport
) -> None:
    with new_producer(faulty, max_block_ms=1) as zombie, new_producer(service.transport) as successor:
        transact(zombie, b"zombie 0")

        def lost_and_overtaken(_: Send) -> Response:
            transact(successor, b"successor")
            raise ConnectionFailedError("connection reset", maybe_applied=True)

        faulty.faults[TRANSACT] = [lost_and_overtaken, *[lost_request] * MANY]
        with pytest.raises(FencedError) as caught, zombie.transaction() as transaction:
            sent = transaction.send("ledger", b"zombie 1")
        assert not caught.value.maybe_applied, "its number was committed, under another nonce"
        with pytest.raises(TransactionAbortedError):
            sent.result(DEADLINE_S)
        faulty.faults.clear()
        with pytest.raises(FencedError):
            transact(zombie, b"zombie 2")
        transact(successor, b"still")
    assert values(service) == [b"zombie 0", b"successor", b"still"]


@pytest.mark.parametrize("is_applied", [False, True])
def test_outcome_is_told_or_unknown_when_successors_have_committed_since(
    service: MemoryPenstock, faulty: FaultyTransport, is_applied: bool
) -> None:
    with new_producer(faulty, max_block_ms=1) as zombie, new_producer(service.transport) as successor:
        transact(zombie, b"zombie 0")

        def unanswered(send: Send) -> Response:
            if is_applied:
                send()
            for number in range(2):
                transact(successor, b"next %d" % number)
            raise ConnectionFailedError("connection reset", maybe_applied=True)

        faulty.faults[TRANSACT] = [unanswered, *[lost_request] * MANY]
        with pytest.raises(FencedError) as caught, zombie.transaction() as transaction:
            sent = transaction.send("ledger", b"zombie 1")
        assert caught.value.maybe_applied
        assert getattr(sent.exception(DEADLINE_S), "maybe_applied", False)
    assert (b"zombie 1" in values(service)) is is_applied


@pytest.mark.parametrize("begins_anew", [False, True])
@pytest.mark.parametrize("is_applied", [False, True])
def test_outcome_is_unknown_when_the_id_was_forgotten_since(
    service: MemoryPenstock,
    faulty: FaultyTransport,
    monkeypatch: pytest.MonkeyPatch,
    is_applied: bool,
    begins_anew: bool,
) -> None:
    """The client was cut off for 90 days. The number of the id's next life is above its own."""
    clock = service.transport._instance.clock
    later_ms = clock.now_ms() + TRANSACTIONAL_ID_KEPT_MS
    with new_producer(faulty, max_block_ms=1) as zombie, new_producer(service.transport) as successor:
        transact(zombie, b"zombie 0")

        def forgotten(send: Send) -> Response:
            if is_applied:
                send()
            monkeypatch.setattr(clock, "now_ms", lambda: later_ms)
            tables_of(service.transport._instance).delete_item(TableName="log", Key=state_key(TransactionalId("t")))
            if begins_anew:
                successor.init_transactions()
            raise ConnectionFailedError("connection reset", maybe_applied=True)

        faulty.faults[TRANSACT] = [forgotten, *[lost_request] * MANY]
        with pytest.raises(FencedError) as caught, zombie.transaction() as transaction:
            sent = transaction.send("ledger", b"zombie 1")
        assert caught.value.maybe_applied
        assert getattr(sent.exception(DEADLINE_S), "maybe_applied", False)
        with pytest.raises(FencedError):
            transact(zombie, b"zombie 2")
    assert (b"zombie 1" in values(service)) is is_applied


def test_commit_is_told_as_made_when_a_successor_has_only_begun(
    service: MemoryPenstock, faulty: FaultyTransport
) -> None:
    with new_producer(faulty, max_block_ms=1) as zombie, new_producer(service.transport) as successor:
        transact(zombie, b"zombie 0")

        def unanswered(send: Send) -> Response:
            send()
            successor.init_transactions()
            raise ConnectionFailedError("connection reset", maybe_applied=True)

        faulty.faults[TRANSACT] = [unanswered, *[lost_request] * MANY]
        assert transact(zombie, b"zombie 1").result(DEADLINE_S).offset == -1
        with pytest.raises(FencedError):
            transact(zombie, b"zombie 2")
        transact(successor, b"successor")
    assert values(service) == [b"zombie 0", b"zombie 1", b"successor"]


def test_instance_that_was_cut_off_does_not_fence_its_successor(
    service: MemoryPenstock, faulty: FaultyTransport
) -> None:
    with new_producer(faulty, max_block_ms=1) as zombie, new_producer(service.transport) as successor:
        transact(zombie, b"zombie 0")
        faulty.faults = {TRANSACT: [lost_request] * MANY, BEGIN: [lost_request] * MANY}
        with pytest.raises(UnavailableError):
            transact(zombie, b"zombie 1")
        transact(successor, b"successor")
        faulty.faults.clear()
        for _ in range(2):
            with pytest.raises(FencedError):
                transact(zombie, b"zombie 2")
        transact(successor, b"still")
    assert values(service) == [b"zombie 0", b"successor", b"still"]


def test_begin_that_arrives_twice_does_not_fence_its_own_producer(service: MemoryPenstock) -> None:
    late = Held(service.transport, BEGIN, fails=True)
    with new_producer(late) as producer:
        with producer.transaction() as transaction:
            late.release()
            transaction.send("ledger", b"0")
        transact(producer, b"1")
    assert values(service) == [b"0", b"1"]


def test_begin_that_arrives_late_does_not_fence_a_successor(service: MemoryPenstock) -> None:
    late = Held(service.transport, BEGIN, fails=True)
    with new_producer(late) as producer, new_producer(service.transport) as successor:
        transact(producer, b"0")
        transact(successor, b"1")
        late.release()
        transact(successor, b"2")
    assert values(service) == [b"0", b"1", b"2"]


def test_begin_whose_answer_was_lost_is_repeated_by_the_next_transaction(
    service: MemoryPenstock, faulty: FaultyTransport
) -> None:
    with new_producer(faulty, max_block_ms=1) as producer:
        transact(producer, b"0")
        faulty.faults = {TRANSACT: [lost_request] * MANY, BEGIN: [lost_answer] * MANY}
        with pytest.raises(UnavailableError):
            transact(producer, b"1")
        with pytest.raises(UnavailableError):
            transact(producer, b"1")
        faulty.faults.clear()
        transact(producer, b"2")
    assert values(service) == [b"0", b"2"]


def _no_zone_takes(service: MemoryPenstock) -> None:
    def refuse(*_: object) -> None:
        raise PenstockError(ErrorCode.STORAGE_UNAVAILABLE, "the zone is away")

    for zone in service.transport._instance.stores.zones:
        object.__setattr__(zone, "put", refuse)


def _topic_is_deleted(service: MemoryPenstock) -> None:
    service.admin().delete_topic("other")


@pytest.mark.parametrize("trouble", [_no_zone_takes, _topic_is_deleted])
def test_commit_that_was_made_is_told_as_made_although_its_repeat_would_be_refused(
    service: MemoryPenstock, faulty: FaultyTransport, trouble: Callable[[MemoryPenstock], None]
) -> None:
    def applied_then_trouble(send: Send) -> Response:
        try:
            return lost_answer(send)
        finally:
            trouble(service)

    with new_producer(faulty) as producer:
        transact(producer, b"0")
        faulty.faults[TRANSACT] = [applied_then_trouble]
        with producer.transaction() as transaction:
            sent = transaction.send("ledger", b"1")
            transaction.send("other", b"1")
        assert sent.result(DEADLINE_S).offset == 1
    assert values(service) == [b"0", b"1"]


def test_refusal_after_an_unanswered_commit_is_never_told_as_surely_not_made(
    service: MemoryPenstock, faulty: FaultyTransport
) -> None:
    """An older service looks at zones before it looks whether the commit was made."""

    def refused(_: Send) -> Response:
        return Response(404, {}, b'{"error": {"code": "UNKNOWN_TOPIC", "message": "gone", "maybe_applied": false}}')

    with new_producer(faulty, max_block_ms=100) as producer:
        transact(producer, b"0")
        faulty.faults = {TRANSACT: [lost_answer, refused], BEGIN: [lost_request] * MANY}
        with pytest.raises(PenstockError) as caught, producer.transaction() as transaction:
            sent = transaction.send("ledger", b"1")
        assert caught.value.maybe_applied
        assert getattr(sent.exception(DEADLINE_S), "maybe_applied", False)
        faulty.faults = {TRANSACT: [lost_answer, refused]}
        assert transact(producer, b"2").result(DEADLINE_S).offset == -1, "its nonce is that of the last commit"
    assert values(service) == [b"0", b"1", b"2"]


def staging(transport: Transport) -> AsyncProducer:
    """A producer that stages its records two at a time."""
    return AsyncProducer(
        transport=ThreadedTransport(transport),
        transactional_id="t",
        batch_bytes=PART,
        max_request_bytes=3 * PART - 4 * KIB,
        compression_type="none",
    )


def part(name: str) -> bytes:
    return name.encode().ljust(PART - KIB, b"\0")


def test_stage_that_was_cancelled_never_joins_the_next_transaction(service: MemoryPenstock) -> None:
    held = Held(service.transport, TRANSACT, fails=False)

    async def run() -> None:
        async with staging(held) as producer:

            async def abort() -> None:
                async with producer.transaction() as transaction:
                    for _ in range(4):
                        await transaction.send("ledger", part("aborted"))

            task = asyncio.create_task(abort())
            await asyncio.to_thread(held.has_come.wait, DEADLINE_S)
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
            async with producer.transaction() as transaction:
                for _ in range(4):
                    await transaction.send("ledger", part("committed"))
                await asyncio.to_thread(held.release)

    asyncio.run(run())
    assert values(service) == [b"committed"] * 4


def test_transaction_goes_on_when_one_of_its_sends_is_cancelled_in_a_stage(service: MemoryPenstock) -> None:
    held = Held(service.transport, TRANSACT, fails=False)

    async def run() -> None:
        async with staging(held) as producer, producer.transaction() as transaction:
            for name in ("0", "1"):
                await transaction.send("ledger", part(name))
            cancelled = asyncio.create_task(transaction.send("ledger", part("never")))
            await asyncio.to_thread(held.has_come.wait, DEADLINE_S)
            waiting = asyncio.create_task(transaction.send("ledger", part("2")))
            await asyncio.sleep(0)
            cancelled.cancel()
            with suppress(asyncio.CancelledError):
                await cancelled
            await waiting
            await asyncio.to_thread(held.release)
            await transaction.send("ledger", part("3"))

    asyncio.run(run())
    assert values(service) == [b"0", b"1", b"2", b"3"]


def test_sends_of_one_transaction_may_be_gathered(service: MemoryPenstock, faulty: FaultyTransport) -> None:
    async def run() -> list[int]:
        async with staging(faulty) as producer, producer.transaction() as transaction:
            sends = [transaction.send("ledger", part(str(number))) for number in range(9)]
            sent = await asyncio.gather(*sends)
        return [(await each).offset for each in sent]

    offsets = asyncio.run(run())
    assert sorted(offsets) == list(range(9))
    assert [values(service)[offset] for offset in offsets] == [b"%d" % number for number in range(9)]
    assert faulty.count(TRANSACT) == 5


def test_gathered_sends_all_fail_when_their_stage_fails(service: MemoryPenstock, faulty: FaultyTransport) -> None:
    def refused(_: Send) -> Response:
        return Response(409, {}, b'{"error": {"code": "CONCURRENT_UPDATE", "message": "no", "maybe_applied": false}}')

    async def run() -> list[Any]:
        async with staging(faulty) as producer:
            faulty.faults[TRANSACT] = [refused]
            with pytest.raises(PenstockError, match="no"):  # noqa: PT012 - a block is the point
                async with producer.transaction() as transaction:
                    sends = [transaction.send("ledger", part(str(number))) for number in range(6)]
                    told = await asyncio.gather(*sends, return_exceptions=True)
            async with producer.transaction() as transaction:
                await transaction.send("ledger", b"next")
        return told

    told = asyncio.run(run())
    assert sum(isinstance(each, PenstockError) for each in told) >= 3
    assert values(service) == [b"next"]


def test_late_send_of_an_ended_transaction_does_not_join_the_next(service: MemoryPenstock) -> None:
    with new_producer(service.transport) as producer:
        with producer.transaction() as ended:
            ended.send("ledger", b"0")
        with producer.transaction() as transaction:
            with pytest.raises(PenstockError, match="has ended"):
                ended.send("ledger", b"late")
            transaction.send("ledger", b"1")
    assert values(service) == [b"0", b"1"]
