"""Acquire within the fetch quotas of the caller and of the topics.

A quota never holds up an acknowledgement: its lock would end meanwhile, and the record would come again, and spend
the quota once more.

| the quota that is spent  | what the call does                                                          |
|--------------------------|-----------------------------------------------------------------------------|
| that of some topics      | hands out records of the others, and says when to come back                 |
| the caller's, or of all  | acknowledges, hands out nothing, and says when to come back                 |
| the same, in a call      | answers THROTTLED                                                           |
| without acknowledgements |                                                                             |
"""

from collections import Counter
from dataclasses import replace

from penstock_core.errors import PenstockError
from penstock_core.ids import LockNonce
from penstock_service.instance.instance import Instance
from penstock_service.quotas.admit import allow_fetch
from penstock_service.share.acknowledge import acknowledge_entries, group_of
from penstock_service.share.acquire.acquire import Acquired, AcquireWish, acquire


def acquire_within_quotas(instance: Instance, principal: str, group_name: str, wish: AcquireWish) -> Acquired:
    """The answer of `acquire` for as much of the wish as the quotas leave.

    Costs what `take_share` costs for each quota, and what `acquire` costs. Raises THROTTLED before anything is
    acquired, and what `acquire` raises.
    """
    topics = wish.taken_topics
    if topics is None:
        topics = frozenset(instance.share_group_cache.get(group_name).topics)
    try:
        allowance = allow_fetch(instance, principal, topics, wish.bytes_max)
    except PenstockError as error:
        if "quota" not in error.facts or not wish.acknowledgements:
            raise
        return _acknowledged_only(instance, group_name, wish, int(error.facts["retry_after_ms"]))
    wish = replace(wish, bytes_max=allowance.max_bytes)
    if allowance.refused:
        wish = replace(wish, may_take=topics - allowance.refused.keys())
    acquired = acquire(instance, group_name, wish)
    allowance.settle(instance, _sizes(acquired))
    again_ms = [int(error.facts["retry_after_ms"]) for error in allowance.refused.values()]
    return _available_in(acquired, min(again_ms)) if again_ms else acquired


def _acknowledged_only(instance: Instance, group_name: str, wish: AcquireWish, retry_after_ms: int) -> Acquired:
    group = group_of(instance, group_name, wish.acknowledgements)
    outcomes = acknowledge_entries(instance, group, wish.acknowledgements)
    return Acquired(
        group=group,
        nonce=wish.nonce or LockNonce(""),  # no lock is told
        lock_ms=group.config.lock_ms if wish.lock_ms is None else wish.lock_ms,
        now_ms=instance.clock.now_ms(),
        partitions=(),
        acknowledged=outcomes,
        next_available_ms=retry_after_ms,
        returns_in_ms=retry_after_ms,
        blocked=frozenset(),
        watched=(),
    )


def _available_in(acquired: Acquired, again_ms: int) -> Acquired:
    known_ms = acquired.next_available_ms
    return replace(acquired, next_available_ms=again_ms if known_ms is None else min(known_ms, again_ms))


def _sizes(acquired: Acquired) -> dict[str, int]:
    """The bytes of the batches that are handed out, or were read for records that the filter finished, by topic."""
    sizes: Counter[str] = Counter(acquired.passed_bytes)
    for each in acquired.partitions:
        for lock in each.locks:
            sizes[lock.partition.topic] += sum(len(batch.data) for batch in lock.batches)
    return sizes
