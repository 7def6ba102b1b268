"""The promises of every transport: the same answers, errors and guarantees, whatever carries a request.

Both kinds of clients run each test. tests/end_to_end/test_transports.py does the same on the deployed stack.
"""

from collections.abc import Iterator

import pytest

from penstock import Admin, TopicPartition
from penstock.errors import AccessDeniedError, InvalidError, UnknownTopicError
from penstock.http.transport import Transport
from penstock_core.acls.tokens import AclSettings
from penstock_core.limits import REQUEST_BYTES_MAX
from penstock_service.adapters.memory.service import memory_instance
from penstock_service.instance.instance import Instance
from tests.sdk.client_kinds import ClientKind, EventLoop, Threads, running_loop
from tests.sdk.http.faulty_transport import FaultyTransport, lost_answer
from tests.support.carriers import CARRIERS

TOPIC = "orders"
FIRST = TopicPartition(TOPIC, 0)


@pytest.fixture
def instance() -> Instance:
    return memory_instance()


@pytest.fixture(params=CARRIERS)
def carrier(request: pytest.FixtureRequest, instance: Instance) -> Transport:
    return CARRIERS[request.param](instance)


@pytest.fixture(params=["threads", "asyncio"])
def clients(request: pytest.FixtureRequest, carrier: Transport) -> Iterator[ClientKind]:
    Admin(transport=carrier).create_topic(TOPIC, partitions=2)
    if request.param == "threads":
        yield Threads(carrier)
    else:
        with running_loop() as loop:
            yield EventLoop(carrier, loop)


def test_records_come_back_in_order_by_every_transport(clients: ClientKind) -> None:
    with clients.producer() as producer:
        sent = [producer.send(TOPIC, b"%d" % number, partition=0) for number in range(20)]
    assert [each.result().offset for each in sent] == list(range(20))
    with clients.consumer() as consumer:
        consumer.assign([FIRST])
        values = [record.value for _, record in zip(range(20), consumer, strict=False)]
    assert values == [b"%d" % number for number in range(20)]


def test_repeat_after_a_lost_answer_appends_once_by_every_transport(carrier: Transport, clients: ClientKind) -> None:
    faulty = FaultyTransport(carrier)
    faulty.faults["/v1/produce"] = [lost_answer]
    with clients.producer(transport=faulty, retry_backoff_ms=1) as producer:
        sent = producer.send(TOPIC, b"once", partition=0)
    assert sent.result().offset == 0
    assert Admin(transport=carrier).list_offsets(TOPIC)[0] == 1


def test_group_goes_on_at_its_commit_by_every_transport(clients: ClientKind) -> None:
    with clients.producer() as producer:
        for number in range(4):
            producer.send(TOPIC, b"%d" % number, partition=0)
    with clients.consumer(TOPIC, group_id="g") as consumer:
        first = [next(consumer).value for _ in range(2)]
        consumer.commit()
    with clients.consumer(TOPIC, group_id="g") as consumer:
        rest = [next(consumer).value for _ in range(2)]
    assert first + rest == [b"0", b"1", b"2", b"3"]


def test_transaction_is_visible_at_once_by_every_transport(carrier: Transport) -> None:
    Admin(transport=carrier).create_topic(TOPIC)
    clients = Threads(carrier)
    with clients.producer(transactional_id="t") as producer, producer.transaction() as transaction:
        transaction.send(TOPIC, b"a", partition=0)
        transaction.send(TOPIC, b"b", partition=0)
    with clients.consumer() as consumer:
        consumer.assign([FIRST])
        assert [next(consumer).value for _ in range(2)] == [b"a", b"b"]


def test_error_keeps_its_class_and_its_doubt_by_every_transport(carrier: Transport) -> None:
    with pytest.raises(UnknownTopicError) as refused:
        Admin(transport=carrier).describe_topic("away")
    assert not refused.value.maybe_applied


def test_record_of_four_mebibytes_is_refused_with_its_bound_by_every_transport(clients: ClientKind) -> None:
    with clients.producer(compression_type="none") as producer, pytest.raises(InvalidError):
        producer.send(TOPIC, bytes(REQUEST_BYTES_MAX + 1), partition=0).result()


@pytest.mark.parametrize("name", CARRIERS)
def test_default_deny_refuses_by_every_transport(name: str) -> None:
    strict = memory_instance(acl_settings=AclSettings(allows_by_default=False))
    with pytest.raises(AccessDeniedError):
        Admin(transport=CARRIERS[name](strict)).create_topic(TOPIC)
