"""Sessions of members: what a heartbeat does to a member's item, and when it is refused.

| stored                                        | heartbeat                            |
|-----------------------------------------------|--------------------------------------|
| no such member                                | UNKNOWN_MEMBER: join anew            |
| another process has taken its instance id     | MEMBER_FENCED: stop                  |
| a heartbeat with this sequence, or a higher   | STALE_HEARTBEAT: it came late        |
| another session of the same process           | UNKNOWN_MEMBER: join anew            |
| else                                          | the session goes on                  |

A session has the number of the heartbeat that joined. One that was sent again and lands when the session that came of
the second has ended begins a session that its member has never heard of: that member is not to take it for its own.
"""

from dataclasses import replace

from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.group import Member, Report
from penstock_core.ids import GroupName, MemberName


def touched(
    stored: Member | None,
    group: GroupName,
    name: MemberName,
    member_id: str,
    sequence: int,
    session: int,
    deadline_ms: int,
    report: Report | None,
) -> Member:
    """The member after a heartbeat; `group_items.touch_update` is the same as an update.

    Raises UNKNOWN_MEMBER, MEMBER_FENCED, STALE_HEARTBEAT. One that is the member's newest already, as when a lost
    answer makes the driver send it again, changes nothing.
    """
    if stored is not None and _is_touched(stored, member_id, sequence, session, deadline_ms, report):
        return stored
    refuse_heartbeat(stored, group, name, member_id, sequence, session)
    assert stored is not None
    member = replace(stored, sequence=sequence, deadline_ms=deadline_ms)
    return member if report is None else replace(member, epoch=report.epoch, is_settled=report.is_settled)


def refuse_heartbeat(
    stored: Member | None, group: GroupName, name: MemberName, member_id: str, sequence: int, session: int | None
) -> None:
    """Raises what the table above says, if anything. `session` None: one that ends whatever session there is."""
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
    """The error for one that never joined, has left, or whose session has ended."""
    return PenstockError(
        ErrorCode.UNKNOWN_MEMBER,
        f"group {group} has no member {name}, or no longer: drop every partition, then join anew with epoch 0",
    )


def concurrent_update(what: str) -> PenstockError:
    """The error for a change that somebody else's has come before."""
    return PenstockError(ErrorCode.CONCURRENT_UPDATE, f"{what} was changed by somebody else: look again")


def _is_touched(
    stored: Member, member_id: str, sequence: int, session: int, deadline_ms: int, report: Report | None
) -> bool:
    heard = stored.member_id, stored.sequence, stored.session, stored.deadline_ms
    is_same = heard == (member_id, sequence, session, deadline_ms)
    return is_same and (report is None or (stored.epoch, stored.is_settled) == (report.epoch, report.is_settled))
