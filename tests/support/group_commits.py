"""The committed offsets of a group, read from its store."""

from collections.abc import Sequence

from penstock_core.groups.lease import CommittedOffset
from penstock_core.ids import GroupName
from penstock_core.storage.groups.lease_item import committed_of
from penstock_service.ports.groups import GroupStore


def commits_of(groups: GroupStore, group: GroupName) -> Sequence[CommittedOffset]:
    """All of the group's commits, in no order."""
    found = map(committed_of, groups.leases(group))
    return [committed for committed in found if committed is not None]
