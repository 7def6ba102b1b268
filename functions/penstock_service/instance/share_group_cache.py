"""Share groups by name, remembered between requests, so that a warm acquire or acknowledgement reads no group.

A remembered group may be up to `TTL_MS` old. That is safe: the states of a group that was deleted are gone, and none is
made for it (`ShareStore.begin_state`). A change of its settings takes so long until all instances go by it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.ids import GroupName, parse_group_name
from penstock_core.limits import INSTANCE_GROUPS_MAX
from penstock_service.instance.moment import Moment
from penstock_service.ports.runtime import Clock

if TYPE_CHECKING:
    from penstock_core.share.share_group import ShareGroup
    from penstock_service.ports.share import ShareStore

TTL_MS = 10_000


class ShareGroupCache:
    """A cache over a ShareStore, at most `INSTANCE_GROUPS_MAX` groups. Each function instance has one."""

    def __init__(self, share: ShareStore, clock: Clock) -> None:
        self._share = share
        self._clock = clock
        self._remembered: dict[GroupName, tuple[Moment, ShareGroup]] = {}

    def get(self, name: str) -> ShareGroup:
        """The group, as it is or was at most `TTL_MS` ago. One read if the cache does not know it.

        Raises INVALID_NAME or UNKNOWN_SHARE_GROUP.
        """
        remembered = self._remembered.get(GroupName(name))
        if remembered is not None and remembered[0].age_ms(self._clock) < TTL_MS:
            return remembered[1]
        return self.read_through(name)

    def read_through(self, name: str) -> ShareGroup:
        """The group as it is now; the cache remembers it. One read. Raises INVALID_NAME or UNKNOWN_SHARE_GROUP."""
        group_name = parse_group_name(name)
        asked = Moment.now(self._clock)
        group = self._share.get_group(group_name)
        if group is None:
            self.forget(name)
            raise unknown_share_group(group_name)
        if len(self._remembered) >= INSTANCE_GROUPS_MAX:
            self._remembered.clear()
        self._remembered[group_name] = (asked, group)
        return group

    def forget(self, name: str) -> None:
        """Makes the next `get` of this group read it."""
        self._remembered.pop(GroupName(name), None)


def unknown_share_group(name: GroupName) -> PenstockError:
    """The error for a name that no share group has."""
    return PenstockError(ErrorCode.UNKNOWN_SHARE_GROUP, f"share group {name!r} does not exist: create it first")
