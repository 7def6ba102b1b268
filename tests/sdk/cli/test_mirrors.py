"""`penstock mirrors`, with two services in memory."""

import time
from collections.abc import Iterator

import pytest

from penstock.cli import mirrors
from penstock.cli.service import time_text
from penstock.errors import ConflictError, NotConfiguredError
from penstock.http.transport import StagesTransport
from penstock.model import TopicPartition
from penstock.producer.producer import Producer
from penstock.testing import MemoryPenstock
from penstock_core.errors import ErrorCode
from tests.sdk.cli.command import run, run_json
from tests.sdk.group.test_stages import Line
from tests.support.service import Killed

URL, SOURCE = "https://b.example", "https://a.example"
CREATE = ("mirrors", "create", "dr", "orders", "--to", URL, "--source", SOURCE)


@pytest.fixture
def other(service: MemoryPenstock, monkeypatch: pytest.MonkeyPatch) -> Iterator[MemoryPenstock]:
    service.create_topic("orders", partitions=2)
    with MemoryPenstock() as found:
        service.add_stage(URL, found)
        stages = {URL: found.transport, SOURCE: service.transport}
        monkeypatch.setattr(mirrors, "open_transport", lambda url, _: stages[url])

        def push(_: float) -> None:
            service.deliver_pushes()
            found.deliver_pushes()

        monkeypatch.setattr(time, "sleep", push)
        yield found


def create_with_records(service: MemoryPenstock, *values: bytes) -> None:
    run_json(service.transport, *CREATE)
    with service.producer() as producer:
        for value in values:
            producer.send("orders", value=value, partition=0)


def send(side: MemoryPenstock, value: bytes) -> int:
    with side.producer() as producer:
        return producer.send("orders", value=value, partition=0).result().offset


def test_planned_promotion_waits_for_the_rest_and_loses_nothing(service: MemoryPenstock, other: MemoryPenstock) -> None:
    create_with_records(service, b"a")
    service.deliver_pushes()
    send(service, b"b")
    told = run_json(other.transport, "mirrors", "promote", "orders", "--dry-run")
    assert [each["lag"] for each in told["orders"]["partitions"]] == [1, 0]
    assert "dry run" in run(other.transport, "mirrors", "promote", "orders", "--dry-run").stdout
    send(service, b"c")
    late = run(other.transport, "mirrors", "promote", "orders", "--yes", "--wait", "0")
    assert late.exit_code == 1
    assert "2 records" in late.stderr
    with pytest.raises(ConflictError, match=URL) as caught:
        send(service, b"x")
    assert caught.value.code is ErrorCode.MOVED
    promoted = run(other.transport, "mirrors", "promote", "orders", "--yes")
    assert promoted.exit_code == 0, promoted.output
    assert "2 records behind" in promoted.stderr
    assert [each.value for each in other.records("orders")] == [b"a", b"b", b"c"]
    assert send(other, b"d") == 3
    assert service.admin().describe_topic("orders").topic.move == {
        "move": 1, "state": "moved", "mirror": "dr", "url": URL, "topic": "orders"
    }  # fmt: skip
    refused = run(service.transport, "mirrors", "reopen", "orders", "--yes")
    assert refused.exit_code == 1
    assert "promote" in refused.stderr.lower()


def test_lag_last_success_state_and_epoch_are_told(service: MemoryPenstock, other: MemoryPenstock) -> None:
    create_with_records(service, b"a")
    service.deliver_pushes()
    send(service, b"b")
    [mirror] = run_json(service.transport, "mirrors", "list")["pushes"]
    [orders] = mirror["mirrored"]
    state = service.admin().describe_subscription("dr").partitions[0]
    assert state.succeeded_ms
    assert orders == {
        "topic": "orders",
        "name_there": "orders",
        "state": "mirroring",
        "epoch": 0,
        "lag": 1,
        "oldest_age_ms": orders["oldest_age_ms"],
        "succeeded_ms": state.succeeded_ms,
    }
    assert orders["oldest_age_ms"] >= 0
    described = run_json(service.transport, "mirrors", "describe", "dr")
    assert [(each["lag"], each["epoch"]) for each in described["mirrored"]] == [(1, 0)]
    assert time_text(state.succeeded_ms) in run(service.transport, "mirrors", "describe", "dr").stdout
    assert run(other.transport, "mirrors", "promote", "orders", "--yes").exit_code == 0
    [moved] = run_json(service.transport, "mirrors", "describe", "dr")["mirrored"]
    assert (moved["state"], moved["epoch"], moved["lag"], moved["oldest_age_ms"]) == ("moved", 1, 0, None)
    service.admin().pause_subscription("dr")
    assert "paused" in run(service.transport, "mirrors", "list").stdout


