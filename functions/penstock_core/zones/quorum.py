"""The acknowledgement that a producer waits for, and the size of a quorum; `zone_state.is_stored` joins the two."""

from enum import Enum

from penstock_core.errors import ErrorCode, PenstockError, shown


class Acks(Enum):
    """The number of zones that must confirm an append.

    `NONE` is stored as `ONE`; its client does not wait for the answer.
    """

    NONE = "none"
    ONE = "one"
    QUORUM = "quorum"
    ALL = "all"


ACKS_ALIASES = {"leader": Acks.ONE, "1": Acks.ONE}  # Kafka's names of `one`


def parse_acks(text: object) -> Acks:
    """The acks of that name, or of that alias. Raises INVALID_REQUEST, which names the value and the choices."""
    if isinstance(text, str) and text in ACKS_ALIASES:
        return ACKS_ALIASES[text]
    try:
        return Acks(text)
    except ValueError:
        choices = ", ".join(acks.value for acks in Acks)
        raise PenstockError(ErrorCode.INVALID_REQUEST, f"acks={shown(text)}: must be one of {choices}") from None


def majority_of(configured: int) -> int:
    """The number of zones in a quorum."""
    return configured // 2 + 1
