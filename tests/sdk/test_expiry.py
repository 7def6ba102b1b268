"""Records that expire, from end to end: what producers send, and what each kind of reader returns."""

from typing import Any

import pytest

from penstock.consumer.partition_cursor import Budget, ExpirySkip, PartitionCursor
from penstock.consumer.record_run import RecordRun
from penstock.dead_letters.headers import Death, with_death
from penstock.errors import InvalidError, error_from_json
from penstock.model import ConsumerRecord, TopicPartition
from penstock.testing import MemoryPenstock
from penstock_core.limits import EXPIRES_IN_MS_MAX, MIB
from penstock_core.records.codec import Headers, NewRecord, encode
from penstock_core.records.expiry import EXPIRES_AT_HEADER, expires_at_ms
from tests.sdk.cli.command import run, run_json
from tests.sdk.client_kinds import ClientKind
from tests.support.deadlines import DEADLINE_S, until
from tests.support.expiries import EPOCH_MS, put_expiring
from tests.support.service import head_of

P0 = TopicPartition("t", 0)
DEADLINE_MS = int(DEADLINE_S * 1_000)
FAST: dict[str, Any] = {"fetch_wait_ms": 10, "wait": "poll"}


@pytest.fixture
def topic(service: MemoryPenstock) -> str:
    service.create_topic("t")
    return "t"


def flags(service: MemoryPenstock) -> list[bool]:
    return [ref.may_expire for ref in head_of(service.transport._instance, "t").tail]


def times(service: MemoryPenstock) -> list[int | None]:
    return [expires_at_ms(record.headers) for record in service.records("t")]


def values(records: Any) -> list[bytes]:
    return [record.value for record in records]


def test_producer_sends_header_and_flag_for_records_that_expire(
    clients: ClientKind, service: MemoryPenstock, topic: str
) -> None:
    before_ms = service.now_ms
    with clients.producer() as producer:
        producer.send(topic, b"a", expires_in_ms=1_000, headers={"x": b"y"}).result()
        producer.send(topic, b"b", headers={"x": b"y"}).result()
    [first, second] = service.records(topic)
    assert [name for name, _ in first.headers] == ["x", EXPIRES_AT_HEADER]
    assert before_ms + 1_000 <= (expires_at_ms(first.headers) or 0) <= service.now_ms + 1_000
    assert second.headers == (("x", b"y"),)
    assert flags(service) == [True, False]


def test_record_that_joins_an_open_batch_gives_it_the_flag(service: MemoryPenstock, topic: str) -> None:
    with service.producer(linger_ms=10_000) as producer:
        for number in range(5):
            producer.send(topic, b"%d" % number, expires_in_ms=1_000 if number == 3 else None)
        producer.flush()
    assert flags(service) == [True]


@pytest.mark.parametrize("headers", [[(EXPIRES_AT_HEADER, b"1790000000000")], {EXPIRES_AT_HEADER: b"soon"}])
def test_header_of_the_callers_own_gives_the_flag_and_is_not_checked(
    service: MemoryPenstock, topic: str, headers: Headers
) -> None:
    """A copy of a record must go through, whatever its headers are."""
    with service.producer() as producer:
        producer.send(topic, b"a", headers=headers)
    assert flags(service) == [True]


@pytest.mark.parametrize("expires_in_ms", [0, -1, 1.5, "1000", True, EXPIRES_IN_MS_MAX + 1, 10**400])
def test_wrong_duration_is_refused_and_nothing_is_sent(
    clients: ClientKind, service: MemoryPenstock, topic: str, expires_in_ms: Any
) -> None:
    with clients.producer() as producer, pytest.raises(InvalidError, match="expires_in_ms"):
        producer.send(topic, b"a", expires_in_ms=expires_in_ms)
    assert service.records(topic) == []


def test_duration_next_to_a_header_is_refused(service: MemoryPenstock, topic: str) -> None:
    with service.producer() as producer, pytest.raises(InvalidError, match="one of them"):
        producer.send(topic, b"a", expires_in_ms=1, headers={EXPIRES_AT_HEADER: b"1790000000000"})


