"""The reader against librdkafka's own mock of a cluster, in this process."""

from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from penstock.errors import InvalidError, NotFoundError, OffsetOutOfRangeError
from penstock_import.source.address import ALLOWED, OWN, KafkaAddress, QueueAddress, parse_address, parse_properties
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


@pytest.mark.parametrize(
    ("text", "servers"),
    [
        ("kafka://a/orders", "a:9092"),
        ("kafka://a:1,b:2/orders", "a:1,b:2"),
        ("kafka://[::1]:9/orders", "[::1]:9"),
        ("kafka://[::1]/orders", "[::1]:9092"),
    ],
)
def test_brokers_have_the_usual_port(text: str, servers: str) -> None:
    assert parse_address(text) == KafkaAddress(servers=servers, topic="orders")


@pytest.mark.parametrize(
    ("text", "queue", "name", "is_url"),
    [
        ("sqs://orders.fifo", "orders.fifo", "orders.fifo", False),
        ("sqs://https://sqs.eu-central-1.amazonaws.com/1/orders", None, "orders", True),
        ("sqs://sqs.eu-central-1.amazonaws.com/1/orders", None, "orders", True),
    ],
)
def test_queue_is_a_name_or_a_url(text: str, queue: str | None, name: str, is_url: bool) -> None:
    found = parse_address(text)
    assert isinstance(found, QueueAddress)
    assert found.queue == (queue or "https://sqs.eu-central-1.amazonaws.com/1/orders")
    assert (found.name, found.is_url) == (name, is_url)


@pytest.mark.parametrize(
    ("text", "way_out"),
    [
        ("orders", "give kafka://host:port/topic or sqs://queue"),
        ("kafka://a", "name one topic"),
        ("kafka:///orders", "no host:port"),
        ("kafka://a:x/orders", "no host:port"),
        ("kafka://a:70000/orders", "no host:port"),
        ("kafka://a/b/c", "name one topic"),
        ("sqs://", "name the queue"),
    ],
)
def test_address_is_refused_with_the_way_out(text: str, way_out: str) -> None:
    with pytest.raises(InvalidError, match=way_out):
        parse_address(text)


def test_password_is_not_repeated_when_it_stands_in_the_address() -> None:
    with pytest.raises(InvalidError, match="--config") as refused:
        parse_address("kafka://user:geheim@a:1/orders")
    assert "geheim" not in str(refused.value)


def test_properties_are_read_as_kafkas_tools_do() -> None:
    text = "# a comment\n! another\n\nsecurity.protocol = SASL_SSL\nsasl.password: a=b:c\nclient.rack=\n"
    assert parse_properties(text) == {"security.protocol": "SASL_SSL", "sasl.password": "a=b:c", "client.rack": ""}


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("isolation.level=read_uncommitted", "line 1 .* the importer's own"),
        ("sasl.jaas.config=x", "sasl.username and sasl.password"),
        ("no value", "'no': write name=value"),
        ("plugin.library.paths=/tmp/mine", "'plugin.library.paths' is not taken from a file"),
        ("sasl.kerberos.kinit.cmd=touch /tmp/mine", "is not taken from a file"),
        ("sasl.kerberos.principal=x; touch /tmp/mine", "is not taken from a file"),
        ("ssl.engine.location=/tmp/mine", "is not taken from a file"),
        ("ssl.providers=mine", "is not taken from a file"),
        ("PLUGIN.library.paths=/tmp/mine", "is not taken from a file"),
    ],
)
def test_line_is_refused_with_the_way_out(line: str, message: str) -> None:
    with pytest.raises(InvalidError, match=message):
        parse_properties(line)


def test_each_allowed_name_is_one_of_librdkafka_and_none_of_the_importers_own() -> None:
    assert not ALLOWED & OWN
    for name in ALLOWED:
        with pytest.raises(KafkaException) as refused:  # by a value that no setting has, and not by the name
            Consumer({"group.id": "any", "debug": "nothing", name: "1000"})
        assert "No such configuration property" not in str(refused.value), name


def test_value_is_not_repeated_when_a_line_is_refused() -> None:
    with pytest.raises(InvalidError) as refused:
        parse_properties('sasl.jaas.config=... password="geheim"')
    assert "geheim" not in str(refused.value)
