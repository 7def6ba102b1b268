"""Groups, remembered between requests: their target assignments, which never change, and their place on the list.

A warm heartbeat then reads no target, and does not register its group again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock_core.ids import GroupName
from penstock_core.limits import INSTANCE_GROUPS_MAX, INSTANCE_TARGETS_MAX
from penstock_service.instance.moment import Moment
from penstock_service.ports.runtime import Clock

if TYPE_CHECKING:
    from penstock_core.groups.group import GroupState
    from penstock_core.groups.group_target import TargetAssignment
    from penstock_core.quotas.claim import GroupClaim
    from penstock_service.ports.groups import MembershipStore

REGISTERED_TTL_MS = 10 * 60_000


class GroupCache:
    """A cache over a MembershipStore. Each function instance has one.

    It holds at most `INSTANCE_TARGETS_MAX` targets and `INSTANCE_GROUPS_MAX` names.
    """

    def __init__(self, memberships: MembershipStore, clock: Clock) -> None:
        self._memberships = memberships
        self._clock = clock
        self._targets: dict[tuple[GroupName, str], TargetAssignment] = {}
        self._registered: dict[GroupName, Moment] = {}

    def target_of(self, group: GroupState) -> TargetAssignment | None:
        """The target of the group's epoch. None if a newer epoch has removed it. One query unless it is remembered."""
        from penstock_core.groups.group_target import EMPTY_TARGET, decode_target  # which produce and fetch do not need

        if group.epoch == 0:
            return EMPTY_TARGET
        remembered = self._targets.get((group.name, group.target_id))
        if remembered is not None:
            return remembered
        chunks = self._memberships.get_target(group.name, group.epoch, group.target_id)
        return self.remember(group, decode_target(chunks)) if chunks else None

    def remember(self, group: GroupState, target: TargetAssignment) -> TargetAssignment:
        """Keeps the target of the group's epoch for `target_of`."""
        while len(self._targets) >= INSTANCE_TARGETS_MAX:
            self._targets.pop(next(iter(self._targets)), None)
        self._targets[group.name, group.target_id] = target
        return target

    def knows(self, group: GroupName) -> bool:
        """True if this instance has put the group on the list within `REGISTERED_TTL_MS`."""
        since = self._registered.get(group)
        return since is not None and since.age_ms(self._clock) < REGISTERED_TTL_MS

    def register(self, group: GroupName, claim: GroupClaim | None = None) -> None:
        """Puts the group on the list of groups, with its claim. One update, unless this instance `knows` it."""
        if self.knows(group):
            return
        asked = Moment.now(self._clock)
        self._memberships.register(group, claim)
        if len(self._registered) >= INSTANCE_GROUPS_MAX:
            self._registered.clear()
        self._registered[group] = asked

    def register_new(self, group: GroupName, claim: GroupClaim | None) -> None:
        """Puts a group on the list that has just been made. One update.

        A deletion may have taken it off since `register`, which comes before the group is made (`unlist_group`).
        """
        self.forget(group)
        self.register(group, claim)

    def forget(self, group: GroupName) -> None:
        """Forgets that the group is on the list."""
        self._registered.pop(group, None)