def test_clock_of_a_test_that_lies_before_2001_is_told() -> None:
    with MemoryPenstock(start_ms=1_000) as service, service.producer() as producer:
        service.create_topic("t")
        with pytest.raises(InvalidError, match="set the clock"):
            producer.send("t", b"a", expires_in_ms=1_000)


def test_expiry_of_a_delayed_record_counts_from_its_due_time(service: MemoryPenstock, topic: str) -> None:
    due_ms = service.now_ms + 60_000
    with service.producer() as producer:
        producer.send(topic, b"a", deliver_at_ms=due_ms, expires_in_ms=1_000)
        producer.send(topic, b"b", deliver_at_ms=due_ms, expires_in_ms=3_600_000)
    service.advance_to(due_ms + 2_000)
    assert times(service) == [due_ms + 1_000, due_ms + 3_600_000]
    assert flags(service) == [True]
    service.create_share_group("g", topic)
    with service.share_consumer(topic, group_id="g") as consumer:
        assert values(consumer.poll()) == [b"b"]


def test_expiry_in_a_transaction_counts_from_send(clients: ClientKind, service: MemoryPenstock, topic: str) -> None:
    with service.producer(transactional_id="x") as producer, producer.transaction() as transaction:
        transaction.send(topic, b"a", expires_in_ms=1_000)
        sent_ms = service.now_ms
        service.advance(5_000)
    assert (times(service)[0] or 0) <= sent_ms + 1_000
    assert flags(service) == [True]


def test_share_consumer_gets_no_expired_record(service: MemoryPenstock, topic: str) -> None:
    service.create_share_group("g", topic)
    with service.producer() as producer:
        for number in range(4):
            producer.send(topic, b"%d" % number, expires_in_ms=1_000 if number % 2 else 3_600_000)
    service.advance(2_000)
    with service.share_consumer(topic, group_id="g") as consumer:
        assert values(consumer.poll()) == [b"0", b"2"]
    [partition] = service.admin().describe_share_group("g").partitions
    assert partition.expired == 2


@pytest.mark.parametrize("ordering", ["none", "key"])
def test_share_consumer_gives_back_what_expires_while_it_is_at_hand(
    service: MemoryPenstock, topic: str, ordering: str
) -> None:
    service.create_share_group("g", topic, config={"ordering": ordering, "lock_ms": 3_600_000})
    with service.producer() as producer:
        for number in range(4):
            duration_ms = 60_000 if number in (1, 2) else 3_600_000
            producer.send(topic, b"%d" % number, key=b"%d" % number, expires_in_ms=duration_ms)
    with service.share_consumer(topic, group_id="g", hold_ms_max=86_400_000) as consumer:
        until(lambda: values(consumer.poll(max_records=1)) == [b"0"])
        service.advance(61_000)
        found: list[bytes] = []

        def are_finished() -> bool:
            found.extend(values(consumer.poll(timeout_ms=100)))
            return service.admin().describe_share_group("g").partitions[0].expired == 2

        until(are_finished)
        until(lambda: found, step=lambda: found.extend(values(consumer.poll(timeout_ms=100))))
        assert found == [b"3"]


def test_share_consumer_gets_an_expired_record_of_a_batch_without_the_flag(service: MemoryPenstock, topic: str) -> None:
    """The service does not finish it, so it would come again for ever."""
    service.create_share_group("g", topic)
    put_expiring(service.transport._instance, service.now_ms - 1_000, topic=topic, may_expire=False)
    with service.share_consumer(topic, group_id="g") as consumer:
        assert values(consumer.poll(timeout_ms=5_000)) == [b"0"]


