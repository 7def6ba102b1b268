"""The contract of AclStore, held by the adapters in memory and on DynamoDB.

The contract of AuditStore, held by the adapters in memory, in SQLite and on DynamoDB.

The contract of JobCursors, held by the adapters in memory and on DynamoDB.

The contract of ZoneStateStore, held by the adapters in memory and on DynamoDB.

RepairQueue on SQS: what is sent is what replicate is handed.
"""

import secrets
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import boto3
import pytest
from moto import mock_aws

from penstock_core.acls.rule import parse_rule
from penstock_core.acls.rule_set import EMPTY_BOOK, NO_REVISION, RuleBook
from penstock_core.audit.audit_entry import AuditId
from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.ids import Offset, Partition, PartitionKey, SegmentId, TopicId, TopicName, ZoneName
from penstock_core.limits import REPAIR_DELAY_MS
from penstock_core.log.repair import Look, OwedRange, Repair, decode_message
from penstock_core.log.topic import Topic, note_of
from penstock_core.zones.zone_state import (
    EVERY_ZONE_IN_SYNC,
    CatchUpPass,
    Cursor,
    Mover,
    Progress,
    ZoneStates,
    ZoneStatus,
    move,
)
from penstock_service.adapters.on_demand import OnDemand
from penstock_service.adapters.sqs import SqsRepairQueue
from tests.contract.conftest import Ports
from tests.core.audit.test_audit_entry import ENTRY

A, B = parse_rule("*", "read", "topic:é*".replace("é", "e")), parse_rule("jwt:https://i#é", "all", "*", "deny")
FIRST = RuleBook(revision="01" * 8, rules=frozenset({A, B}))
SECOND = RuleBook(revision="02" * 8, rules=frozenset({B}))


def test_there_are_no_rules_at_first(ports: Ports) -> None:
    assert ports.acls.get() == EMPTY_BOOK
    assert ports.acls.revision() == NO_REVISION


def test_rules_are_kept_whole_with_their_revision(ports: Ports) -> None:
    ports.acls.change(NO_REVISION, FIRST)
    assert (ports.acls.get(), ports.acls.revision()) == (FIRST, FIRST.revision)
    ports.acls.change(FIRST.revision, SECOND)
    assert (ports.acls.get(), ports.acls.revision()) == (SECOND, SECOND.revision)


@pytest.mark.parametrize("seen", [NO_REVISION, "03" * 8])
def test_change_of_other_rules_is_refused_and_changes_nothing(ports: Ports, seen: str) -> None:
    ports.acls.change(NO_REVISION, FIRST)
    with pytest.raises(PenstockError) as caught:
        ports.acls.change(seen, SECOND)
    assert (caught.value.code, caught.value.maybe_applied) == (ErrorCode.CONCURRENT_UPDATE, False)
    assert (ports.acls.get(), ports.acls.revision()) == (FIRST, FIRST.revision)


def test_rules_too_large_for_an_item_are_refused(ports: Ports) -> None:
    rules = frozenset(parse_rule(f"arn:{secrets.token_hex(250)}", "read", "topic:a") for _ in range(2_000))
    with pytest.raises(PenstockError) as caught:
        ports.acls.change(NO_REVISION, RuleBook(revision="1", rules=rules))
    assert caught.value.code is ErrorCode.TOO_MANY_ACLS
    assert ports.acls.get() == EMPTY_BOOK


def test_owners_are_kept_until_others_are_given(ports: Ports) -> None:
    assert ports.acls.owners() == {}
    owners = {A: frozenset({"", "a.1"}), B: frozenset({"b.2"})}
    ports.acls.change(NO_REVISION, FIRST, owners)
    ports.acls.change(FIRST.revision, SECOND)
    assert ports.acls.owners() == owners
    ports.acls.change(SECOND.revision, FIRST, {})
    assert ports.acls.owners() == {}


def test_refused_change_leaves_the_owners(ports: Ports) -> None:
    ports.acls.change(NO_REVISION, FIRST)
    with pytest.raises(PenstockError, match="try again"):
        ports.acls.change("03" * 8, SECOND, {A: frozenset({"a.1"})})
    assert ports.acls.owners() == {}


def test_rules_meet_no_topic(ports: Ports) -> None:
    ports.acls.change(NO_REVISION, FIRST)
    assert ports.topics.list() == []


def test_notes_are_kept_in_order_until_they_are_forgotten(ports: Ports) -> None:
    assert list(ports.audit.entries(10)) == []
    notes = [replace(ENTRY, audit_id=AuditId(f"{number:015}-00")) for number in (2, 1, 3)]
    for note in notes:
        ports.audit.put(note)
    second, first, third = notes
    assert list(ports.audit.entries(10)) == [first, second, third]
    assert list(ports.audit.entries(2)) == [first, second]
    ports.audit.put(replace(first, after={"partitions": 7}))
    assert ports.audit.entries(1)[0].after == {"partitions": 7}
    for _ in range(2):
        ports.audit.forget(first.audit_id)
    assert list(ports.audit.entries(10)) == [second, third]


def test_note_is_no_topic(ports: Ports) -> None:
    ports.audit.put(ENTRY)
    assert list(ports.topics.list()) == []
    assert list(ports.topics.deleted()) == []


def test_cursor_is_kept_for_each_job_until_it_is_cleared(ports: Ports) -> None:
    assert ports.cursors.get("sweep") is None
    ports.cursors.put("sweep", "1")
    ports.cursors.put("retention", "orders#7")
    ports.cursors.put("sweep", "2")
    assert (ports.cursors.get("sweep"), ports.cursors.get("retention")) == ("2", "orders#7")
    for _ in range(2):
        ports.cursors.clear("sweep")
        assert (ports.cursors.get("sweep"), ports.cursors.get("retention")) == (None, "orders#7")


