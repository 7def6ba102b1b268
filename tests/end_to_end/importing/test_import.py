"""`penstock import` on the stack: killed again and again, it brings each record and each message once."""

import signal
from collections import Counter
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from penstock import Admin
from penstock import Consumer as PenstockConsumer
from penstock import TopicPartition as Place
from penstock.model import ConsumerRecord
from tests.end_to_end.importing.imports import Importer, importer_for
from tests.end_to_end.importing.kafka_broker import kafka_broker
from tests.end_to_end.local_stack import Stack
from tests.support.deadlines import until

pytestmark = pytest.mark.minutes

_RECORDS = 12_000
_KILLS = 6
_PARTITIONS = 3


@pytest.fixture(scope="module")
def importer(stack: Stack) -> Importer:
    return importer_for(stack, "importer")


@pytest.fixture(scope="module")
def mock_servers() -> Iterator[str]:
    """librdkafka's mock cluster. Its client owns it."""
    owner = Producer({"test.mock.num.brokers": 1, "log_level": 0})
    [broker] = owner.list_topics(timeout=30).brokers.values()
    yield f"{broker.host}:{broker.port}"
    del owner


def _records(stack: Stack, topic: str) -> list[ConsumerRecord]:
    with Admin(transport=stack.transport()) as admin:
        ends = {Place(topic, each): end or 0 for each, end in admin.list_offsets(topic).items()}
    found: list[ConsumerRecord] = []
    with PenstockConsumer(transport=stack.transport()) as consumer:
        consumer.assign(ends)
        consumer.seek_to_beginning(*ends)
        while any(consumer.position(each) < end for each, end in ends.items()):
            found += consumer.poll()
    return found


def _copied(admin: Admin, topic: str) -> int:
    return sum(end or 0 for end in admin.list_offsets(topic).values())


def _fill(servers: str, topic: str, *, is_transactional: bool) -> list[list[bytes]]:
    """Write numbered records, each partition's in order. Returns those that count."""
    settings = {"transactional.id": "filler"} if is_transactional else {}
    producer = Producer({"bootstrap.servers": servers, "linger.ms": 20, "log_level": 0, **settings})
    expected: list[list[bytes]] = [[] for _ in range(_PARTITIONS)]
    if is_transactional:
        producer.init_transactions(30)
    for start in range(0, _RECORDS, 100):
        if is_transactional:
            producer.begin_transaction()
        for number in range(start, start + 100):
            partition, value = number % _PARTITIONS, b"%06d" % number
            producer.produce(topic, value=value, key=b"k%d" % (number % 50), partition=partition)
            expected[partition].append(value)
        producer.poll(0)
        if is_transactional:
            producer.commit_transaction(30)
    producer.flush()
    return expected


def _produce_one(servers: str, topic: str) -> None:
    producer = Producer({"bootstrap.servers": servers, "log_level": 0})
    producer.produce(topic, value=b"followed", partition=0)
    producer.flush()


def _kill_and_finish(importer: Importer, admin: Admin, *arguments: str, topic: str, records: int) -> None:
    killed = 0
    for kill in range(1, _KILLS + 1):
        with importer.started(*arguments) as process:
            wanted = records * kill // (_KILLS + 2)
            until(
                lambda wanted=wanted, process=process: (  # type: ignore[misc]
                    _copied(admin, topic) >= wanted or process.poll() is not None
                )
            )
            killed += process.poll() is None
            process.kill()
    assert killed >= _KILLS // 2, "the copy ends before it is killed"
    importer.run(*arguments)


def _check(stack: Stack, topic: str, expected: list[list[bytes]]) -> None:
    found = _records(stack, topic)
    for partition, values in enumerate(expected):
        assert [each.value for each in found if each.partition == partition] == values


