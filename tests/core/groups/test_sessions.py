from contextlib import suppress
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.groups.group import Member, MemberProgress, SessionTouch
from penstock_core.groups.sessions import concurrent_update, refuse_heartbeat, touched, unknown_member
from penstock_core.ids import GroupName
from tests.core.groups.members import MEMBER, OTHER

GROUP = GroupName("billing")


def test_heartbeat_goes_on_with_the_session() -> None:
    after = touched(
        MEMBER,
        GROUP,
        OTHER,
        SessionTouch(
            member_id="other", sequence=6, session=2, deadline_ms=200, report=MemberProgress(epoch=9, is_settled=True)
        ),
    )
    assert after == replace(MEMBER, sequence=6, deadline_ms=200, epoch=9, is_settled=True)
    assert touched(
        MEMBER, GROUP, OTHER, SessionTouch(member_id="other", sequence=6, session=2, deadline_ms=200)
    ) == replace(MEMBER, sequence=6, deadline_ms=200)
    assert (
        touched(
            after,
            GROUP,
            OTHER,
            SessionTouch(
                member_id="other",
                sequence=6,
                session=2,
                deadline_ms=200,
                report=MemberProgress(epoch=9, is_settled=True),
            ),
        )
        == after
    )
    assert (
        touched(after, GROUP, OTHER, SessionTouch(member_id="other", sequence=6, session=2, deadline_ms=200)) == after
    )
    for deadline_ms, is_settled in ((200, False), (201, True)):
        with pytest.raises(PenstockError, match="STALE_HEARTBEAT"):
            touched(
                after,
                GROUP,
                OTHER,
                SessionTouch(
                    member_id="other",
                    sequence=6,
                    session=2,
                    deadline_ms=deadline_ms,
                    report=MemberProgress(epoch=9, is_settled=is_settled),
                ),
            )


@pytest.mark.parametrize(
    ("stored", "member_id", "sequence", "session", "code"),
    [
        (None, "other", 6, 2, ErrorCode.UNKNOWN_MEMBER),
        (MEMBER, "twin", 6, 2, ErrorCode.MEMBER_FENCED),
        (MEMBER, "other", 5, 2, ErrorCode.STALE_HEARTBEAT),
        (MEMBER, "other", 4, 2, ErrorCode.STALE_HEARTBEAT),
        (MEMBER, "other", 5, 4, ErrorCode.STALE_HEARTBEAT),
        (MEMBER, "other", 6, 4, ErrorCode.UNKNOWN_MEMBER),
    ],
)
def test_heartbeat_is_refused(
    stored: Member | None, member_id: str, sequence: int, session: int, code: ErrorCode
) -> None:
    with pytest.raises(PenstockError) as caught:
        touched(
            stored, GROUP, OTHER, SessionTouch(member_id=member_id, sequence=sequence, session=session, deadline_ms=200)
        )
    assert caught.value.code is code


def test_heartbeat_without_a_session_ends_whatever_session_there_is() -> None:
    refuse_heartbeat(MEMBER, GROUP, OTHER, "other", 6, None)
    with pytest.raises(PenstockError, match="STALE_HEARTBEAT"):
        refuse_heartbeat(MEMBER, GROUP, OTHER, "other", 5, None)


@given(st.lists(st.integers(0, 20), max_size=10))
def test_only_rising_sequences_move_a_member_on(sequences: list[int]) -> None:
    member = MEMBER
    for sequence in sequences:
        newest = member.sequence
        with suppress(PenstockError):
            member = touched(
                member,
                GROUP,
                OTHER,
                SessionTouch(member_id="other", sequence=sequence, session=2, deadline_ms=100 + sequence),
            )
        assert member.sequence == max(newest, sequence)


def test_errors_tell_the_caller_its_next_step() -> None:
    assert unknown_member(GROUP, OTHER).code is ErrorCode.UNKNOWN_MEMBER
    assert "join anew" in unknown_member(GROUP, OTHER).message
    assert concurrent_update("group billing").code is ErrorCode.CONCURRENT_UPDATE
    assert "group billing" in concurrent_update("group billing").message
