"""The port of share groups. `penstock_service.ports` says what all methods raise."""

from collections.abc import Mapping, Sequence
from typing import Protocol

from penstock_core.ids import GroupName, Offset
from penstock_core.share.draft import ShareOutcome, ShareUpdate
from penstock_core.share.share_group import ShareGroup
from penstock_core.share.share_state import ShareKey, ShareState


class ShareStore(Protocol):
    """Share groups, and their states in partitions. Reads are consistent."""

    def get_group(self, group: GroupName) -> ShareGroup | None:
        """The group, or None if there is none. One read."""

    def change_group(self, old: ShareGroup | None, new: ShareGroup) -> None:
        """Stores `new` in place of `old`, which is None if there is no group yet.

        Raises CONCURRENT_UPDATE unless the stored group has the id and the version of `old`. One conditional write.
        """

    def delete_group(self, seen: ShareGroup) -> None:
        """Puts the hidden `deletion_note` in place of the group, so that its states can be found.

        Raises CONCURRENT_UPDATE if the group has changed since `seen`. One transaction of a delete and a put.
        """

    def forget_group(self, hidden: ShareGroup) -> None:
        """Removes a hidden group, if it is there. One delete."""

    def hidden_groups(self, after: str, limit: int) -> Sequence[ShareGroup]:
        """At most `limit` hidden groups whose names come after `after`, sorted. One query."""

    def list_groups(self, after: str, limit: int) -> Sequence[ShareGroup]:
        """At most `limit` groups whose names come after `after`, sorted. Hidden groups are left out. One query."""

    def find_states(self, keys: Sequence[ShareKey]) -> Mapping[ShareKey, ShareState]:
        """The states of these partitions. A partition that has none is missing. One call for each 100."""

    def create_state(self, key: ShareKey, position: Offset) -> ShareState:
        """Creates the state of a group that nobody sees yet, unless there is one. Returns the state that is there then.

        One conditional put.
        """

    def begin_state(self, group: GroupName, key: ShareKey, position: Offset) -> ShareState | None:
        """As `create_state`, but only while the group is there. None: it was deleted, or made anew.

        One transaction of a condition on the group and a conditional put. One read more if the state is there already.
        """

    def begin_states(self, group: GroupName, begins: Mapping[ShareKey, Offset]) -> bool:
        """As `begin_state`, for `SHARE_BEGINS_MAX` states of one group at most. A state that is there stays as it is.

        False: the group was deleted, or made anew. One transaction. If some of the states are there already, one read
        and one transaction more. Raises THROTTLED if others begin them all the time.
        """

    def update(self, key: ShareKey, update: ShareUpdate) -> ShareOutcome:
        """Makes the update if its conditions hold (`penstock_core.share.draft.apply`).

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