def test_copy_of_a_mock_cluster_has_each_record_once_after_kills(
    stack: Stack, admin: Admin, importer: Importer, mock_servers: str
) -> None:
    admin.create_topic("from.mock", _PARTITIONS)
    expected = _fill(mock_servers, "from.mock", is_transactional=False)
    source = f"kafka://{mock_servers}/from.mock"
    _kill_and_finish(importer, admin, source, "--partitions", "rehash", topic="from.mock", records=_RECORDS)
    with importer.started(source, "--partitions", "rehash", "--follow") as process:
        _produce_one(mock_servers, "from.mock")
        until(lambda: _copied(admin, "from.mock") == _RECORDS + 1)
        process.send_signal(signal.SIGINT)
        assert process.wait() == 0
    found = [each for each in _records(stack, "from.mock") if each.value != b"followed"]
    assert Counter(each.value for each in found) == Counter(value for values in expected for value in values)
    for key in {each.key for each in found}:
        values = [each.value or b"" for each in found if each.key == key]
        assert all(
            part == sorted(part)
            for part in ([v for v in values if int(v) % _PARTITIONS == p] for p in range(_PARTITIONS))
        )


def test_copy_of_a_broker_with_transactions_has_each_record_once_after_kills(
    stack: Stack, admin: Admin, importer: Importer
) -> None:
    with kafka_broker() as servers:
        client = AdminClient({"bootstrap.servers": servers, "log_level": 0})
        [created] = client.create_topics([NewTopic("from.broker", _PARTITIONS, 1)]).values()
        created.result(30)
        expected = _fill(servers, "from.broker", is_transactional=True)
        settings = {"group.id": "billing", "isolation.level": "read_committed", "enable.auto.commit": False}
        group = Consumer({"bootstrap.servers": servers, **settings})
        group.assign([TopicPartition("from.broker", 0, 0)])
        read = group.consume(50, 30)[-1]
        group.commit(offsets=[TopicPartition("from.broker", 0, read.offset() + 1)], asynchronous=False)
        group.close()
        assert read.offset() >= 50, "markers of transactions take offsets"
        arguments = (f"kafka://{servers}/from.broker", "--create", "--group", "billing")
        admin.create_topic("from.broker", _PARTITIONS)
        _kill_and_finish(importer, admin, *arguments, topic="from.broker", records=_RECORDS)
        _check(stack, "from.broker", expected)
        [moved] = admin.group_offsets("billing")
        assert (moved.partition, moved.offset) == (0, 50)


@pytest.mark.parametrize("is_fifo", [False, True])
def test_drain_has_each_message_once_after_kills(stack: Stack, admin: Admin, importer: Importer, is_fifo: bool) -> None:
    sqs = stack.root_client("sqs")
    name = "drained.fifo" if is_fifo else "drained"
    attributes = {"FifoQueue": "true", "ContentBasedDeduplication": "true"} if is_fifo else {}
    url = sqs.create_queue(QueueName=name, Attributes=attributes)["QueueUrl"]
    topic = "drained.in.order" if is_fifo else "drained"
    admin.create_topic(topic, _PARTITIONS)
    for start in range(0, 100, 10):
        entries = [
            {
                "Id": str(number),
                "MessageBody": f"{number:03}",
                "MessageAttributes": {"kind": {"DataType": "String", "StringValue": "order"}},
                **({"MessageGroupId": f"g{number % 7}"} if is_fifo else {}),
            }
            for number in range(start, start + 10)
        ]
        assert not sqs.send_message_batch(QueueUrl=url, Entries=entries).get("Failed")
    for kill in range(1, 4):
        with importer.started(f"sqs://{url}", "--to", topic) as process:
            until(lambda kill=kill: _copied(admin, topic) >= 20 * kill)  # type: ignore[misc]
            process.kill()

    def left() -> int:
        counts = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["All"])["Attributes"]
        return int(counts["ApproximateNumberOfMessagesNotVisible"])

    until(lambda: left() == 0)  # what the killed processes had received comes again
    importer.run(f"sqs://{url}", "--to", topic)
    found = _records(stack, topic)
    assert sorted(each.value or b"" for each in found) == [b"%03d" % number for number in range(100)]
    assert {dict(each.headers)["kind"] for each in found} == {b"order"}
    if is_fifo:
        for key in {each.key for each in found}:
            values = [each.value or b"" for each in found if each.key == key]
            assert values == sorted(values), "a group keeps its order"
