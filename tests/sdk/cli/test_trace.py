"""`penstock trace`, against the service in memory: one record, and what each consumer of its topic did with it."""

import json
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from penstock.http.http_message import Response
from penstock.http.transport import Transport
from penstock.model import TopicPartition
from penstock.testing import MemoryPenstock
from tests.sdk.cli.command import run, run_json
from tests.support.denying import DenyingTransport

ARN = "arn:aws:lambda:eu-west-1:123456789012:function:pack"
HOSTILE = "\x1b]0;pwned\x07[/nope]\u202e"


@pytest.fixture(autouse=True)
def orders(service: MemoryPenstock) -> None:
    """The topic orders with five records; the one at offset 2 has a hostile key and headers."""
    for name in ("orders", "orders.dead"):
        service.create_topic(name)
    with service.producer() as producer:
        for number in range(5):
            headers = {"type": "order", HOSTILE: HOSTILE} if number == 2 else {}
            producer.send("orders", b"%d" % number, key=HOSTILE if number == 2 else "k", headers=headers)


def test_trace_tells_where_a_record_lies_and_what_it_holds(service: MemoryPenstock) -> None:
    found = run_json(service.transport, "trace", "orders/0/2")
    place = found["place"]
    assert place["start_offset"] <= 2 < place["end_offset"]
    assert (place["kind"], place["zones"], place["length"] > 0) == ("expiring", [], True)
    assert place["producer_id"] is not None
    assert (found["record"]["value"], found["record"]["headers"][0]) == ("2", ["type", "order"])
    shown = run(service.transport, "trace", "orders", "0", "2")
    assert shown.exit_code == 0, shown.output
    assert shown.stdout.startswith("orders[0] offset 2\nappended   20")
    assert not set(shown.stdout) & {"\x1b", "\x07", "\u202e"}
    assert "header     type: order\n" in shown.stdout
    assert "no dead letter: searched no dead-letter topic" in shown.stdout
    assert "subscriptions: none reads the topic\nno dead letter" in shown.stdout
    assert max(map(len, shown.stdout.splitlines())) <= 80


@pytest.mark.parametrize(("inline_bytes_max", "kind", "zones"), [(0, "zonal", 3), (1_000, "inline", 0)])
def test_trace_tells_where_a_stage_puts_small_appends(inline_bytes_max: int, kind: str, zones: int) -> None:
    with MemoryPenstock(inline_bytes_max=inline_bytes_max) as service:
        service.create_topic("orders")
        with service.producer() as producer:
            producer.send("orders", b"x")
        place = run_json(service.transport, "trace", "orders/0/0")["place"]
        assert (place["kind"], len(place["zones"])) == (kind, zones)


def test_trace_tells_which_groups_have_passed_the_record(service: MemoryPenstock) -> None:
    for group, offset in (("ahead", 3), ("at-it", 2)):
        service.admin().commit_group_offsets(group, {TopicPartition("orders", 0): offset})
    service.admin().commit_group_offsets("elsewhere", {TopicPartition("orders.dead", 0): 0})
    found = run_json(service.transport, "trace", "orders/0/2")["groups"]
    assert [(each["group"], each["has_passed"], each["lag"]) for each in found] == [
        ("ahead", True, 2),
        ("at-it", False, 3),
    ]
    shown = run(service.transport, "trace", "orders/0/2").stdout
    assert "to come" in shown
    assert "passed" in shown


def states_of(service: MemoryPenstock, offset: int) -> dict[str, object]:
    [found] = run_json(service.transport, "trace", f"orders/0/{offset}")["share_groups"]
    assert isinstance(found, dict)
    return found


def test_trace_tells_the_state_in_a_share_group(service: MemoryPenstock) -> None:
    service.create_share_group("workers", "orders", {"retry_backoff_ms_min": 60_000, "retry_backoff_ms_max": 60_000})
    assert (states_of(service, 4)["state"], states_of(service, 4)["deliveries"]) == ("available", 0)
    with service.share_consumer("orders", group_id="workers", client_id="packer", acknowledge="explicit") as consumer:
        records = {each.offset: each for each in consumer.poll(max_records=5, timeout_ms=1_000)}
        assert sorted(records) == [0, 1, 2, 3, 4]
        consumer.accept(records[0])
        consumer.release(records[1], reason="no disk")
        consumer.flush()
        locked = states_of(service, 2)
        assert (locked["state"], locked["consumer"], locked["deliveries"]) == ("locked", "packer", 1)
        assert locked["until_ms"]
        assert states_of(service, 0)["state"] == "finished"
        assert states_of(service, 0)["deliveries"] is None
        waiting = states_of(service, 1)
        assert (waiting["state"], waiting["deliveries"], waiting["is_dead"]) == ("waiting", 1, False)
        assert "packer" in run(service.transport, "trace", "orders/0/2").stdout