def test_move_is_given_up(service: MemoryPenstock, other: MemoryPenstock) -> None:
    create_with_records(service, b"a")
    service.deliver_pushes()
    service.admin().move_topic("orders", "dr")
    assert run_json(service.transport, "mirrors", "reopen", "orders", "--yes") == {"reopened": ["orders"]}
    assert run(service.transport, "mirrors", "reopen", "orders", "--yes").exit_code == 0, "a repeat"
    assert send(service, b"b") == 1
    service.admin().move_topic("orders", "dr")
    assert run(service.transport, "mirrors", "reopen", "orders", "--mirror-lost", "--yes").exit_code == 0
    assert send(service, b"c") == 2
    other.create_topic("own")
    assert run(other.transport, "mirrors", "reopen", "own", "--yes").exit_code == 1


def test_reopening_that_ended_in_the_middle_asks_the_mirror_again(
    service: MemoryPenstock, other: MemoryPenstock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first call had --mirror-lost, so no mirror had refused: one log under one name would take appends twice."""
    create_with_records(service, b"a")
    service.deliver_pushes()
    service.admin().move_topic("orders", "dr")
    assert run(other.transport, "mirrors", "promote", "orders", "--source-lost", "--yes").exit_code == 0
    log = service._instance.stores.log

    def die(*_: object) -> None:
        raise Killed

    with monkeypatch.context() as dying:
        dying.setattr(type(log), "reopen", die)
        with pytest.raises(Killed):
            service.admin().reopen_topic("orders", 1, is_mirror_lost=True)
    refused = run(service.transport, "mirrors", "reopen", "orders", "--yes")
    assert refused.exit_code == 1, refused.output
    with pytest.raises(ConflictError):
        send(service, b"b")
    assert run(service.transport, "mirrors", "reopen", "orders", "--mirror-lost", "--yes").exit_code == 0
    assert send(service, b"b") == 1


def test_source_that_is_not_told_must_be_given(service: MemoryPenstock, other: MemoryPenstock) -> None:
    run_json(service.transport, "mirrors", "create", "dr", "orders", "--to", URL)
    service.deliver_pushes()
    send(service, b"a")
    service.deliver_pushes()
    assert "--source URL" in run(other.transport, "mirrors", "promote", "orders", "--yes").stderr
    dry = run(other.transport, "mirrors", "promote", "orders", "--source-lost", "--dry-run")
    assert "orders: the source has told no offsets of groups" in dry.stdout
    assert run(other.transport, "mirrors", "promote", "orders", "--source", SOURCE, "--yes").exit_code == 0


def places_of(side: MemoryPenstock) -> list[tuple[int, int, bytes | None]]:
    return [(each.partition, each.offset, each.value) for each in side.records("orders")]


def test_topic_is_mirrored_and_promoted(service: MemoryPenstock, other: MemoryPenstock) -> None:
    made = run_json(service.transport, *CREATE)
    assert made["target"] == {"stage": {"url": URL, "source": "https://a.example"}}
    with service.producer() as producer:
        for number in range(20):
            producer.send("orders", value=str(number).encode(), key=str(number).encode())
    service.deliver_pushes()
    places = [
        [(each.partition, each.offset, each.value) for each in side.records("orders")] for side in (service, other)
    ]
    assert places[0] == places[1]
    assert len(places[0]) == 20
    described = run_json(service.transport, "mirrors", "describe", "dr")
    assert (described["lag"], len(described["partitions"])) == (0, 2)
    assert (
        "dr (active) mirrors orders to https://b.example" in run(service.transport, "mirrors", "describe", "dr").stdout
    )
    assert run_json(service.transport, "mirrors", "list")["pushes"][0]["name"] == "dr"
    [mirrored] = run_json(other.transport, "mirrors", "list")["mirrored"]
    assert mirrored == {
        "topic": "orders",
        "mirror": {
            "name": "dr",
            "topic_id": service.admin().describe_topic("orders").topic.topic_id,
            "source": "https://a.example",
        },
    }
    assert "takes" in run(other.transport, "mirrors", "list").stdout
    refused = run(other.transport, "topics", "delete", "orders", "--yes")
    assert refused.exit_code == 1
    assert "https://a.example" in refused.stderr
    promoted = run_json(other.transport, "mirrors", "promote", "orders", "--source-lost", "--yes")
    partitions = promoted["orders"]["partitions"]
    assert sum(each["promoted_at"] for each in partitions) == 20
    with other.producer() as producer:
        assert producer.send("orders", value=b"own", partition=0).result().offset == partitions[0]["promoted_at"]
    assert run(other.transport, "mirrors", "promote", "orders", "--yes").exit_code == 0, "a repeat asks no source"
    assert run_json(service.transport, "mirrors", "delete", "dr", "--yes") == {"deleted": "dr"}


def test_mirror_begins_anew(service: MemoryPenstock, other: MemoryPenstock) -> None:
    run_json(service.transport, *CREATE, "--prefix", "eu.")
    with service.producer() as producer:
        producer.send("orders", value=b"a", partition=0)
    service.deliver_pushes()
    before = other.admin().describe_topic("eu.orders").topic.topic_id
    assert run_json(other.transport, "mirrors", "resync", "eu.orders", "--yes") == {"resynced": "eu.orders"}
    assert run(other.transport, "mirrors", "resync", "eu.orders", "--yes").exit_code == 1
    run_json(service.transport, "subscriptions", "resume", "dr")
    service.deliver_pushes()
    assert [each.value for each in other.records("eu.orders")] == [b"a"]
    assert other.admin().describe_topic("eu.orders").topic.topic_id != before


def test_subscription_is_no_mirror(service: MemoryPenstock, other: MemoryPenstock) -> None:
    assert other.admin().list_topics() == []
    service.create_topic("copies")
    run_json(service.transport, "subscriptions", "create", "copying", "orders", "--topic", "copies")
    for command in (("describe",), ("delete", "--yes")):
        assert run(service.transport, "mirrors", command[0], "copying", *command[1:]).exit_code == 1
    assert run(service.transport, "mirrors", "promote", "orders", "--yes").exit_code == 1


@pytest.mark.parametrize(
    ("option", "value", "told"),
    [
        ("--to", "nonsense", "target.stage.url"),
        ("--role", "nobody", "target.stage.role"),
        ("--to-region", "somewhere", "target.stage.region"),
        ("--prefix", "a b", "a b"),
    ],
)
def test_bad_stage_is_refused(
    service: MemoryPenstock, other: MemoryPenstock, option: str, value: str, told: str
) -> None:
    assert other.admin().list_topics() == []
    arguments = ["mirrors", "create", "dr", "orders", "--to", URL, option, value]
    refused = run(service.transport, *arguments)
    assert refused.exit_code == 1
    assert told in refused.stderr


def test_producer_of_both_stages_goes_on_where_appends_are_taken(
    service: MemoryPenstock, other: MemoryPenstock, caplog: pytest.LogCaptureFixture
) -> None:
    create_with_records(service, b"0")
    service.deliver_pushes()
    stages = StagesTransport([SOURCE, URL], [service.transport, other.transport])
    with Producer(transport=stages, retry_backoff_max_ms=100) as producer:
        sent = [producer.send("orders", value=b"1", partition=0).result().offset]
        service.admin().move_topic("orders", "dr")
        waits = producer.send("orders", value=b"2", partition=0)
        service.deliver_pushes()
        with pytest.raises(TimeoutError):
            waits.result(timeout=0.3)
        run_json(other.transport, "mirrors", "promote", "orders", "--yes")
        sent += [waits.result().offset, producer.send("orders", value=b"3", partition=0).result().offset]
    assert sent == [1, 2, 3]
    assert [each.value for each in other.records("orders")] == [b"0", b"1", b"2", b"3"]
    assert f"going on at {URL}" in caplog.text


def test_urls_are_a_list_without_another_transport(service: MemoryPenstock, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(NotConfiguredError):
        Producer(urls=SOURCE)
    with pytest.raises(NotConfiguredError):
        Producer(urls=[])
    with pytest.raises(NotConfiguredError):
        Producer(URL, urls=[SOURCE])
    with pytest.raises(NotConfiguredError):
        Producer(urls=[SOURCE], transport=service.transport)
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "test")
    Producer(urls=[SOURCE, URL], region="eu-west-1", transport="http").close()


def test_offsets_of_groups_come_along_and_do_not_go_back(service: MemoryPenstock, other: MemoryPenstock) -> None:
    create_with_records(service, b"0", b"1", b"2")
    service.deliver_pushes()
    place = TopicPartition("orders", 0)
    service.admin().commit_group_offsets("billing", {place: 2})
    service.admin().commit_group_offsets("ahead", {place: 1})
    other.admin().commit_group_offsets("ahead", {place: 3})
    assert run(other.transport, "mirrors", "promote", "orders", "--yes").exit_code == 0
    offsets = {group: other.admin().group_offsets(group)[0].offset for group in ("billing", "ahead")}
    assert offsets == {"billing": 2, "ahead": 3}
    service.admin().commit_group_offsets("billing", {place: 3})
    copied = run_json(other.transport, "mirrors", "copy-offsets", "orders", "--source", SOURCE)
    assert copied == {"copied": 1}
    assert other.admin().group_offsets("billing")[0].offset == 3, "readers have gone on at the source"


def test_groups_go_on_by_what_a_lost_source_has_told(service: MemoryPenstock, other: MemoryPenstock) -> None:
    create_with_records(service, b"0", b"1", b"2")
    place = TopicPartition("orders", 0)
    for group, offset in (("billing", 2), ("ahead", 1), ("busy", 1)):
        service.admin().commit_group_offsets(group, {place: offset}, metadata="m")
    service.deliver_pushes()
    service.admin().commit_group_offsets("billing", {place: 3})
    other.admin().commit_group_offsets("ahead", {place: 3})
    dry = run(other.transport, "mirrors", "promote", "orders", "--source-lost", "--dry-run")
    assert "dry run" in dry.stdout
    assert "orders: the source told 3 offsets of groups at 20" in dry.stdout
    assert other.admin().describe_topic("orders").topic.mirror is not None
    with other.consumer("orders", group_id="busy", enable_auto_commit=False) as member:
        while not member.assignment():  # a first poll only begins to join
            member.poll(timeout_ms=10)
        promoted = run(other.transport, "mirrors", "promote", "orders", "--source-lost", "--yes")
    assert promoted.exit_code == 0, promoted.output
    assert "orders: 1 offsets of groups committed; the source told 3 offsets of groups at 20" in promoted.stdout
    assert "group busy, orders 0" in promoted.stderr
    offsets = {group: other.admin().group_offsets(group)[0] for group in ("billing", "ahead")}
    assert {group: each.offset for group, each in offsets.items()} == {"billing": 2, "ahead": 3}
    assert offsets["billing"].metadata == "m"
    again = run_json(other.transport, "mirrors", "promote", "orders", "--source-lost", "--yes")["orders"]
    assert (again["offsets_told"], again["offsets_committed"], again["groups_left_out"]) == (3, 2, 0)


def test_what_a_lost_source_takes_along_is_told_as_the_page_says(
    service: MemoryPenstock, other: MemoryPenstock
) -> None:
    """docs/how-to/mirror.md, "What a lost source takes along"."""
    create_with_records(service, b"0")
    service.create_topic("bills")
    service.admin().create_mirror("dr2", "bills", URL, source=SOURCE)
    source = Line(service.transport)
    with Producer(
        transport=StagesTransport([SOURCE, URL], [source, other.transport]), retry_backoff_max_ms=100
    ) as producer:
        assert producer.send("orders", b"mirrored", partition=0).result().offset == 1
        service.deliver_pushes()
        service.admin().pause_subscription("dr")  # the source dies before its next push of orders, and not of bills
        assert producer.send("orders", b"lost", partition=0).result().offset == 2
        with service.producer(transactional_id="both") as pair, pair.transaction():
            pair.send("orders", b"half", partition=1)
            pair.send("bills", b"half", partition=0)
        with service.producer() as later:
            later.send("orders", b"later", partition=0, delay_ms=600_000).result()
        service.deliver_pushes()
        source.is_cut = True
        promote = ("mirrors", "promote", "orders", "bills", "--source-lost")
        dry = run_json(other.transport, *promote, "--dry-run")
        promoted = run_json(other.transport, *promote, "--yes")
        assert [each["partitions"] for each in dry.values()] == [each["partitions"] for each in promoted.values()]
        orders = promoted["orders"]["partitions"]
        assert [each["promoted_at"] for each in orders] == [2, 0]
        assert (orders[0]["appended_ms"] is None, orders[1]["appended_ms"]) == (False, None)
        assert producer.send("orders", b"goes on", partition=0).result().offset == 2, "its numbers begin anew"
    assert [each.value for each in other.records("orders")] == [b"0", b"mirrored", b"goes on"]
    assert [each.value for each in other.records("bills")] == [b"half"], "of a transaction, this half was mirrored"
    assert other.admin().list_scheduled("orders") == []
    service.admin().resume_subscription("dr")  # the source answers again
    service.deliver_pushes()
    assert [each.value for each in other.records("orders")] == [b"0", b"mirrored", b"goes on"]
    [first, _] = service.admin().describe_subscription("dr").partitions
    assert (first.last_result, first.lag) == ("away", 1)
    assert "takes appends of its own" in str(first.last_error)


def test_offsets_of_a_promotion_that_lost_its_source_lie_within_the_mirror(
    service: MemoryPenstock, other: MemoryPenstock
) -> None:
    """A group beyond the end would skip the records that the mirror takes there."""
    create_with_records(service, b"0")
    service.deliver_pushes()
    send(service, b"lost")
    place = TopicPartition("orders", 0)
    service.admin().commit_group_offsets("billing", {place: 2})
    assert run(other.transport, "mirrors", "promote", "orders", "--yes", "--wait", "0").exit_code == 1
    run_json(other.transport, "mirrors", "copy-offsets", "orders", "--source", SOURCE)
    assert run(other.transport, "mirrors", "promote", "orders", "--source-lost", "--yes").exit_code == 0
    assert send(other, b"1") == 1
    assert [each.offset for each in other.admin().group_offsets("billing")] == [1]


def test_logs_that_have_parted_do_not_go_back(service: MemoryPenstock, other: MemoryPenstock) -> None:
    create_with_records(service, b"0", b"1")
    service.deliver_pushes()
    other.add_stage(SOURCE, service)
    send(service, b"lost")
    service.admin().move_topic("orders", "dr")
    assert run(other.transport, "mirrors", "promote", "orders", "--source-lost", "--yes").exit_code == 0
    send(other, b"2")
    back = ("mirrors", "reverse", "orders", "--here", SOURCE, "--name", "back", "--yes")
    refused = run(service.transport, *back)
    assert refused.exit_code == 1
    assert "ends at 3" in refused.stderr
    assert service.admin().describe_topic("orders").topic.mirror is None


def test_records_in_a_partition_that_the_mirror_never_heard_of_do_not_go_back(
    service: MemoryPenstock, other: MemoryPenstock
) -> None:
    create_with_records(service, b"0")
    service.deliver_pushes()
    other.add_stage(SOURCE, service)
    service.admin().add_partitions("orders", 3)
    with service.producer() as producer:
        producer.send("orders", value=b"lost", partition=2).result()
    service.admin().move_topic("orders", "dr")
    assert run(other.transport, "mirrors", "promote", "orders", "--source-lost", "--yes").exit_code == 0
    refused = run(service.transport, "mirrors", "reverse", "orders", "--here", SOURCE, "--name", "back", "--yes")
    assert refused.exit_code == 1, refused.output
    assert "partition 2 of orders ends at 1 here, and was promoted at 0" in refused.stderr


def test_way_back_goes_on_where_the_logs_parted(service: MemoryPenstock, other: MemoryPenstock) -> None:
    create_with_records(service, b"0", b"1")
    service.deliver_pushes()
    other.add_stage(SOURCE, service)
    back = ("mirrors", "reverse", "orders", "--here", SOURCE, "--name", "back", "--yes")
    assert run(service.transport, *back).exit_code == 1, "it was not moved"
    service.admin().move_topic("orders", "dr")
    assert "promote" in run(service.transport, *back).stderr
    assert run(other.transport, "mirrors", "promote", "orders", "--yes").exit_code == 0
    send(other, b"2")
    assert run_json(service.transport, *back)["target"]["stage"]["source"] == URL
    send(other, b"3")
    other.deliver_pushes()
    assert places_of(service) == places_of(other)
    assert [each.value for each in service.records("orders")] == [b"0", b"1", b"2", b"3"]
    with pytest.raises(ConflictError, match="mirror"):
        send(service, b"x")
    assert run(service.transport, "mirrors", "promote", "orders", "--yes").exit_code == 0
    assert send(service, b"4") == 4
    with pytest.raises(ConflictError, match="moved"):
        send(other, b"x")


def delay(side: MemoryPenstock, value: bytes, delay_ms: int = 600_000) -> None:
    with side.producer() as producer:
        producer.send("orders", value=value, partition=0, delay_ms=delay_ms).result()


def test_delayed_records_that_no_mirror_knows_hold_a_promotion_back(
    service: MemoryPenstock, other: MemoryPenstock
) -> None:
    create_with_records(service, b"a")
    service.deliver_pushes()
    delay(service, b"later")
    refused = run(other.transport, "mirrors", "promote", "orders", "--yes")
    assert refused.exit_code == 1
    assert "1 delayed records" in refused.stderr
    assert send(service, b"b") == 1, "nothing was moved"
    late = run(other.transport, "mirrors", "promote", "orders", "--leave-delayed", "--yes", "--wait", "0")
    assert late.exit_code == 1, "a record is behind"
    promoted = run(other.transport, "mirrors", "promote", "orders", "--yes")
    assert promoted.exit_code == 0, "what has moved already goes on"
    assert "1 delayed record of the source came along" in promoted.stdout


def test_delayed_records_go_along_with_a_planned_promotion(service: MemoryPenstock, other: MemoryPenstock) -> None:
    create_with_records(service, b"a")
    delay(service, b"later")
    service.deliver_pushes()
    delay(service, b"after the last telling")
    told = run_json(other.transport, "mirrors", "promote", "orders", "--source-lost", "--dry-run")
    assert told["orders"]["delayed"] == 1
    promoted = run(other.transport, "mirrors", "promote", "orders", "--yes")
    assert promoted.exit_code == 0, promoted.stderr
    assert "2 delayed records of the source came along" in promoted.stdout
    assert "never" not in promoted.stderr
    service.advance(700_000)
    other.advance(700_000)
    assert sorted(each.value for each in other.records("orders")) == [b"a", b"after the last telling", b"later"]
    assert [each.value for each in service.records("orders")] == [b"a"]


def test_delayed_records_that_were_told_come_after_the_source_was_lost(
    service: MemoryPenstock, other: MemoryPenstock
) -> None:
    create_with_records(service, b"a")
    delay(service, b"later")
    service.deliver_pushes()
    delay(service, b"lost")
    promoted = run(other.transport, "mirrors", "promote", "orders", "--source-lost", "--yes")
    assert "1 delayed record of the source came along" in promoted.stdout
    other.advance(700_000)
    assert [each.value for each in other.records("orders")] == [b"a", b"later"]


def test_delayed_records_come_back_with_the_topic(service: MemoryPenstock, other: MemoryPenstock) -> None:
    create_with_records(service, b"a")
    delay(service, b"later")
    service.deliver_pushes()
    other.add_stage(SOURCE, service)
    assert run(other.transport, "mirrors", "promote", "orders", "--yes").exit_code == 0
    assert (
        run(service.transport, "mirrors", "reverse", "orders", "--here", SOURCE, "--name", "back", "--yes").exit_code
        == 0
    )
    other.deliver_pushes()
    assert run(service.transport, "mirrors", "promote", "orders", "--yes").exit_code == 0
    other.advance(700_000)
    service.advance(700_000)
    assert [each.value for each in service.records("orders")] == [b"a", b"later"]
    assert [each.value for each in other.records("orders")] == [b"a"]
