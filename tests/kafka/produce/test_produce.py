"""Kafka's producers against the gateway, in front of a service in memory.

Kafka's clients set the header of an expiry, and the gateway sets the flag: within a budget.
"""

import asyncio
from collections import Counter
from collections.abc import Iterator

import pytest
from aiokafka import AIOKafkaProducer
from confluent_kafka import Producer
from kafka import KafkaProducer

from penstock.testing import MemoryPenstock
from penstock_core.errors import PenstockError
from penstock_core.limits import BATCH_BYTES_MAX
from penstock_core.records.codec import NewRecord, encode
from penstock_core.records.expiry import EXPIRES_AT_HEADER
from penstock_core.records.producer_state import ProducerSequence
from penstock_core.records.record_batch import NO_TIME_MS, BatchesSummary, Compression
from penstock_kafka.checked_batches import check_crc, checked
from penstock_kafka.errors import KafkaError, RequestRefused, kafka_error
from penstock_kafka.produce.lanes import LaneKey, Lanes, PendingBatch
from tests.kafka.running_gateway import RunningGateway
from tests.support.poison import undecodable_batch
from tests.support.service import head_of

COUNT = 200


def _values(service: MemoryPenstock, partition: int = 0) -> list[bytes | None]:
    return [each.value for each in service.records("orders") if each.partition == partition]


@pytest.mark.parametrize(
    "settings",
    [
        {"enable.idempotence": False, "acks": "all"},
        {"enable.idempotence": False, "acks": "1", "compression.type": "zstd"},
        {"enable.idempotence": True, "compression.type": "lz4"},
    ],
)
def test_librdkafka_records_arrive_once_and_in_order(gateway: RunningGateway, settings: dict[str, object]) -> None:
    # Small batches, many of them on their way at once.
    producer = Producer({"bootstrap.servers": gateway.address, "linger.ms": 0, "batch.num.messages": 7, **settings})
    offsets: list[int] = []
    for number in range(COUNT):
        producer.produce(
            "orders", str(number), partition=0, on_delivery=lambda error, sent: offsets.append(error or sent.offset())
        )
    assert producer.flush(30) == 0
    assert offsets == list(range(COUNT))
    assert _values(gateway.service) == [str(number).encode() for number in range(COUNT)]


def test_librdkafka_producer_without_acks_loses_nothing(gateway: RunningGateway) -> None:
    producer = Producer({"bootstrap.servers": gateway.address, "acks": "0"})
    for number in range(10):
        producer.produce("orders", str(number), partition=1)
    producer.flush(30)
    gateway.close()
    assert len(_values(gateway.service, 1)) == 10


@pytest.mark.parametrize("is_transactional", [False, True])
@pytest.mark.parametrize("times", [(-5,), (1_700_000_000_000, -5, 1_700_000_000_000)])
def test_record_before_1970_is_refused_for_good_wherever_it_stands(
    gateway: RunningGateway, times: tuple[int, ...], is_transactional: bool
) -> None:
    settings: dict[str, object] = {"transactional.id": "t"} if is_transactional else {"compression.type": "lz4"}
    producer = Producer({"bootstrap.servers": gateway.address, "linger.ms": 200, **settings})
    if is_transactional:
        producer.init_transactions(30)
        producer.begin_transaction()
    told: list[str] = []
    for time_ms in times:
        producer.produce(
            "orders", b"v" * 100, partition=0, timestamp=time_ms, on_delivery=lambda error, _: told.append(error.name())
        )
    assert producer.flush(30) == 0
    assert set(told) == {"INVALID_TIMESTAMP"}
    assert gateway.service.records("orders") == []


@pytest.mark.parametrize("is_transactional", [False, True])
def test_compacted_topic_refuses_records_without_a_key_and_clients_learn_which(
    gateway: RunningGateway, is_transactional: bool
) -> None:
    gateway.service.create_topic("table", partitions=2, config={"cleanup_policy": "compact"})
    settings: dict[str, object] = {"transactional.id": "t"} if is_transactional else {}
    producer = Producer({"bootstrap.servers": gateway.address, "linger.ms": 200, **settings})
    if is_transactional:
        producer.init_transactions(30)
        producer.begin_transaction()
    told: Counter[tuple[int, str]] = Counter()
    for number in range(9):
        for partition in (0, 1):
            key = None if partition == 0 and number % 3 == 0 else str(number)
            producer.produce(
                "table",
                "v",
                key=key,
                partition=partition,
                on_delivery=lambda error, sent: told.update([(sent.partition(), error.name() if error else "")]),
            )
    assert producer.flush(30) == 0
    assert told == {(0, "INVALID_RECORD"): 3, (0, "_INVALID_DIFFERENT_RECORD"): 6, (1, ""): 9}
    stored = 0 if is_transactional else 9  # the client aborts
    assert [each.partition for each in gateway.service.records("table")] == [1] * stored


