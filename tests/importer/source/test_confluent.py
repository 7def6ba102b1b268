"""The reader against librdkafka's own mock of a cluster, in this process."""

from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from penstock.errors import NotFoundError, OffsetOutOfRangeError
from penstock_import.source.address import KafkaAddress
from penstock_import.source.confluent import ConfluentSource
from penstock_import.source.records import ReachedEnd, SourceRecord

_COMPRESSIONS = ("none", "gzip", "snappy", "lz4", "zstd")


class _Cluster:
    """A mock cluster. Its client owns it: it ends with this object."""

    def __init__(self) -> None:
        self._owner = Producer({"test.mock.num.brokers": 1, "log_level": 0})
        [broker] = self._owner.list_topics(timeout=30).brokers.values()
        self.servers = f"{broker.host}:{broker.port}"

    def producer(self, **settings: Any) -> Producer:
        return Producer({"bootstrap.servers": self.servers, "log_level": 0, **settings})


@pytest.fixture(scope="module")
def cluster() -> _Cluster:
    return _Cluster()


@pytest.fixture
def source(cluster: _Cluster, request: pytest.FixtureRequest) -> Iterator[ConfluentSource]:
    source = ConfluentSource(KafkaAddress(servers=cluster.servers, topic=request.node.name), {"log_level": "0"})
    yield source
    source.close()


def _read(source: ConfluentSource, partition: int = 0) -> tuple[list[SourceRecord], int]:
    """The records of a partition up to its end, and the end."""
    records: list[SourceRecord] = []
    while True:
        for event in source.read(20):
            if isinstance(event, ReachedEnd) and event.partition == partition:
                return records, event.offset
            if isinstance(event, SourceRecord) and event.partition == partition:
                records.append(event)


def test_reader_tells_null_from_empty_and_keeps_times_and_headers(cluster: _Cluster, source: ConfluentSource) -> None:
    topic = source.topic
    producer = cluster.producer()
    headers = [("a", b"1"), ("a", None), ("b", b"")]
    for number, data in enumerate((None, b"", b"\x00x")):
        producer.produce(topic, key=data, value=data, headers=headers, timestamp=1_000 + number, partition=0)
    producer.flush()
    source.start({0: 0})
    records, end = _read(source)
    assert [(each.key, each.value, each.timestamp_ms) for each in records] == [
        (None, None, 1_000),
        (b"", b"", 1_001),
        (b"\x00x", b"\x00x", 1_002),
    ]
    assert {each.headers for each in records} == {tuple(headers)}
    assert end == 3
    assert source.lag({0: 3}) == 0


@pytest.mark.parametrize("compression", _COMPRESSIONS)
def test_reader_takes_each_compression(cluster: _Cluster, compression: str) -> None:
    topic = f"compressed.{compression}"
    producer = cluster.producer(**{"compression.type": compression, "linger.ms": 50})
    for _ in range(100):
        producer.produce(topic, value=b"the same text again and again", partition=0)
    producer.flush()
    source = ConfluentSource(KafkaAddress(servers=cluster.servers, topic=topic), {})
    source.start({0: 0})
    assert len(_read(source)[0]) == 100
    source.close()


@pytest.mark.slow
def test_reader_starts_where_it_is_told(cluster: _Cluster, source: ConfluentSource) -> None:
    producer = cluster.producer()
    for number in range(5):
        producer.produce(source.topic, value=b"%d" % number, partition=0)
    producer.flush()
    assert source.bounds()[0] == (0, 5)
    assert source.lag({0: 2}) == 3
    source.start({0: 3})
    assert [each.value for each in _read(source)[0]] == [b"3", b"4"]
    source.start({0: 99})
    with pytest.raises(OffsetOutOfRangeError, match="has no offset 99"):
        _read(source)


@pytest.mark.slow
def test_reader_tells_a_groups_offsets_and_leaves_no_trace(cluster: _Cluster, source: ConfluentSource) -> None:
    topic = source.topic
    producer = cluster.producer()
    producer.produce(topic, value=b"1", partition=0)
    producer.flush()
    with_group = Consumer({"bootstrap.servers": cluster.servers, "group.id": "billing", "log_level": 0})
    with_group.commit(offsets=[TopicPartition(topic, 0, 1)], asynchronous=False)
    with_group.close()
    source.start({0: 0})
    _read(source)
    assert source.committed("billing") == {0: 1}
    assert source.committed("penstock-import") == {}


def test_reader_names_the_topic_that_is_not_there(cluster: _Cluster) -> None:
    source = ConfluentSource(KafkaAddress(servers=cluster.servers, topic="no such topic!"), {})
    with pytest.raises(NotFoundError, match="has no topic 'no such topic!'"):
        source.describe()
    source.close()
