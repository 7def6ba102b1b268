"""Take the leases of a member's part of the target that nobody else holds any more."""

from collections.abc import Mapping, Sequence

from penstock_broker.broker import Broker
from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.group import GroupState
from penstock_core.ids import EPOCH_BYTES, MemberName, TopicName, drawn_number
from penstock_core.keys import PartitionKey
from penstock_core.lease import ATTEMPTS, Attempt, Lease, holder_of, next_epoch


def acquire_leases(
    broker: Broker, state: GroupState, name: MemberName, wanted: Mapping[PartitionKey, TopicName]
) -> tuple[Sequence[Lease], bool]:
    """The leases taken, and whether `state` has been found outdated. `wanted` is part of the member's part at the
    group's epoch, 100 partitions at most, and the member's item says that it knows that epoch.

    One read of the leases and one of their owners, in this order (`holder_of`), and one conditional update for each
    that may be taken. What fails is left to the next heartbeat: the lease may have been taken, and is then taken
    again.
    """
    if not wanted:
        return (), False
    leases = broker.groups.find_leases(state.name, [*wanted])
    owners = {lease.owner for lease in leases.values() if lease.owner not in (None, name)}
    members = broker.memberships.find_members(state.name, sorted(filter(None, owners))) if owners else {}
    attempts = {key: ATTEMPTS[holder_of(leases.get(key), name, state.epoch, members)] for key in wanted}

    def take(key: PartitionKey) -> Lease:
        seen = leases.get(key) or Lease(topic=wanted[key], partition=key)
        epoch = next_epoch(seen, drawn_number(broker.chance.random_bytes(EPOCH_BYTES)))
        return broker.groups.take_lease(state.name, seen, name, epoch)

    results = broker.parallel.map(take, [key for key, attempt in attempts.items() if attempt is Attempt.TAKE])
    broker.events.count("leases_acquired", sum(isinstance(result, Lease) for result in results))
    is_outdated = Attempt.LOOK_AGAIN in attempts.values() or any(
        isinstance(result, PenstockError) and result.code is ErrorCode.CONCURRENT_UPDATE for result in results
    )
    return [result for result in results if isinstance(result, Lease)], is_outdated