def test_record_without_a_time_is_taken() -> None:
    data = encode([NewRecord(NO_TIME_MS, None, b"a"), NewRecord(7, None, b"b"), NewRecord(NO_TIME_MS, None, b"c")])
    assert checked(data).summary.max_timestamp_ms == 7


def test_only_a_crc_that_differs_is_worth_a_repeat() -> None:
    data = encode([NewRecord(7, None, b"a")])
    with pytest.raises(RequestRefused) as caught:
        check_crc(data[:-1] + b"!")
    assert caught.value.code is KafkaError.corrupt_message
    with pytest.raises(PenstockError) as torn:
        checked(data[:-1])
    assert kafka_error(torn.value) is KafkaError.invalid_record


def test_kafka_python_records_arrive_with_key_headers_and_time(gateway: RunningGateway) -> None:
    producer = KafkaProducer(bootstrap_servers=gateway.address, compression_type="gzip", enable_idempotence=True)
    sent = producer.send("orders", b"v", key=b"k", headers=[("h", b"1")], timestamp_ms=1_700_000_000_000)
    placed = sent.get(30)
    producer.close()
    (record,) = gateway.service.records("orders")
    assert (record.key, record.value, record.headers) == (b"k", b"v", (("h", b"1"),))
    assert (record.timestamp_ms, record.partition, record.offset) == (1_700_000_000_000, placed.partition, 0)


def test_aiokafka_records_arrive_once(gateway: RunningGateway) -> None:
    async def run() -> None:
        async with AIOKafkaProducer(bootstrap_servers=gateway.address, enable_idempotence=True) as producer:
            await asyncio.gather(*[producer.send_and_wait("orders", b"%d" % number) for number in range(20)])

    asyncio.run(run())
    assert sorted(each.value or b"" for each in gateway.service.records("orders")) == sorted(
        b"%d" % number for number in range(20)
    )


def test_record_larger_than_the_topic_takes_is_refused_and_the_next_is_stored(gateway: RunningGateway) -> None:
    gateway.service.admin().alter_topic("orders", {"max_batch_bytes": 2_000})
    producer = Producer({"bootstrap.servers": gateway.address, "enable.idempotence": False, "batch.num.messages": 1})
    errors: list[object] = []
    for value in (b"a", b"b" * 3_000, b"c"):
        producer.produce(
            "orders", value, partition=0, on_delivery=lambda error, _: errors.append(error and error.name())
        )
    producer.flush(30)
    assert sorted(map(str, errors)) == ["MSG_SIZE_TOO_LARGE", "None", "None"]
    assert _values(gateway.service) == [b"a", b"c"]


EXPIRING = NewRecord(7, b"k", b"v" * 100, [("a", b"b"), (EXPIRES_AT_HEADER, b"1790000000000")])
PLAIN = NewRecord(7, b"k", f"{EXPIRES_AT_HEADER}".encode(), [("a", EXPIRES_AT_HEADER.encode())])


