"""The consumers whose offsets and records travel with the commit of a transaction, as it sees them."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

from penstock.arguments import check, checked_name, checked_offsets
from penstock.model import GroupOffset, TopicPartition
from penstock.share_model import ShareAcceptance, ShareRecord
from penstock_core.ids import parse_group_name


class LeaseHolder(Protocol):
    """A consumer that is a member of a group."""

    def group_offsets(self, offsets: Mapping[TopicPartition, int]) -> Sequence[GroupOffset]:
        """The offsets, with the leases that prove that this member owns their partitions."""

    def settled(self, offsets: Mapping[TopicPartition, int]) -> None:
        """A transaction has committed the offsets."""


class LockHolder(Protocol):
    """A consumer of a share group."""

    def acceptances(self, records: Iterable[ShareRecord]) -> Sequence[ShareAcceptance]:
        """The records with the locks that prove that this consumer has them."""

    def settled(self, records: Iterable[ShareRecord]) -> None:
        """A transaction has accepted the records."""


def group_offsets(offsets: Mapping[TopicPartition, int], group: str | LeaseHolder) -> Sequence[GroupOffset]:
    """The offsets for a transaction to commit. `group` is the name of a group, or the consumer that is its member."""
    if isinstance(group, str):
        name, checked = checked_name(parse_group_name, group), checked_offsets("offsets", offsets)
        return [GroupOffset(group=name, partition=each, offset=offset) for each, offset in checked.items()]
    check(hasattr(group, "group_offsets"), f"group={group!r:.100}: give the consumer, or the name of a group")
    return group.group_offsets(offsets)
