"""The decision of one heartbeat about leases: the ones that its member gives up, and the ones that it tries to take."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from penstock_core.groups.lease import LEASE_ACTIONS, LeaseAction
from penstock_core.ids import PartitionKey
from penstock_core.limits import ACQUIRE_MAX


@dataclass(frozen=True, slots=True, kw_only=True)
class LeasePlan:
    """The leases that the member releases (`revoked`), those that it lacks (`wanted`), and the ones `tried` now.

    Each is sorted, but `tried` may start in the middle of `wanted`. It has `ACQUIRE_MAX` leases at most.
    """

    revoked: Sequence[PartitionKey]
    wanted: Sequence[PartitionKey]
    tried: Sequence[PartitionKey]

    @property
    def leaves_some_untried(self) -> bool:
        """True if the member wants more leases than one heartbeat may try."""
        return len(self.tried) < len(self.wanted)


def plan_leases(part: Collection[PartitionKey], owned: Collection[PartitionKey], sequence: int) -> LeasePlan:
    """The plan for a member that holds `owned`, and whose part of the target is `part`.

    Of too many wanted leases, each heartbeat (by its `sequence`) tries others. Otherwise an owner that is slow to
    release the first ones would hold up all of them.
    """
    actions = {key: LEASE_ACTIONS[key in part, key in owned] for key in [*part, *owned]}
    wanted = sorted(key for key, action in actions.items() if action is LeaseAction.ACQUIRE)
    start = sequence * ACQUIRE_MAX % len(wanted) if len(wanted) > ACQUIRE_MAX else 0
    return LeasePlan(
        revoked=sorted(key for key, action in actions.items() if action is LeaseAction.REVOKE),
        wanted=wanted,
        tried=(wanted[start:] + wanted[:start])[:ACQUIRE_MAX],
    )