@pytest.mark.parametrize("is_transactional", [False, True])
@pytest.mark.parametrize("compression", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_header_of_a_kafka_client_gives_its_batch_the_flag_and_no_other_one(
    gateway: RunningGateway, compression: str, is_transactional: bool
) -> None:
    settings: dict[str, object] = {"transactional.id": "t"} if is_transactional else {}
    config = {"bootstrap.servers": gateway.address, "compression.type": compression, "linger.ms": 200, **settings}
    producer = Producer(config)
    if is_transactional:
        producer.init_transactions(30)
        producer.begin_transaction()
    for partition in (0, 1):
        for number in range(20):
            headers = [(EXPIRES_AT_HEADER, b"1790000000000")] if partition == 1 and number == 13 else [("a", b"b")]
            producer.produce("orders", str(number), partition=partition, headers=headers)
    if is_transactional:
        producer.commit_transaction(30)
    else:
        assert producer.flush(30) == 0
    instance = gateway.service.transport._instance
    assert not any(ref.may_expire for ref in head_of(instance, "orders", 0).tail)
    assert any(ref.may_expire for ref in head_of(instance, "orders", 1).tail)
    gateway.service.create_share_group("g", "orders")
    with gateway.service.share_consumer("orders", group_id="g") as consumer:
        found: list[bytes | None] = []
        while len(found) < 39:
            found += [record.value for record in consumer.poll()]
    assert found.count(b"13") == 1


@pytest.mark.parametrize("compression", list(Compression))
def test_flag_is_that_of_the_records(compression: Compression) -> None:
    assert checked(encode([PLAIN, EXPIRING], compression)).may_expire
    assert checked(encode([PLAIN], compression) + encode([PLAIN, EXPIRING], compression)).may_expire
    assert not checked(encode([PLAIN, PLAIN], compression)).may_expire


def test_batches_behind_the_budget_have_the_flag(monkeypatch: pytest.MonkeyPatch) -> None:
    """A flag too many costs a look, and one too few hands out an expired record."""
    monkeypatch.setattr("penstock_kafka.checked_batches.READ_DECODED_BYTES_MAX", 1)
    assert not checked(encode([PLAIN])).may_expire
    assert checked(encode([PLAIN]) + encode([PLAIN])).may_expire


def test_batch_that_cannot_be_decoded_has_no_flag() -> None:
    assert not checked(undecodable_batch()).may_expire


@pytest.fixture
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    loop = asyncio.new_event_loop()
    yield loop
    loop.close()


@pytest.fixture
def lanes() -> Lanes:
    return Lanes()


class Maker:
    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop

    def __call__(
        self, partition: int = 0, first: int | None = None, *, producer: int = 7, epoch: int = 0, size: int = 10
    ) -> PendingBatch:
        sequence = (
            None
            if first is None
            else ProducerSequence(
                producer_id=producer, epoch=epoch, first_sequence=first, last_sequence=first + 9, checksum=0
            )
        )
        summary = BatchesSummary(
            record_count=10,
            offset_span=10,
            max_timestamp_ms=0,
            batch_count=1,
            largest_batch_bytes=size,
            sequence=sequence,
        )
        key = LaneKey("t", partition, -1 if first is None else producer)
        return PendingBatch(
            key=key,
            data=b"x" * size,
            summary=summary,
            acks="quorum",
            deadline_ms=0,
            outcome=self._loop.create_future(),
            have_keys=True,
        )


@pytest.fixture
def batch(loop: asyncio.AbstractEventLoop) -> Maker:
    return Maker(loop)


def _sizes(lanes: Lanes) -> list[tuple[LaneKey, int]]:
    return [(run.key, len(run.batches)) for run in lanes.take()]


def test_one_call_takes_what_waits_in_many_lanes(lanes: Lanes, batch: Maker) -> None:
    for each in (batch(0), batch(1), batch(0)):
        lanes.put(each)
    assert _sizes(lanes) == [(LaneKey("t", 0, -1), 2), (LaneKey("t", 1, -1), 1)]


def test_lane_waits_while_its_run_is_in_a_call(lanes: Lanes, batch: Maker) -> None:
    lanes.put(batch(0, 0))
    (run,) = lanes.take()
    lanes.put(batch(0, 10))
    assert lanes.take() == []
    lanes.end(run.key)
    assert _sizes(lanes) == [(run.key, 1)]


def test_run_ends_where_sequences_do_not_follow(lanes: Lanes, batch: Maker) -> None:
    for each in (batch(0, 0), batch(0, 10), batch(0, 30), batch(0, 0, epoch=1)):
        lanes.put(each)
    taken = []
    while runs := lanes.take():
        taken.append(len(runs[0].batches))
        lanes.end(runs[0].key)
    assert taken == [2, 1, 1]


def test_two_producers_of_a_partition_go_in_two_calls(lanes: Lanes, batch: Maker) -> None:
    lanes.put(batch(0, 0, producer=1))
    lanes.put(batch(0, 0, producer=2))
    assert [each.key.producer_id for each in lanes.take()] == [1]
    assert [each.key.producer_id for each in lanes.take()] == [2]


def test_call_holds_no_more_bytes_than_the_service_takes(lanes: Lanes, batch: Maker) -> None:
    half = BATCH_BYTES_MAX // 2
    for partition in range(3):
        lanes.put(batch(partition, size=half))
    assert [len(lanes.take()), len(lanes.take())] == [2, 1]


def test_batch_that_was_put_back_goes_first_and_alone(lanes: Lanes, batch: Maker) -> None:
    for each in (batch(0), batch(0), batch(1)):
        lanes.put(each)
    first, other = lanes.take()
    lanes.put_back(first, is_alone=True)
    lanes.end(other.key)
    lanes.put(batch(1))
    assert _sizes(lanes) == [(first.key, 1)]


def test_offsets_follow_each_other_in_a_run(lanes: Lanes, batch: Maker) -> None:
    lanes.put(batch(0))
    lanes.put(batch(0))
    (run,) = lanes.take()
    run.settle(100)
    assert [each.outcome.result() for each in run.batches] == [100, 110]


def test_ready_bytes_are_those_that_no_call_has_and_whose_lane_waits_for_none(
    lanes: Lanes, loop: asyncio.AbstractEventLoop
) -> None:
    make = Maker(loop)
    lanes.put(make(0, 0, size=100))
    lanes.put(make(1, 0, size=1_000))
    assert lanes.ready_bytes == 1_100
    first, second = lanes.take()
    lanes.put(make(0, 10, size=7))
    assert lanes.ready_bytes == 0
    lanes.end(first.key)
    assert lanes.ready_bytes == 7
    lanes.put_back(second, is_alone=True)
    assert lanes.ready_bytes == 1_007
