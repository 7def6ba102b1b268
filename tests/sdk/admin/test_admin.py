import pytest

from penstock.admin.admin import Admin
from penstock.errors import (
    AccessDeniedError,
    ConflictError,
    ConnectionFailedError,
    InvalidError,
    NotFoundError,
    OffsetOutOfRangeError,
    TopicExistsError,
    UnavailableError,
    UnknownTopicError,
)
from penstock.model import PartitionOffsets, TopicPartition
from penstock.model.push import TopicUser
from penstock.testing import MemoryPenstock
from tests.sdk.http.faulty_transport import FaultyTransport, answer, lost_answer, lost_request


@pytest.fixture
def orders(service: MemoryPenstock) -> str:
    service.create_topic("orders", partitions=2)
    with service.producer() as producer:
        for number in range(5):
            producer.send("orders", b"v", partition=0, timestamp_ms=1_000 + number)
    return "orders"


def test_topic_is_created_listed_and_described(service: MemoryPenstock, orders: str) -> None:
    created = service.create_topic("b", partitions=3, config={"max_batch_bytes": 5_000})
    admin = service.admin()
    assert [topic.name for topic in admin.list_topics()] == ["b", "orders"]
    assert (created.partitions, created.config["max_batch_bytes"]) == (3, 5_000)
    offsets = admin.describe_topic(orders).offsets
    stored = offsets[0].stored_bytes
    assert stored is not None
    assert stored > 0
    assert offsets == (
        PartitionOffsets(partition=0, log_start_offset=0, high_watermark=5, state="active", stored_bytes=stored),
        PartitionOffsets(partition=1, log_start_offset=0, high_watermark=0, state="active", stored_bytes=0),
    )