def test_consumer_skips_expired_records_and_counts_them(
    clients: ClientKind, service: MemoryPenstock, topic: str
) -> None:
    with service.producer() as producer:
        for number in range(6):
            producer.send(topic, b"%d" % number, expires_in_ms=None if number == 2 else 1_000 * (1 + number % 2 * 100))
    service.advance(5_000)
    found: list[bytes] = []

    def is_at_end() -> bool:
        found.extend(values(consumer.poll()))
        return bool(consumer.assignment()) and consumer.position(P0) == 6

    with clients.consumer(topic, skip_expired=True, **FAST) as consumer:
        until(is_at_end)
        assert consumer.skipped_expired() == {P0: 2}
    assert found == [b"1", b"2", b"3", b"5"]
    with clients.consumer(topic, **FAST) as consumer:
        assert len(consumer.poll(timeout_ms=5_000)) == 6
        assert consumer.skipped_expired() == {}


def test_member_of_a_group_commits_behind_what_it_skips(
    clients: ClientKind, service: MemoryPenstock, topic: str
) -> None:
    with service.producer() as producer:
        for _ in range(10):
            producer.send(topic, b"v", expires_in_ms=1_000)
    service.advance(2_000)

    def is_at_end() -> bool:
        assert consumer.poll() == []
        return bool(consumer.assignment()) and consumer.position(P0) == 10

    with clients.consumer(topic, group_id="g", skip_expired=True, **FAST) as consumer:
        until(is_at_end)
    [partition] = service.admin().describe_group("g").partitions
    assert (partition.offset, partition.lag) == (10, 0)


def test_iteration_returns_no_record_whose_time_ends_while_it_is_at_hand(
    clients: ClientKind, service: MemoryPenstock, topic: str
) -> None:
    with service.producer() as producer:
        for number in range(4):
            producer.send(topic, b"%d" % number, expires_in_ms=60_000 if number in (1, 2) else 3_600_000)
    with clients.consumer(topic, skip_expired=True, consumer_timeout_ms=500, **FAST) as consumer:
        records = iter(consumer)
        assert next(records).value == b"0"
        service.advance(61_000)
        assert values(records) == [b"3"]
        assert consumer.skipped_expired() == {P0: 2}
        assert consumer.position(P0) == 4


def test_poll_after_iteration_returns_no_record_whose_time_has_ended(
    clients: ClientKind, service: MemoryPenstock, topic: str
) -> None:
    with service.producer() as producer:
        for number in range(5):
            producer.send(topic, b"%d" % number, expires_in_ms=60_000 if number in (2, 4) else 3_600_000)
    with clients.consumer(topic, skip_expired=True, **FAST) as consumer:
        assert next(iter(consumer)).value == b"0"
        service.advance(61_000)
        found: list[bytes] = []
        until(lambda: consumer.position(P0) == 5, step=lambda: found.extend(values(consumer.poll(timeout_ms=10))))
        assert found == [b"1", b"3"]
        assert consumer.skipped_expired() == {P0: 2}


class _Noted:
    """Notes the values that count as received."""

    def __init__(self) -> None:
        self.values: list[Any] = []

    def now_ns(self) -> int:
        return 0

    def received(self, records: Any, *_: int) -> None:
        self.values += values(records)


def test_record_that_expires_at_hand_is_noted_as_received_by_nobody() -> None:
    over_ms, noted = EPOCH_MS + 60_000, _Noted()
    buffer: Any = None
    notes: Any = noted
    run = RecordRun(buffer, notes, ExpirySkip(lambda: over_ms))
    expiring = ((EXPIRES_AT_HEADER, b"%d" % over_ms),)
    run.fill(
        [
            ConsumerRecord("t", 0, offset, EPOCH_MS, None, b"%d" % offset, expiring if offset in (0, 2, 4) else ())
            for offset in range(6)
        ]
    )
    run.pass_expired()
    assert values(run.take(2)) == [b"1", b"3"]
    assert values(run.take(9)) == [b"5"]
    run.note_returned()
    assert noted.values == [b"1", b"3", b"5"]


