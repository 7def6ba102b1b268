"""Sessions of members: what a heartbeat does to a member's item, and when it is refused.

| stored                                        | heartbeat                            |
|-----------------------------------------------|--------------------------------------|
| no such member                                | UNKNOWN_MEMBER: join anew            |
| another process has taken its instance id     | MEMBER_FENCED: stop                  |
| a heartbeat with this sequence, or a higher   | STALE_HEARTBEAT: it came late        |
| another session of the same process           | UNKNOWN_MEMBER: join anew            |
| else                                          | the session goes on                  |

A session is numbered by the heartbeat that opened it. Suppose a member sends its join twice, the second copy opens a
session, and that session expires. The delayed first copy then opens another session, which the member does not know.
Its next heartbeat is refused with UNKNOWN_MEMBER, and it joins again.
"""

from dataclasses import replace

from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.groups.group import Member, SessionTouch
from penstock_core.ids import GroupName, MemberName


def touched(stored: Member | None, group: GroupName, name: MemberName, touch: SessionTouch) -> Member:
    """The member after a heartbeat; `storage.member_item.touch_update` is the same as an update.

    A driver that lost the answer may send the member's newest heartbeat again: that changes nothing. Raises
    UNKNOWN_MEMBER, MEMBER_FENCED, STALE_HEARTBEAT.
    """
    if stored is not None and _is_touched(stored, touch):
        return stored
    refuse_heartbeat(stored, group, name, touch.member_id, touch.sequence, touch.session)
    assert stored is not None
    report = touch.report
    member = replace(stored, sequence=touch.sequence, deadline_ms=touch.deadline_ms)
    return member if report is None else replace(member, epoch=report.epoch, is_settled=report.is_settled)


def refuse_heartbeat(
    stored: Member | None, group: GroupName, name: MemberName, member_id: str, sequence: int, session: int | None
) -> None:
    """Raises the error that the table above gives for this heartbeat, if any.

    With `session` None the heartbeat ends whatever session there is. The condition of
    `storage.member_item.touch_update` states the same rule. The contract test
    `test_touch_is_refused_exactly_where_sessions_touched_says` holds the two together.
    """
    if stored is None:
        raise unknown_member(group, name)
    if stored.member_id != member_id:
        raise PenstockError(
            ErrorCode.MEMBER_FENCED,
            f"another process ({stored.member_id}) has joined group {group} as instance {stored.instance_id}: "
            "one process at a time may use an instance id, and this one has to stop",
        )
    if stored.sequence >= sequence:
        raise PenstockError(
            ErrorCode.STALE_HEARTBEAT,
            f"heartbeat {sequence} of member {name} of group {group} comes after its heartbeat {stored.sequence}: "
            "give each heartbeat, also one that is sent again, a higher sequence",
        )
    if session not in (None, stored.session):
        raise unknown_member(group, name)


def unknown_member(group: GroupName, name: MemberName) -> PenstockError:
    """The error for a member that never joined, has left, or whose session has ended."""
    return PenstockError(
        ErrorCode.UNKNOWN_MEMBER,
        f"group {group} has no member {name}, or no longer: drop every partition, then join anew with epoch 0",
    )


def concurrent_update(what: str) -> PenstockError:
    """The error for a change whose item another writer changed first."""
    return PenstockError(ErrorCode.CONCURRENT_UPDATE, f"{what} was changed by somebody else: look again")


def _is_touched(stored: Member, touch: SessionTouch) -> bool:
    heard, report = (stored.member_id, stored.sequence, stored.session, stored.deadline_ms), touch.report
    is_same = heard == (touch.member_id, touch.sequence, touch.session, touch.deadline_ms)
    return is_same and (report is None or (stored.epoch, stored.is_settled) == (report.epoch, report.is_settled))
