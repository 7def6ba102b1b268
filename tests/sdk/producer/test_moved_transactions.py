"""A transactional producer whose topic moved to its mirror is fenced there. Another one sends its records, once."""

from collections.abc import Callable, Iterator

import pytest

from penstock.cli import mirrors
from penstock.errors import ConflictError, FencedError
from penstock.http.transport import StagesTransport
from penstock.producer.producer import Producer
from penstock.testing import MemoryPenstock
from penstock_core.errors import ErrorCode, PenstockError
from tests.sdk.cli.command import run, run_json

A, B = "https://a.example", "https://b.example"


@pytest.fixture
def stages(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[MemoryPenstock, MemoryPenstock]]:
    with MemoryPenstock() as a, MemoryPenstock() as b:
        a.create_topic("orders", partitions=1)
        a.add_stage(B, b)
        monkeypatch.setattr(mirrors, "open_transport", lambda url, _: {A: a.transport, B: b.transport}[url])
        run_json(a.transport, "mirrors", "create", "dr", "orders", "--to", B, "--source", A)
        a.deliver_pushes()
        yield a, b


def producer_of(*sides: MemoryPenstock) -> Producer:
    urls = [A, B][: len(sides)]
    transport = StagesTransport(urls, [each.transport for each in sides]) if len(sides) > 1 else sides[0].transport
    return Producer(transport=transport, transactional_id="mover")


def send_in_transaction(producer: Producer, value: bytes, meanwhile: Callable[[], None] = lambda: None) -> None:
    with producer.transaction() as transaction:
        transaction.send("orders", value=value, partition=0)
        meanwhile()


def promote(a: MemoryPenstock, b: MemoryPenstock) -> None:
    a.deliver_pushes()
    assert run(b.transport, "mirrors", "promote", "orders", "--yes").exit_code == 0


def values_at(side: MemoryPenstock) -> list[bytes | None]:
    return [each.value for each in side.records("orders")]


def test_transaction_that_was_open_at_the_move_comes_once(stages: tuple[MemoryPenstock, MemoryPenstock]) -> None:
    a, b = stages
    with producer_of(a, b) as producer:
        send_in_transaction(producer, b"0")
        with pytest.raises(PenstockError):
            send_in_transaction(producer, b"1", meanwhile=lambda: promote(a, b))
        with pytest.raises(FencedError):
            send_in_transaction(producer, b"1")
    with producer_of(b) as another:
        send_in_transaction(another, b"1")
    assert values_at(b) == [b"0", b"1"]
    assert values_at(a) == [b"0"]


def test_earlier_instance_commits_at_neither_side(stages: tuple[MemoryPenstock, MemoryPenstock]) -> None:
    a, b = stages
    with producer_of(a) as earlier, producer_of(b) as later:
        send_in_transaction(earlier, b"0")
        promote(a, b)
        send_in_transaction(later, b"1")
        with pytest.raises(ConflictError):
            send_in_transaction(earlier, b"1")
    assert values_at(b) == [b"0", b"1"]
    assert values_at(a) == [b"0"]


def test_instance_that_began_at_the_moved_stage_does_not_fence_the_one_at_the_mirror(
    stages: tuple[MemoryPenstock, MemoryPenstock],
) -> None:
    a, b = stages
    promote(a, b)
    with producer_of(b) as current, producer_of(a, b) as stray:
        send_in_transaction(current, b"0")
        with pytest.raises(
            PenstockError
        ) as caught:  # epochs of two stages may be equal: then its number is not the next
            send_in_transaction(stray, b"1")
        assert caught.value.code in (ErrorCode.PRODUCER_FENCED, ErrorCode.OUT_OF_ORDER_SEQUENCE)
        send_in_transaction(current, b"1")
    assert values_at(b) == [b"0", b"1"]
