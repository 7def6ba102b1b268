"""What a function instance remembers of groups: targets, which never change, and which groups are on the list."""

from penstock_broker.ports import Clock, MembershipStore
from penstock_core.group import GroupState
from penstock_core.group_target import EMPTY_TARGET, Target, decode_target
from penstock_core.ids import GroupName

REGISTERED_TTL_MS = 10 * 60_000  # a group deleted and used again is back on the list after this time
_TARGETS_MAX = 16
_REGISTERED_MAX = 10_000


class GroupDirectory:
    """A cache over a MembershipStore. One instance per function instance."""

    def __init__(self, memberships: MembershipStore, clock: Clock) -> None:
        self._memberships = memberships
        self._clock = clock
        self._targets: dict[tuple[GroupName, str], Target] = {}
        self._registered: dict[GroupName, float] = {}

    def target_of(self, group: GroupState) -> Target | None:
        """The target of the group's epoch; None if it is gone, as there is a newer one. A query unless remembered."""
        if group.epoch == 0:
            return EMPTY_TARGET
        remembered = self._targets.get((group.name, group.target_id))
        if remembered is not None:
            return remembered
        chunks = self._memberships.get_target(group.name, group.epoch, group.target_id)
        return self.remember(group, decode_target(chunks)) if chunks else None

    def remember(self, group: GroupState, target: Target) -> Target:
        """Keeps the target of the group's epoch for `target_of`."""
        while len(self._targets) >= _TARGETS_MAX:
            self._targets.pop(next(iter(self._targets)), None)
        self._targets[group.name, group.target_id] = target
        return target

    def register(self, group: GroupName) -> None:
        """Sees to it that the group is listed. One put, unless it was done here lately."""
        since_ms = self._registered.get(group)
        now_ms = self._clock.monotonic_ms()
        if since_ms is not None and now_ms - since_ms < REGISTERED_TTL_MS:
            return
        self._memberships.register(group)
        if len(self._registered) >= _REGISTERED_MAX:
            self._registered.clear()
        self._registered[group] = now_ms
