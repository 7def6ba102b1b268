"""Each transport on the deployed stack: records, groups and wake-ups meet those that came by HTTP."""

import asyncio
import threading
from collections.abc import Callable

import pytest

from penstock import Admin, AsyncConsumer, AsyncProducer, Consumer, Producer, TopicPartition
from penstock.http.named_transport import TransportName
from penstock_core.limits import MIB, SDK_SAFETY_NET_MS
from penstock_core.stack_outputs import FUNCTIONS_OUTPUT, FUNCTIONS_VARIABLE, storage_variables
from tests.end_to_end.local_stack import Stack
from tests.end_to_end.stack_storage import StackStorage

pytestmark = pytest.mark.stack
NAMES: tuple[TransportName, ...] = ("lambda", "embedded")
DEADLINE_S = 60


@pytest.fixture(autouse=True)
def _place(
    request: pytest.FixtureRequest, stack: Stack, storage: StackStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a program in the account has: credentials, and the names of the stage.

    A program that embeds has the rights of the functions, as the emulator's root key has. One that invokes has those
    of the policies for clients: the emulator's STS tells nothing of a root key that it does not verify.
    """
    embeds = request.node.callspec.params.get("name") == "embedded" if hasattr(request.node, "callspec") else True
    variables = (
        storage_variables(storage.outputs) if embeds else {FUNCTIONS_VARIABLE: storage.outputs[FUNCTIONS_OUTPUT]}
    )
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    for name in ("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_LAMBDA", "AWS_ENDPOINT_URL_STS"):
        monkeypatch.setenv(name, stack.endpoint_url)
    monkeypatch.setenv("AWS_REGION", stack.region)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test" if embeds else stack.access_key_id)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test" if embeds else stack.secret_access_key)


@pytest.mark.parametrize("name", NAMES)
def test_records_by_a_transport_are_read_by_http(stack: Stack, topic: str, name: TransportName) -> None:
    with Producer(transport=name) as producer:
        sent = [producer.send(topic, b"%d" % number, partition=0) for number in range(10)]
    assert [each.result().offset for each in sent] == list(range(10))
    with Consumer(transport=stack.transport()) as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        assert [next(consumer).value for _ in range(10)] == [b"%d" % number for number in range(10)]


@pytest.mark.minutes
@pytest.mark.parametrize("name", NAMES)
def test_group_goes_on_by_http_where_a_transport_has_committed(stack: Stack, topic: str, name: TransportName) -> None:
    with Producer(transport=name) as producer:
        for number in range(30):
            producer.send(topic, b"%d" % number, partition=number % 3)
    with Consumer(topic, group_id="g", transport=name) as consumer:
        first = [next(consumer) for _ in range(15)]
        consumer.commit()
    with Consumer(topic, group_id="g", transport=stack.transport()) as consumer:
        rest = [next(consumer) for _ in range(15)]
    assert sorted(int(each.value or b"") for each in first + rest) == list(range(30))


def _produce_soon(produce: Callable[[], None]) -> threading.Timer:
    timer = threading.Timer(2, produce)
    timer.start()
    return timer


@pytest.mark.minutes
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("reads_by_it", [True, False])
def test_append_wakes_a_consumer_of_the_other_transport(
    stack: Stack, topic: str, name: TransportName, reads_by_it: bool
) -> None:
    writer = Producer(transport=stack.transport() if reads_by_it else name, linger_ms=0)
    reader = Consumer(transport=name if reads_by_it else stack.transport())
    with writer, reader:
        reader.assign([TopicPartition(topic, 0)])
        assert not reader.poll(timeout_ms=0)
        timer = _produce_soon(lambda: writer.send(topic, b"v", partition=0).result() and None)
        records = reader.poll(timeout_ms=SDK_SAFETY_NET_MS // 2)
        timer.join()
    assert [record.value for record in records] == [b"v"]


@pytest.mark.minutes
@pytest.mark.parametrize("name", NAMES)
def test_asynchronous_clients_work_by_a_transport(topic: str, name: TransportName) -> None:
    async def main() -> list[bytes | None]:
        async with asyncio.timeout(DEADLINE_S), AsyncProducer(transport=name) as producer:
            for number in range(20):
                await producer.send(topic, b"%d" % number, partition=0)
            await producer.flush()
            async with AsyncConsumer(topic, group_id="g", transport=name) as consumer:
                return [(await anext(consumer)).value for _ in range(20)]

    assert asyncio.run(main()) == [b"%d" % number for number in range(20)]


@pytest.mark.minutes
@pytest.mark.parametrize("name", NAMES)
def test_transaction_and_delay_by_a_transport_come_to_a_reader_by_http(
    stack: Stack, topic: str, name: TransportName
) -> None:
    with Producer(transport=name, transactional_id=f"t-{name}") as producer, producer.transaction() as transaction:
        transaction.send(topic, b"in one", partition=0)
    with Producer(transport=name) as producer:
        producer.send(topic, b"later", partition=0, delay_ms=2_000).result()
    with Consumer(transport=stack.transport()) as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        assert [next(consumer).value for _ in range(2)] == [b"in one", b"later"]


@pytest.mark.minutes
def test_embedded_request_of_twelve_mebibytes_is_one_append_for_each_partition(stack: Stack, admin: Admin) -> None:
    admin.create_topic("large", partitions=4, config={"max_batch_bytes": 3 * MIB})
    value = bytes(3 * MIB - 1_000)
    with Producer(
        transport="embedded",
        compression_type="none",
        linger_ms=500,
        max_request_bytes=13 * MIB,
        batch_bytes=3 * MIB,
        buffer_bytes=16 * MIB,
    ) as producer:
        sent = [producer.send("large", value, partition=number) for number in range(4)]
    assert [each.result().offset for each in sent] == [0] * 4
    with Consumer(transport=stack.transport()) as consumer:
        consumer.assign([TopicPartition("large", number) for number in range(4)])
        assert all(next(consumer).value == value for _ in range(4))
