"""How many zones must hold a segment before its append may be committed."""

from enum import Enum

from penstock_core.errors import ErrorCode, PenstockError


class Acks(Enum):
    """What a producer waits for. `NONE` is stored as `LEADER`; its client does not wait for the answer."""

    NONE = "none"
    LEADER = "leader"
    QUORUM = "quorum"
    ALL = "all"


def parse_acks(text: object) -> Acks:
    """Raises INVALID_REQUEST naming the value and the choices."""
    try:
        return Acks(text)
    except ValueError:
        choices = ", ".join(acks.value for acks in Acks)
        raise PenstockError(ErrorCode.INVALID_REQUEST, f"acks={text!r}: must be one of {choices}") from None


def zones_needed(acks: Acks, configured: int, in_sync: int) -> int:
    """A quorum is a majority of the *configured* zones, so that two quorums always share one; `all` means every
    zone in sync, and never fewer than a quorum."""
    majority = configured // 2 + 1
    match acks:
        case Acks.NONE | Acks.LEADER:
            return 1
        case Acks.QUORUM:
            return majority
        case Acks.ALL:
            return max(majority, in_sync)