def test_cursor_is_no_topic(ports: Ports) -> None:
    topic = Topic(name=TopicName("sweep"), topic_id=TopicId("t1"), partitions=1, created_at_ms=5)
    ports.topics.begin(note_of(topic, 5, is_being_created=True))
    ports.topics.create(topic)
    ports.cursors.put("sweep", "1")
    assert [topic.name for topic in ports.topics.list()] == ["sweep"]
    assert list(ports.topics.deleted()) == []


ZONES = [ZoneName(name) for name in "abc"]


def _out(states: ZoneStates, zone: str, reason: str = "é: it is gone") -> ZoneStates:
    return move(states, ZONES, ZoneName(zone), ZoneStatus.TAKEN_OUT, Mover.OPERATOR, now_ms=5, reason=reason)


def test_every_zone_is_in_sync_at_first(ports: Ports) -> None:
    assert ports.zone_states.get() == EVERY_ZONE_IN_SYNC


def test_change_is_kept_whole(ports: Ports) -> None:
    out = _out(EVERY_ZONE_IN_SYNC, "b")
    ports.zone_states.change(EVERY_ZONE_IN_SYNC, out)
    assert ports.zone_states.get() == out
    again = move(out, ZONES, ZoneName("b"), ZoneStatus.CATCHING_UP, Mover.OPERATOR, now_ms=6, reason="")
    ports.zone_states.change(out, again)
    assert ports.zone_states.get() == again


def test_change_is_refused_when_any_zone_was_changed_meanwhile(ports: Ports) -> None:
    theirs = _out(EVERY_ZONE_IN_SYNC, "a")
    ports.zone_states.change(EVERY_ZONE_IN_SYNC, theirs)
    for seen in (EVERY_ZONE_IN_SYNC, replace(theirs, version=7)):
        with pytest.raises(PenstockError) as caught:
            ports.zone_states.change(seen, _out(EVERY_ZONE_IN_SYNC, "b"))
        assert (caught.value.code, caught.value.maybe_applied) == (ErrorCode.CONCURRENT_UPDATE, False)
    assert ports.zone_states.get() == theirs


def test_states_meet_no_topic(ports: Ports) -> None:
    ports.zone_states.change(EVERY_ZONE_IN_SYNC, _out(EVERY_ZONE_IN_SYNC, "a"))
    ports.zone_states.save_pass(None, CatchUpPass(zones={}, began_ms=0))
    assert ports.topics.list() == []


def test_pass_is_kept_whole(ports: Ports) -> None:
    assert ports.zone_states.get_pass() is None
    first = CatchUpPass(zones={ZoneName("c"): 4}, began_ms=9, saves=1)
    ports.zone_states.save_pass(None, first)
    assert ports.zone_states.get_pass() == first
    done = Progress(refs=5, segments=2, bytes=2**40, failures=1)
    second = replace(first, saves=2, cursor=Cursor("orders", 3, 2**50), progress=done)
    ports.zone_states.save_pass(first, second)
    assert ports.zone_states.get_pass() == second


def test_pass_is_refused_when_another_keeper_has_saved(ports: Ports) -> None:
    first = CatchUpPass(zones={}, began_ms=9, saves=1)
    ports.zone_states.save_pass(None, first)
    for seen in (None, replace(first, saves=2)):
        with pytest.raises(PenstockError) as caught:
            ports.zone_states.save_pass(seen, replace(first, saves=3))
        assert caught.value.code is ErrorCode.CONCURRENT_UPDATE
    assert ports.zone_states.get_pass() == first


REPAIR = Repair(segment_id=SegmentId(b"s" * 16), zones=frozenset((ZoneName("b"),)))


@pytest.fixture
def sqs(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "testing")
    monkeypatch.delenv("AWS_ENDPOINT_URL", raising=False)
    with mock_aws():
        yield boto3.client("sqs", region_name="us-east-1")


def test_send_puts_the_repair_into_the_queue(sqs: Any) -> None:
    url = sqs.create_queue(QueueName="repairs")["QueueUrl"]
    made: list[Any] = []

    def make() -> Any:
        made.append(sqs)
        return sqs

    queue = SqsRepairQueue(OnDemand(make), url)
    assert not made
    for _ in range(2):
        queue.send(REPAIR)
    messages = sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=10)["Messages"]
    assert [decode_message(message["Body"]) for message in messages] == [REPAIR, REPAIR]
    assert len(made) == 1


def test_look_is_sent_with_a_delay() -> None:
    sent: list[dict[str, Any]] = []

    class Client:
        def send_message(self, **arguments: Any) -> None:
            sent.append(arguments)

    queue = SqsRepairQueue(Client, "http://queue")
    key = PartitionKey(TopicId("t1"), Partition(0))
    look = Look(ranges=(OwedRange(key=key, start_offset=Offset(0), end_offset=Offset(1)),))
    queue.send(look)
    queue.send(REPAIR)
    assert [decode_message(each["MessageBody"]) for each in sent] == [look, REPAIR]
    assert [each["DelaySeconds"] for each in sent] == [REPAIR_DELAY_MS // 1_000, 0]


def test_send_says_so_when_the_queue_does_not_take_it(sqs: Any) -> None:
    queue = SqsRepairQueue(lambda: sqs, "https://sqs.us-east-1.amazonaws.com/123456789012/none")
    with pytest.raises(PenstockError) as caught:
        queue.send(REPAIR)
    assert caught.value.code is ErrorCode.STORAGE_UNAVAILABLE
