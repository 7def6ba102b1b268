"""What a producer waits for, and how many zones a quorum is; `zone_state.is_stored` puts both together."""

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


def majority_of(configured: int) -> int:
    """How many zones a quorum is."""
    return configured // 2 + 1
