"""The records that a target gets, and its answers."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from penstock_core.ids import Offset, PartitionKey, SubscriptionId, SubscriptionName, TopicName

if TYPE_CHECKING:  # the codec, which most functions that know this port do not need
    from penstock_core.records.codec import Record


class Failure(StrEnum):
    """The kinds of failure of a whole batch."""

    AWAY = "away"
    """The target is throttled, denied, missing or out of reach. It tells nothing of the records, ever."""
    BROKEN = "broken"
    """The target answers 5xx, or not in time. That may be the fault of the records."""
    REFUSAL = "refusal"
    """The target could not handle these records."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PushRecord:
    """One record with its place."""

    topic: TopicName
    key: PartitionKey
    record: "Record"

    @property
    def place(self) -> tuple[PartitionKey, Offset]:
        """The partition and the offset."""
        return self.key, Offset(self.record.offset)


@dataclass(frozen=True, slots=True, kw_only=True)
class PushBatch:
    """One delivery. In ordered mode all records are of one partition, in order.

    `attempt` counts from 1 for the same records.
    """

    subscription: SubscriptionName
    subscription_id: SubscriptionId
    records: Sequence[PushRecord]
    attempt: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Answered:
    """The target has answered. The records at the places of `failed`, all of the batch, could not be handled."""

    failed: frozenset[tuple[PartitionKey, Offset]] = frozenset()
    error: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Failed:
    """The target has not confirmed the batch. It may have handled it."""

    failure: Failure
    error: str


Answer = Answered | Failed


def reason_of(failed: Failed) -> str:
    """The reason of a dead letter: the words of the target, or the kind of the failure if it has said nothing."""
    return failed.error.strip() or f"{failed.failure.value}, without a word of the target"
