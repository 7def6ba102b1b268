"""The item of a member of a group, which its heartbeats write. With the update that a heartbeat makes.

```
groups table   pk group name   sk "member#<member name>"
member_id        S     the process; with an instance id, the name stays while this changes
instance_id      S     absent from a member without one
client_id        S     what the client calls itself
topics           L     names that the member subscribes to, each S
patterns         L     patterns of names, each S
epoch            N     the group epoch whose target the member was last told
is_settled       BOOL  it holds nothing outside its part of that target
joined_at_ms     N     when it joined
sequence         N     the number of its newest heartbeat
member_session   N     the number of the heartbeat that opened its session
deadline_ms      N     when the session ends
session_ms       N     the time-out that the member asked for; absent where the group's setting counts
expires_at_s     N     DynamoDB removes the item some time after it: a week after the deadline
```
The item stays below 1 KiB, one write unit for each heartbeat, while its subscription has less than about 600 bytes.

The items of a target assignment: chunks of its bytes, since an item holds 400 KB at most.

```
groups table   pk group name   sk "target#<epoch, 10 digits>#<target id>#<chunk, 3 digits>"
target   B   one chunk of `encode_target`'s bytes (groups/group_target.py), 300 KiB at most
```
A writer stores all chunks before the group's item names their epoch and id. So two writers of one epoch never mix.
"""

from collections.abc import Mapping
from typing import Any

from penstock_core.formats import check_item
from penstock_core.groups.group import Member, SessionTouch, Subscription
from penstock_core.ids import GroupName, MemberName
from penstock_core.storage.item import ConditionalUpdate, Item, number

MEMBER_PREFIX = "member#"
MEMBER_OPTIONAL = ("instance_id", "session_ms")  # attributes that some members lack
SEQUENCE_NAME = {"#sequence": "sequence"}  # one of DynamoDB's reserved words
_MEMBER_KEPT_S = 7 * 24 * 3_600  # after its session: no live member removes the last one of a group
TARGET_PREFIX = "target#"


def member_item_key(group: GroupName, name: MemberName) -> Item:
    """The key of the member in its group."""
    return {"pk": {"S": group}, "sk": {"S": member_key(name)}}


def member_key(name: MemberName) -> str:
    """Sort key of a member in its group."""
    return f"{MEMBER_PREFIX}{name}"


def member_item(group: GroupName, member: Member) -> Item:
    """The whole item, for a join or a new subscription."""
    item = {
        **member_item_key(group, member.name),
        "member_id": {"S": member.member_id},
        "client_id": {"S": member.client_id},
        "topics": {"L": [{"S": name} for name in member.subscription.topics]},
        "patterns": {"L": [{"S": pattern} for pattern in member.subscription.patterns]},
        "epoch": number(member.epoch),
        "is_settled": {"BOOL": member.is_settled},
        "joined_at_ms": number(member.joined_at_ms),
        "sequence": number(member.sequence),
        "member_session": number(member.session),
        **_ends(member.deadline_ms),
    }
    if member.instance_id is not None:
        item["instance_id"] = {"S": member.instance_id}
    if member.session_timeout_ms is not None:
        item["session_ms"] = number(member.session_timeout_ms)
    return item


def parse_member(item: Mapping[str, Any]) -> Member:
    """The inverse of `member_item`."""
    check_item("member", item)
    return Member(
        name=MemberName(item["sk"]["S"].removeprefix(MEMBER_PREFIX)),
        member_id=item["member_id"]["S"],
        instance_id=item["instance_id"]["S"] if "instance_id" in item else None,
        client_id=item["client_id"]["S"],
        subscription=Subscription(
            topics=tuple(each["S"] for each in item["topics"]["L"]),
            patterns=tuple(each["S"] for each in item["patterns"]["L"]),
        ),
        sequence=int(item["sequence"]["N"]),
        session=int(item["member_session"]["N"]),
        deadline_ms=int(item["deadline_ms"]["N"]),
        epoch=int(item["epoch"]["N"]),
        is_settled=item["is_settled"]["BOOL"],
        joined_at_ms=int(item["joined_at_ms"]["N"]),
        session_timeout_ms=int(item["session_ms"]["N"]) if "session_ms" in item else None,
    )


def touch_update(group: GroupName, name: MemberName, touch: SessionTouch) -> ConditionalUpdate:
    """A heartbeat, on condition that it is of the member's present process and session, and newer than all before.

    The condition states the rule of `groups.sessions.refuse_heartbeat`, which tells why a heartbeat is refused. The
    contract test `test_touch_is_refused_exactly_where_sessions_touched_says` runs both over all cases and holds them
    together. Pass `SEQUENCE_NAME` as the expression's names.
    """
    update = "SET #sequence = :sequence, deadline_ms = :deadline, expires_at_s = :expires"
    ends = _ends(touch.deadline_ms)
    values: Item = {
        ":member": {"S": touch.member_id},
        ":sequence": number(touch.sequence),
        ":session": number(touch.session),
        ":deadline": ends["deadline_ms"],
        ":expires": ends["expires_at_s"],
    }
    report = touch.report
    if report is not None:
        update += ", epoch = :epoch, is_settled = :settled"
        values |= {":epoch": number(report.epoch), ":settled": {"BOOL": report.is_settled}}
    return ConditionalUpdate(
        key=member_item_key(group, name),
        update=update,
        condition="member_id = :member AND member_session = :session AND #sequence < :sequence",
        values=values,
    )


def unchanged_member(seen: Member) -> tuple[str, Item]:
    """The condition that since `seen` was read neither a heartbeat nor a new process has come."""
    return "member_id = :member AND #sequence = :sequence AND deadline_ms = :deadline", {
        ":member": {"S": seen.member_id},
        ":sequence": number(seen.sequence),
        ":deadline": number(seen.deadline_ms),
    }


def _ends(deadline_ms: int) -> Item:
    return {"deadline_ms": number(deadline_ms), "expires_at_s": number(deadline_ms // 1_000 + _MEMBER_KEPT_S)}


def target_item(group: GroupName, epoch: int, target_id: str, chunk: int, data: bytes) -> Item:
    """The item of one chunk; `chunk` counts from 0."""
    return {"pk": {"S": group}, "sk": {"S": target_key(epoch, target_id, chunk)}, "target": {"B": data}}


def target_key(epoch: int, target_id: str, chunk: int) -> str:
    """Sort key of one chunk."""
    return f"{target_prefix(epoch)}{target_id}#{chunk:03d}"


def target_prefix(epoch: int) -> str:
    """The prefix of all sort keys of a group epoch's targets. Keys of earlier epochs sort below it."""
    return f"{TARGET_PREFIX}{epoch:010d}#"