def test_list_is_refused_when_it_has_more_pages_than_a_client_reads(
    faulty: FaultyTransport, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.api.calls.SDK_PAGES_MAX", 3)
    faulty.faults["/v1/topics"] = [answer(200, b'{"topics": [], "next_after": "x"}')] * 4
    with pytest.raises(UnavailableError, match="more than 3 pages"):
        Admin(transport=faulty).list_topics()
    assert faulty.count("/v1/topics") == 3


def test_topic_that_exists_is_refused(service: MemoryPenstock, orders: str) -> None:
    with pytest.raises(TopicExistsError):
        service.create_topic(orders)


def test_topic_is_altered_and_grows(service: MemoryPenstock, orders: str) -> None:
    admin = service.admin()
    default = admin.describe_topic(orders).topic.config["max_batch_bytes"]
    assert admin.alter_topic(orders, {"max_batch_bytes": 9_999}).config["max_batch_bytes"] == 9_999
    assert admin.alter_topic(orders, {"max_batch_bytes": None}).config["max_batch_bytes"] == default
    assert admin.add_partitions(orders, 4).partitions == 4
    with pytest.raises(InvalidError, match="set_partitions"):
        admin.add_partitions(orders, 3)
    drained = admin.set_partitions(orders, 3)
    assert (drained.partitions, drained.writable_partitions) == (4, 3)
    assert [each.state for each in admin.describe_topic(orders).offsets] == ["active"] * 3 + ["draining"]
    with pytest.raises(InvalidError):
        admin.alter_topic(orders, {"nothing": 1})


def test_deleted_topic_is_unknown(service: MemoryPenstock, orders: str) -> None:
    service.admin().delete_topic(orders)
    with pytest.raises(UnknownTopicError):
        service.admin().describe_topic(orders)


def test_users_of_a_topic_are_told(service: MemoryPenstock, orders: str) -> None:
    admin = service.admin()
    service.create_topic("copy")
    admin.create_share_group("pack", orders)
    admin.put_subscription("mirror", orders, {"topic": "copy"})
    assert admin.topic_users(orders) == [
        TopicUser(kind="share group", name="pack", use="reads"),
        TopicUser(kind="subscription", name="mirror", use="reads"),
    ]
    assert admin.topic_users("copy") == [TopicUser(kind="subscription", name="mirror", use="target")]
    assert admin.topic_users("other") == []


def test_offsets_are_listed_by_place_and_time(service: MemoryPenstock, orders: str) -> None:
    admin = service.admin()
    assert admin.list_offsets(orders) == {0: 5, 1: 0}
    assert admin.list_offsets(orders, "earliest") == {0: 0, 1: 0}
    assert admin.list_offsets(orders, 1_003) == {0: 3, 1: None}


def test_truncate_moves_the_log_start_and_refuses_the_future(service: MemoryPenstock, orders: str) -> None:
    admin = service.admin()
    assert admin.truncate(orders, {0: 3}) == {0: 3}
    assert [record.offset for record in service.records(orders)] == [3, 4]
    with pytest.raises(OffsetOutOfRangeError):
        admin.truncate(orders, {0: 6})


def test_group_offsets_are_set_also_backwards(service: MemoryPenstock, orders: str) -> None:
    admin = service.admin()
    assert admin.group_offsets("g") == []
    with service.producer() as producer:
        for number in range(4):
            producer.send(orders, str(number), partition=0)
    admin.commit_group_offsets("g", {TopicPartition(orders, 0): 4, TopicPartition(orders, 1): 0}, metadata="m")
    with pytest.raises(ConflictError, match="behind the committed 4"):
        admin.commit_group_offsets("g", {TopicPartition(orders, 0): 2})
    admin.commit_group_offsets("g", {TopicPartition(orders, 0): 2}, may_go_back=True)
    assert [(each.partition, each.offset, each.metadata) for each in admin.group_offsets("g", orders)] == [
        (0, 2, ""),
        (1, 0, "m"),
    ]


def test_commit_is_refused_when_the_topic_does_not_exist(service: MemoryPenstock, orders: str) -> None:
    with pytest.raises(NotFoundError):
        service.admin().commit_group_offsets("g", {TopicPartition(orders, 7): 1})


def test_names_that_could_be_other_paths_never_leave(faulty: FaultyTransport) -> None:
    for name in ("..", "a/b", "a?b", ""):
        with pytest.raises(InvalidError):
            Admin(transport=faulty).describe_topic(name)
    assert faulty.calls == []


def test_read_is_tried_again_on_any_passing_failure(faulty: FaultyTransport, orders: str) -> None:
    faulty.faults["/v1/topics/orders"] = [lost_request, lost_answer, answer(503)]
    assert Admin(transport=faulty).describe_topic(orders).topic.name == orders


def test_create_is_tried_again_only_when_it_was_certainly_not_applied(faulty: FaultyTransport) -> None:
    faulty.faults["/v1/topics"] = [lost_request]
    assert Admin(transport=faulty).create_topic("a").name == "a"
    faulty.faults["/v1/topics"] = [lost_answer]
    with pytest.raises(ConnectionFailedError) as caught:
        Admin(transport=faulty).create_topic("b")
    assert caught.value.maybe_applied
    assert Admin(transport=faulty).describe_topic("b").topic.name == "b"


def test_refusal_is_not_tried_again(faulty: FaultyTransport, orders: str) -> None:
    faulty.faults["/v1/topics/orders"] = [answer(403, b'{"message":"Forbidden"}')]
    with pytest.raises(AccessDeniedError):
        Admin(transport=faulty).describe_topic(orders)
    assert len(faulty.calls) == 1


def test_zone_is_taken_out_and_let_in(service: MemoryPenstock) -> None:
    admin = service.admin()
    assert admin.take_zone_out("b", "disk work").state == "taken_out"
    assert [zone.state for zone in admin.list_zones()] == ["in_sync", "taken_out", "in_sync"]
    with pytest.raises(ConflictError):
        admin.take_zone_out("a")
    with pytest.raises(NotFoundError):
        admin.take_zone_out("a/b")
    assert admin.let_zone_in("b").state == "catching_up"


def test_topic_that_wants_more_zones_than_are_in_sync_is_unavailable() -> None:
    with MemoryPenstock(inline_bytes_max=0) as service:
        service.create_topic("strict", config={"min_insync_zones": 3})
        service.admin().take_zone_out("b")
        body = b'{"records": [{"value": "x"}]}'
        refused = service.transport.call("POST", "/v1/topics/strict/records", {}, {}, body)
    assert (refused.status, refused.headers["Retry-After"]) == (503, "1")
    assert b"NOT_ENOUGH_ZONES" in refused.body


def test_topic_that_exists_will_do_when_asked(service: MemoryPenstock) -> None:
    made = service.create_topic("orders.again", partitions=2)
    assert service.create_topic("orders.again", partitions=5, config={"retention_ms": 60_000}, exist_ok=True) == made
    assert service.create_topic("orders.new", exist_ok=True).name == "orders.new"
    with pytest.raises(TopicExistsError):
        service.create_topic("orders.new")
