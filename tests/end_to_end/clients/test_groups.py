"""Groups on the deployed stack: real tables, real clocks, and functions that may do no more than their grants say."""

import json
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any
from uuid import uuid4

import pytest

from penstock import Admin, Consumer, Producer, TopicPartition
from penstock.errors import ConflictError, PenstockError
from penstock.http.transport import HttpTransport
from penstock_core.limits import COMMIT_OFFSET_MAX
from tests.end_to_end.local_stack import NOW_MS, Stack
from tests.end_to_end.walled_stack import called, expected
from tests.support.deadlines import until
from tests.support.tasks import start

pytestmark = pytest.mark.stack
SESSION_MS = 6_000  # a slow machine keeps it between two heartbeats
PATIENCE_S = 60.0


class WireMember:
    """A member that speaks HTTP, as docs/reference/http-api.md describes. It does nothing by itself."""

    def __init__(
        self, transport: HttpTransport, group: str, instance_id: str | None = None, session_ms: int = SESSION_MS
    ) -> None:
        self._transport = transport
        self._path = f"/v1/groups/{group}"
        self.member_id, self.instance_id = uuid4().hex, instance_id
        self.config = {"session_timeout_ms": session_ms, "heartbeat_interval_ms": 500}
        self.epoch = self.sequence = self.session = 0
        self.is_complete = False
        self.held: dict[tuple[str, int], Any] = {}
        self.headers: dict[str, str] = {}

    def call(self, path: str, body: dict[str, Any]) -> tuple[int, Any]:
        data = json.dumps({"member_id": self.member_id, "instance_id": self.instance_id, **body}).encode()
        answer = self._transport.call("POST", self._path + path, {}, {"Content-Type": "application/json"}, data)
        self.headers = {name.lower(): value for name, value in answer.headers.items()}
        return answer.status, json.loads(answer.body)

    def beat(self, **fields: Any) -> str:
        """Sends a heartbeat and obeys the answer. Returns the error code, "" if there is none."""
        self.sequence += 1
        body: dict[str, Any] = {"sequence": self.sequence, "epoch": self.epoch, "session": self.session, **fields}
        if self.epoch == 0:
            body |= {"subscription": {"topics": ["orders"], "patterns": ["bil*"]}, "config": self.config}
        elif not self.is_complete and not fields:
            owned: dict[str, list[int]] = {}
            for topic_id, number in self.held:
                owned.setdefault(topic_id, []).append(number)
            body["owned"] = owned
        status, told = self.call("/heartbeat", body)
        if status != 200:
            return str(told["error"]["code"])
        self.epoch, self.session, self.is_complete = told["epoch"], told["session"], told["is_complete"]
        for topic_id, numbers in told["revoked"].items():
            for number in numbers:
                self.held.pop((topic_id, number), None)
        for lease in told["granted"]:
            self.held[lease["topic_id"], lease["partition"]] = lease
        return ""

    def commit(self, offset: int) -> list[str]:
        """Commits the offset for all partitions of the member. Returns an error code for each, "" if there is none."""
        offsets = [
            {name: lease[name] for name in ("topic", "partition", "lease_epoch")} | {"offset": offset}
            for lease in self.held.values()
        ]
        _, answer = self.call("/offsets", {"offsets": offsets})
        return [result.get("error", {}).get("code", "") for result in answer["results"]]


@pytest.fixture(scope="module")
def transport(stack: Stack) -> Iterator[HttpTransport]:
    transport = stack.transport()
    with Admin(transport=transport) as admin:
        admin.create_topic("orders", partitions=5)
        admin.create_topic("bills", partitions=1)
        with Producer(transport=transport) as producer:
            for number in range(10):
                producer.send("orders", b"v", partition=0, timestamp_ms=NOW_MS + number)
        yield transport
        for name in ("orders", "bills"):
            admin.delete_topic(name)


def beat_until(holds: Callable[[], bool], *members: WireMember) -> None:
    """Lets all members heartbeat, ten times a second, until the condition holds."""

    def beat_all() -> None:
        for member in members:
            assert member.beat() == ""
        time.sleep(0.1)

    until(
        holds,
        step=beat_all,
        shown=lambda: [(member.member_id, sorted(member.held)) for member in members],
        deadline_s=PATIENCE_S,
    )


def settled(*members: WireMember) -> Callable[[], bool]:
    return lambda: (
        all(member.is_complete for member in members)
        and len({member.epoch for member in members}) == 1
        and sum(len(member.held) for member in members) == 6
    )


def polled(consumer: Consumer) -> set[str]:
    """Returns the topics of the consumer's partitions after a poll."""
    consumer.poll(timeout_ms=0)
    return {each.topic for each in consumer.assignment()}


def held_of(topic: str, member: WireMember) -> int:
    return sum(lease["topic"] == topic for lease in member.held.values())


