"""Target assignments of groups, remembered between requests: they never change. A warm heartbeat then reads none."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock_core.ids import GroupName
from penstock_core.limits import INSTANCE_TARGETS_MAX

if TYPE_CHECKING:
    from penstock_core.groups.group import GroupState
    from penstock_core.groups.group_target import TargetAssignment
    from penstock_service.ports.groups import MembershipStore


class GroupCache:
    """A cache over a MembershipStore, at most `INSTANCE_TARGETS_MAX` targets. Each function instance has one."""

    def __init__(self, memberships: MembershipStore) -> None:
        self._memberships = memberships
        self._targets: dict[tuple[GroupName, str], TargetAssignment] = {}

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
