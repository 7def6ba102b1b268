"""The port of share groups. `penstock_service.ports` says what all methods raise."""

from collections.abc import Mapping, Sequence
from typing import Protocol

from penstock_core.ids import GroupName, Offset
from penstock_core.share.share_group import ShareGroup
from penstock_core.share.share_state import ShareKey, ShareState
from penstock_core.share.share_update import ShareOutcome, ShareUpdate


class ShareStore(Protocol):
    """Share groups, and their states in partitions. Reads are consistent."""

    def get_group(self, group: GroupName) -> ShareGroup | None:
        """The group, or None if there is none. One read."""

    def change_group(self, old: ShareGroup | None, new: ShareGroup) -> None:
        """Stores `new` in place of `old`, which is None if there is no group yet.

        Raises CONCURRENT_UPDATE unless the stored group has the id and the version of `old`. One conditional write.
        """

    def delete_group(self, seen: ShareGroup) -> None:
        """Removes the group. Raises CONCURRENT_UPDATE if it has changed since `seen`. One conditional delete."""

    def list_groups(self, after: str, limit: int) -> Sequence[ShareGroup]:
        """At most `limit` groups whose names come after `after`, sorted. Hidden groups are left out. One query."""

    def find_states(self, keys: Sequence[ShareKey]) -> Mapping[ShareKey, ShareState]:
        """The states of these partitions. A partition that has none is missing. One call for each 100."""

    def create_state(self, key: ShareKey, position: Offset) -> ShareState:
        """Creates the state at `position`, unless there is one, and returns the state that is there then.

        One conditional put.
        """

    def update(self, key: ShareKey, update: ShareUpdate) -> ShareOutcome:
        """Makes the update if its conditions hold (`penstock_core.share.share_update.apply`).

        One conditional update. It is repeated if it may have been applied. Then its own first attempt may refuse it:
        plan again on `before`, which shows the locks of the same nonce, or the records as they were wanted.
        """

    def reset(self, key: ShareKey, seen: ShareState, position: Offset) -> bool:
        """Begins a new generation at `position`, without entries. All locks are lost.

        False if the generation is not that of `seen` any more, perhaps by this call's own first attempt. One
        conditional update.
        """

    def delete_state(self, key: ShareKey) -> None:
        """Removes the state, if there is one. One delete."""
