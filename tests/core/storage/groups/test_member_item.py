from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from penstock_core import limits
from penstock_core.groups.group import Member, MemberProgress, SessionTouch, Subscription, parse_subscription
from penstock_core.ids import GroupName, MemberName
from penstock_core.storage.groups.member_item import (
    MEMBER_PREFIX,
    SEQUENCE_NAME,
    member_item,
    member_item_key,
    member_key,
    parse_member,
    touch_update,
    unchanged_member,
)
from penstock_core.storage.item import item_bytes
from tests.core.storage.stored_values import COUNTS

GROUP = GroupName("billing")
MEMBER = Member(
    name=MemberName("=eu-1"),
    member_id="p" * 36,
    instance_id="eu-1",
    client_id="host",
    subscription=parse_subscription(["orders", "bills"], ["x.*"]),
    sequence=2**60,
    session=2,
    deadline_ms=1_790_000_000_000,
    epoch=12,
    is_settled=True,
    joined_at_ms=1_780_000_000_000,
    session_timeout_ms=60_000,
)


SUBSCRIPTIONS = st.builds(
    Subscription, topics=st.lists(st.text(), max_size=3).map(tuple), patterns=st.lists(st.text(), max_size=3).map(tuple)
)


@given(
    st.builds(
        Member,
        name=st.text(min_size=1).map(MemberName),
        member_id=st.text(),
        instance_id=st.none() | st.text(min_size=1),
        client_id=st.text(),
        subscription=SUBSCRIPTIONS,
        sequence=COUNTS,
        session=COUNTS,
        deadline_ms=COUNTS,
        epoch=COUNTS,
        is_settled=st.booleans(),
        joined_at_ms=COUNTS,
        session_timeout_ms=st.none() | COUNTS,
    )
)
def test_member_survives_a_round_trip(member: Member) -> None:
    assert parse_member(member_item(GROUP, member)) == member


def test_member_item_is_what_is_stored_today() -> None:
    assert member_item(GROUP, MEMBER) == {
        "pk": {"S": "billing"},
        "sk": {"S": "member#=eu-1"},
        "member_id": {"S": "p" * 36},
        "instance_id": {"S": "eu-1"},
        "client_id": {"S": "host"},
        "topics": {"L": [{"S": "bills"}, {"S": "orders"}]},
        "patterns": {"L": [{"S": "x.*"}]},
        "epoch": {"N": "12"},
        "is_settled": {"BOOL": True},
        "joined_at_ms": {"N": "1780000000000"},
        "sequence": {"N": str(2**60)},
        "member_session": {"N": "2"},
        "deadline_ms": {"N": "1790000000000"},
        "session_ms": {"N": "60000"},
        "expires_at_s": {"N": "1790604800"},
    }
    assert member_item_key(GROUP, MEMBER.name) == {"pk": {"S": "billing"}, "sk": {"S": member_key(MEMBER.name)}}
    assert "instance_id" not in member_item(GROUP, replace(MEMBER, instance_id=None))


def test_member_is_one_write_unit_with_a_subscription_of_600_bytes() -> None:
    member = replace(MEMBER, subscription=parse_subscription(["t" * 100 + str(n) for n in range(6)], []))
    assert item_bytes(member_item(GroupName("g" * 60), member)) < limits.KIB


def test_member_outlives_its_session_by_a_week_at_most() -> None:
    expires_at_s = int(member_item(GROUP, MEMBER)["expires_at_s"]["N"])
    assert expires_at_s == 1_790_000_000 + 7 * 86_400
    touched = touch_update(
        GROUP,
        MEMBER.name,
        SessionTouch(
            member_id="p",
            sequence=3,
            session=2,
            deadline_ms=1_790_000_001_000,
            report=MemberProgress(epoch=1, is_settled=False),
        ),
    )
    assert touched.values[":expires"] == {"N": str(expires_at_s + 1)}


def test_heartbeat_is_conditional_on_process_session_and_sequence() -> None:
    update = touch_update(GROUP, MEMBER.name, SessionTouch(member_id="p", sequence=3, session=2, deadline_ms=5_000))
    assert update.key == member_item_key(GROUP, MEMBER.name)
    assert update.condition == "member_id = :member AND member_session = :session AND #sequence < :sequence"
    assert update.update == "SET #sequence = :sequence, deadline_ms = :deadline, expires_at_s = :expires"
    assert (update.values[":member"], update.values[":session"]) == ({"S": "p"}, {"N": "2"})
    assert update.values[":sequence"] == {"N": "3"}
    assert SEQUENCE_NAME == {"#sequence": "sequence"}


def test_heartbeat_that_has_seen_a_target_reports_it() -> None:
    update = touch_update(
        GROUP,
        MEMBER.name,
        SessionTouch(
            member_id="p", sequence=3, session=2, deadline_ms=5_000, report=MemberProgress(epoch=4, is_settled=True)
        ),
    )
    assert update.update.endswith(", epoch = :epoch, is_settled = :settled")
    assert (update.values[":epoch"], update.values[":settled"]) == ({"N": "4"}, {"BOOL": True})


def test_removal_is_conditional_on_the_heartbeat_that_was_seen() -> None:
    assert unchanged_member(MEMBER) == (
        "member_id = :member AND #sequence = :sequence AND deadline_ms = :deadline",
        {":member": {"S": "p" * 36}, ":sequence": {"N": str(2**60)}, ":deadline": {"N": "1790000000000"}},
    )


def test_member_keys_begin_with_their_prefix() -> None:
    assert member_key(MemberName("x")) == "member#x" == MEMBER_PREFIX + "x"