def test_members_share_move_commit_and_are_fenced(transport: HttpTransport) -> None:
    members = [WireMember(transport, "sharing") for _ in range(3)]
    joins = [threading.Thread(target=member.beat) for member in members]
    for join in joins:
        join.start()
    for join in joins:
        join.join()
    beat_until(settled(*members), *members)
    assert sorted(len(member.held) for member in members) == [2, 2, 2]
    assert all(member.commit(3) == ["", ""] for member in members)
    dead, *others = members
    beat_until(settled(*others), *others)
    taken_over = {key: lease for member in others for key, lease in member.held.items() if key in dead.held}
    assert [lease["offset"] for lease in taken_over.values()] == [3, 3]
    assert all(lease["lease_epoch"] > dead.held[key]["lease_epoch"] for key, lease in taken_over.items())
    assert set(dead.commit(9)) == {"LEASE_FENCED"}
    assert dead.beat() == "UNKNOWN_MEMBER"
    assert others[0].beat(leave=True) == ""
    beat_until(settled(others[1]), others[1])
    assert others[1].beat() == ""
    calls = {part.split("=")[0] for part in others[1].headers["penstock-storage-calls"].split(",")}
    assert {"dynamodb.GetItem", "dynamodb.UpdateItem"} <= calls
    with Consumer("orders", transport=transport, group_id="sharing") as consumer:
        beat_until(lambda: polled(consumer) == {"orders"}, others[1])
        consumer.subscribe("bil*")
        beat_until(lambda: "orders" not in polled(consumer) and held_of("orders", others[1]) == 5, others[1])
        consumer.unsubscribe()
        beat_until(settled(others[1]), others[1])


def test_static_member_comes_back_without_a_rebalance(transport: HttpTransport) -> None:
    old = WireMember(transport, "static", "eu")
    beat_until(settled(old), old)
    new = WireMember(transport, "static", "eu")
    assert new.beat() == ""
    assert (new.epoch, new.is_complete, len(new.held)) == (old.epoch, True, 6)
    assert old.beat() == "MEMBER_FENCED"
    assert set(old.commit(1)) == {"LEASE_FENCED"}
    assert set(new.commit(1)) == {""}


def test_consumer_outside_the_group_commits_ahead_of_the_end(stack: Stack, topic: str) -> None:
    with Producer(transport=stack.transport()) as producer:
        assert producer.send(topic, b"one", partition=0).result().offset == 0
    with Consumer(transport=stack.transport(), group_id="outside", enable_auto_commit=False) as consumer:
        first, second = TopicPartition(topic, 0), TopicPartition(topic, 1)
        consumer.assign([first, second])
        consumer.commit({first: 1, second: 0})
        assert consumer.committed(first) == 1
        consumer.commit({second: 1_000})
        assert consumer.committed(second) == 1_000
        with pytest.raises(PenstockError, match=str(COMMIT_OFFSET_MAX)):
            consumer.commit({second: COMMIT_OFFSET_MAX + 1})


def test_operator_describes_resets_and_deletes(stack: Stack, transport: HttpTransport) -> None:
    member = WireMember(transport, "operated", session_ms=10 * 60_000)
    beat_until(settled(member), member)
    assert set(member.commit(0)) == {""}
    with Admin(transport=transport) as admin:
        assert "operated" in [group.group for group in admin.list_groups()]
        found = admin.describe_group("operated")
        assert [each.lag for each in found.partitions if each.topic == "orders"] == [10, 0, 0, 0, 0]
        with pytest.raises(ConflictError):
            admin.reset_group_offsets("operated", "orders", to="latest")
        done = admin.reset_group_offsets("operated", "orders", timestamp_ms=NOW_MS + 4, force=True)
        assert [each.new_offset for each in done.values()] == [4, 0, 0, 0, 0]
        assert member.beat() == "UNKNOWN_MEMBER"
        assert admin.alter_group("operated", {"assignor": "range"}).config["assignor"] == "range"
        admin.delete_group("operated")
        assert "operated" not in [group.group for group in admin.list_groups()]


def test_document_of_a_group_is_replaced_by_the_caller_that_saw_it_last(transport: HttpTransport) -> None:
    path, document = "/v1/groups/led/document", {"protocol_type": "connect", "member_count": 1}
    first = expected(transport, "PUT", path, {**document, "version": None, "document": "AAEC"})["version"]
    late = {**document, "version": first, "document": "AwQF"}
    expected(transport, "PUT", path, late)
    assert called(transport, "PUT", path, late).json["error"]["code"] == "CONCURRENT_UPDATE"
    assert expected(transport, "GET", path)["document"] == "AwQF"
    with Admin(transport=transport) as admin:
        assert [each.protocol_type for each in admin.list_groups() if each.group == "led"] == ["connect"]
        admin.delete_group("led")
    assert called(transport, "GET", path).json["error"]["code"] == "UNKNOWN_GROUP"


@pytest.mark.minutes
def test_retention_ends_sessions_when_members_are_gone(stack: Stack, transport: HttpTransport) -> None:
    member = WireMember(transport, "left")
    assert member.beat() == ""
    functions = stack.root_client("lambda")
    with Admin(transport=transport) as admin:
        until(lambda: not admin.describe_group("left").group.member_count, deadline_s=PATIENCE_S)
        answer = start(functions, "retention")
        done = json.loads(answer["Payload"].read())
        assert (done["retention_failed"], done["retention_unfinished"]) == (0, 0)
        assert done["groups_checked"] >= 1
        [group] = [each for each in admin.list_groups() if each.group == "left"]
        assert (group.epoch, group.member_count) == (member.epoch + 1, 0)
