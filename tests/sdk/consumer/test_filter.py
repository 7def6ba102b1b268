"""Consumers with a filter, of both kinds: what they return, where they are, and what producers send for them."""

from pathlib import Path
from typing import Any

import pytest

from penstock.errors import InvalidError
from penstock.model import ConsumerRecord, TopicPartition
from penstock.testing import MemoryPenstock
from penstock_core.errors import ErrorCode
from penstock_core.filters.filter import tag_mask, tags_of
from tests.sdk.cli.command import run
from tests.sdk.client_kinds import ClientKind
from tests.support.deadlines import until
from tests.support.service import head_of

P0 = TopicPartition("t", 0)
FAST: dict[str, Any] = {"fetch_wait_ms": 10, "wait": "poll"}


@pytest.fixture
def topic(service: MemoryPenstock) -> str:
    """Ten records; the third and the seventh are orders."""
    service.create_topic("t", config={"index_tags": True})
    with service.producer() as producer:
        for number in range(10):
            kind = b"order" if number in (2, 6) else b"refund"
            producer.send("t", b"%d" % number, headers=[("type", kind), ("tag", kind)])
            producer.flush()
    return "t"


@pytest.mark.parametrize("policy", [{"type": ["order"]}, '{"tag": ["order"]}'])
def test_consumer_returns_what_matches_and_stands_behind_the_rest(clients: ClientKind, topic: str, policy: Any) -> None:
    found: list[int] = []

    def is_at_end() -> bool:
        found.extend(each.offset for each in consumer.poll())
        return bool(consumer.assignment()) and consumer.position(P0) == 10

    with clients.consumer(topic, filter=policy, **FAST) as consumer:
        until(is_at_end)
    assert found == [2, 6]


def test_member_of_a_group_commits_behind_what_does_not_match(
    clients: ClientKind, topic: str, service: MemoryPenstock
) -> None:
    def is_at_end() -> bool:
        consumer.poll()
        return bool(consumer.assignment()) and consumer.position(P0) == 10

    with clients.consumer(topic, group_id="g", filter={"type": ["order"]}, **FAST) as consumer:
        until(is_at_end)
    [partition] = service.admin().describe_group("g").partitions
    assert (partition.offset, partition.lag) == (10, 0)


def test_seek_goes_to_the_next_record_that_matches(clients: ClientKind, topic: str) -> None:
    with clients.consumer(filter={"type": ["order"]}, **FAST) as consumer:
        consumer.assign([P0])
        for offset, expected in [(3, 6), (0, 2), (6, 6)]:
            consumer.seek(P0, offset)
            records: list[ConsumerRecord] = []
            while not records:
                records = consumer.poll()
            assert records[0].offset == expected


@pytest.mark.parametrize("policy", [{}, "{", {"type": [{"prefix": 3}]}])
def test_wrong_filter_is_refused_when_the_consumer_is_made(clients: ClientKind, policy: Any) -> None:
    with pytest.raises(InvalidError) as caught:
        clients.consumer("t", filter=policy)
    assert caught.value.code is ErrorCode.INVALID_FILTER


def test_producer_sends_the_tags_of_each_entry(service: MemoryPenstock, clients: ClientKind) -> None:
    service.create_topic("tagged", config={"index_tags": True})
    service.create_topic("plain")
    with clients.producer() as producer:
        for name in ("tagged", "plain"):
            for tag in (b"a", b"b"):
                producer.send(name, b"v", headers=[("tag", tag)])
            producer.send(name, b"v")
        producer.flush()
    instance = service.transport._instance
    bits = 0
    for ref in head_of(instance, "tagged").tail:
        assert ref.tag_filter is not None
        bits |= ref.tag_filter
    assert bits == tag_mask(b"a") | tag_mask(b"b")
    assert {ref.tag_filter for ref in head_of(instance, "plain").tail} == {None}


def test_transaction_sends_the_tags_of_its_records(service: MemoryPenstock) -> None:
    service.create_topic("tagged", config={"index_tags": True})
    with service.producer(transactional_id="x") as producer, producer.transaction() as transaction:
        transaction.send("tagged", b"v", headers=[("tag", b"a")])
    [ref] = head_of(service.transport._instance, "tagged").tail
    assert ref.tag_filter == tags_of([("tag", b"a")])


def test_command_consumes_what_matches(service: MemoryPenstock, topic: str, tmp_path: Path) -> None:
    file = tmp_path / "policy.json"
    file.write_text('{"type": ["order"]}')
    for policy in (f"@{file}", file.read_text()):
        result = run(service.transport, "consume", topic, "--max-records", "2", "--filter", policy)
        assert (result.exit_code, result.stdout) == (0, "2\n6\n")
    result = run(service.transport, "consume", topic, "--filter", f"@{tmp_path / 'absent'}")
    assert result.exit_code == 2
    result = run(service.transport, "consume", topic, "--filter", '{"type": "order"}')
    assert (result.exit_code, "INVALID_FILTER: filter at type" in result.stderr) == (1, True)