def test_one_take_decodes_no_more_skipped_records_than_it_may_return() -> None:
    times: list[int] = []

    def now_ms() -> int:
        times.append(0)
        return EPOCH_MS + 60_000

    cursor = PartitionCursor(P0, None, ExpirySkip(now_ms))
    cursor.position = 0
    expiring = [(EXPIRES_AT_HEADER, b"%d" % EPOCH_MS)]
    cursor.add(memoryview(encode([NewRecord(EPOCH_MS, None, b"v" * 10, expiring)] * 20)), 20)
    assert cursor.take(Budget(6, MIB)) == []
    assert (len(times), cursor.position) == (6, 6)
    assert cursor.take(Budget(100, 1)) == []
    assert (len(times), cursor.position) == (7, 7)
    assert cursor.take(Budget(100, MIB)) == []
    assert (len(times), cursor.position, cursor.has_records) == (20, 20, False)


def test_consumer_that_skips_more_than_a_poll_may_hold_goes_on_at_once(
    clients: ClientKind, service: MemoryPenstock, topic: str
) -> None:
    with service.producer() as producer:
        for number in range(40):
            producer.send(topic, b"%d" % number, expires_in_ms=None if number in (30, 39) else 1_000)
    service.advance(2_000)
    with clients.consumer(topic, skip_expired=True, max_poll_records=3, **FAST) as consumer:
        assert values(consumer.poll(timeout_ms=DEADLINE_MS)) == [b"30"]
        assert next(iter(consumer)).value == b"39"
        assert consumer.skipped_expired() == {P0: 38}


def test_headers_that_are_no_time_are_not_skipped(service: MemoryPenstock, topic: str) -> None:
    with service.producer() as producer:
        producer.send(topic, b"a", headers={EXPIRES_AT_HEADER: b"1000000000"})
    with service.consumer(topic, skip_expired=True) as consumer:
        assert values(consumer.poll(timeout_ms=5_000)) == [b"a"]


@pytest.mark.parametrize("value", [1, "yes", None])
def test_setting_that_is_no_boolean_is_refused(service: MemoryPenstock, value: Any) -> None:
    with pytest.raises(InvalidError, match="skip_expired"):
        service.consumer("t", skip_expired=value)


def test_dead_letter_of_a_plain_consumer_does_not_expire() -> None:
    headers = with_death(((EXPIRES_AT_HEADER, b"1790000000000"),), Death(topic="t"))
    assert ("penstock.dead-letter.expires-at", b"1790000000000") in headers
    assert expires_at_ms(headers) is None


def test_commands_send_and_skip(service: MemoryPenstock, topic: str) -> None:
    transport = service.transport
    for options, line in (
        (["--header", f"{EXPIRES_AT_HEADER}=1000000000000"], "soon"),
        (["--expires-in", "1h"], "late"),
    ):
        assert run_json(transport, "produce", topic, line, *options)["records"] == 1
    assert (times(service)[1] or 0) >= service.now_ms + 3_500_000
    shown = run(transport, "consume", topic, "--timeout", "200ms", "--skip-expired")
    assert shown.stdout == "late\n"
    assert "skipped 1 expired record of t[0]" in shown.stderr
    assert run(transport, "consume", topic, "--timeout", "200ms").stdout == "soon\nlate\n"
    for duration in ("0s", "11000d", "soon"):
        assert run(transport, "produce", topic, "line", "--expires-in", duration).exit_code != 0


def test_commands_tell_how_many_expired(service: MemoryPenstock, topic: str) -> None:
    service.create_share_group("g", topic)
    with service.producer() as producer:
        producer.send(topic, b"a", expires_in_ms=1_000)
    service.advance(2_000)
    with service.share_consumer(topic, group_id="g") as consumer:
        assert consumer.poll(timeout_ms=1_000) == []
    assert "; 1 expired" in run(service.transport, "share-groups", "describe", "g").stdout
    assert run_json(service.transport, "share-groups", "describe", "g")["partitions"][0]["expired"] == 1


def test_error_of_a_stage_that_does_not_know_the_flag_names_the_way_out() -> None:
    told = {"code": "INVALID_REQUEST", "message": "unknown field 'may_expire': known are topic, partition, length"}
    assert "deploy the stage first" in error_from_json(told, 400).message
    other = {**told, "message": "unknown field 'x': known are topic"}
    assert error_from_json(other, 400).message == other["message"]