def test_trace_finds_the_dead_letter(service: MemoryPenstock) -> None:
    service.create_share_group("workers", "orders", {"dead_letter_topic": "orders.dead"})
    with service.share_consumer("orders", group_id="workers", acknowledge="explicit") as consumer:
        for each in consumer.poll(max_records=5, timeout_ms=1_000):
            if each.offset == 2:
                consumer.reject(each, reason="bad address")
            else:
                consumer.accept(each)
        consumer.flush()
        consumer.poll(timeout_ms=1)  # which moves what is due
    [letter] = run_json(service.transport, "trace", "orders/0/2")["letters"]
    assert (letter["topic"], letter["partition"], letter["offset"], letter["is_open"]) == ("orders.dead", 0, 0, True)
    assert letter["death"]["reason"] == "bad address"
    assert "open dead letter orders.dead/0/0\n  by group workers after 1 deliveries: bad address" in (
        run(service.transport, "trace", "orders/0/2").stdout
    )
    assert run_json(service.transport, "trace", "orders/0/1")["letters"] == []
    assert run_json(service.transport, "trace", "orders/0/2", "--letters", "0")["letters"] == []
    run_json(service.transport, "dead-letters", "drop", "orders.dead", "--yes")
    assert run_json(service.transport, "trace", "orders/0/2")["letters"][0]["is_open"] is False


def test_trace_tells_which_subscriptions_have_delivered_the_record(service: MemoryPenstock) -> None:
    service.add_function(ARN, lambda event, context: None)
    service.admin().put_subscription("packing", "orders", {"lambda": ARN}, {"start": "earliest"})
    service.admin().put_subscription("later", "orders", {"lambda": ARN}, {"start": "earliest"})
    service.admin().pause_subscription("later")
    service.deliver_pushes()
    found = run_json(service.transport, "trace", "orders/0/2")["subscriptions"]
    assert [(each["subscription"], each["has_passed"], each["state"]) for each in found] == [
        ("later", False, "paused"),
        ("packing", True, "active"),
    ]
    assert "to come, paused" in run(service.transport, "trace", "orders/0/2").stdout


def test_consumers_above_the_bound_are_counted(service: MemoryPenstock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.cli.trace.CONSUMERS_MAX", 1)
    for group in ("a", "b", "c"):
        service.admin().commit_group_offsets(group, {TopicPartition("orders", 0): 1})
    found = run_json(service.transport, "trace", "orders/0/2")
    assert ([each["group"] for each in found["groups"]], found["left_out"]) == (["a"], 2)


def test_kinds_that_the_caller_may_not_see_are_left_out(service: MemoryPenstock) -> None:
    service.create_share_group("workers", "orders")
    transport = DenyingTransport(
        DenyingTransport(service.transport, "/v1/share-groups"), "/v1/topics/orders/partitions/0/records"
    )
    found = run_json(transport, "trace", "orders/0/2")
    assert found["share_groups"] == []
    assert found["record"] is None
    assert found["unread"]


@pytest.mark.parametrize(
    "place",
    [("orders",), ("orders/0",), ("orders", "0"), ("orders/x/1",), ("orders/0/-1",), ("orders", "0", "1", "2")],
)
def test_wrong_place_is_named(service: MemoryPenstock, place: tuple[str, ...]) -> None:
    result = run(service.transport, "trace", *place)
    assert result.exit_code == 2
    assert "give TOPIC/PARTITION/OFFSET" in result.stderr or "No such option" in result.stderr


@pytest.mark.parametrize(
    ("place", "error"),
    [
        ("orders/0/5", "offset 5: orders[0] holds [0, 5)"),
        ("orders/9/0", "9"),
        ("ordesr/0/0", "did you mean 'orders'?"),
    ],
)
def test_record_that_is_not_there_is_an_error(service: MemoryPenstock, place: str, error: str) -> None:
    result = run(service.transport, "trace", place)
    assert result.exit_code == 1
    assert error in result.stderr


class Changing:
    """A transport that changes each answer for one record."""

    def __init__(self, inner: Transport, change: Callable[[str, Response], Response]) -> None:
        self._inner, self._change = inner, change

    def call(
        self, method: str, path: str, query: Mapping[str, str], headers: Mapping[str, str], body: bytes
    ) -> Response:
        answer = self._inner.call(method, path, query, headers, body)
        return self._change(path, answer) if "offset" in query else answer

    def close(self) -> None:
        pass


@pytest.mark.parametrize("name", ["place", "record"])
def test_stage_of_an_earlier_release_is_named(service: MemoryPenstock, name: str) -> None:
    def change(_: str, answer: Response) -> Response:
        told: dict[str, Any] = json.loads(answer.body)
        for each in (told, *told.get("offsets", [])):
            each.pop(name, None)
        return Response(answer.status, answer.headers, json.dumps(told).encode())

    service.create_share_group("workers", "orders")
    result = run(Changing(service.transport, change), "trace", "orders/0/2")
    assert result.exit_code == 1
    assert "older than this client's" in " ".join(result.stderr.split())


def test_record_that_retention_has_passed_meanwhile_is_gone_for_its_share_group(service: MemoryPenstock) -> None:
    def change(path: str, answer: Response) -> Response:
        if not path.startswith("/v1/share-groups/"):
            return answer
        refused = {"code": "OFFSET_OUT_OF_RANGE", "message": "offset 2: orders[0] holds [3, 5)", "maybe_applied": False}
        return Response(400, {}, json.dumps({"error": refused}).encode())

    service.create_share_group("workers", "orders")
    service.admin().commit_group_offsets("ahead", {TopicPartition("orders", 0): 3})
    found = run_json(Changing(service.transport, change), "trace", "orders/0/2")
    assert [(each["group"], each["state"]) for each in found["share_groups"]] == [("workers", "gone")]
    assert [each["group"] for each in found["groups"]] == ["ahead"]
