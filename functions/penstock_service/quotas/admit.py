"""Admit a request by the quotas of its principal and its topics, before anything is stored or read for it."""

from collections.abc import Mapping
from dataclasses import dataclass

from penstock_core.errors import PenstockError
from penstock_core.limits import QUOTA_FETCH_BYTES_MIN
from penstock_core.quotas.bucket import BucketKey
from penstock_core.quotas.quota import Rate, Subject
from penstock_service.instance.instance import Instance
from penstock_service.quotas.take_share import take_share

_ONE_FETCH = {Rate.FETCH_REQUESTS: 1}


@dataclass(frozen=True, slots=True, kw_only=True)
class Spender:
    """A principal or a topic: whose quota it is, and the name of its buckets."""

    subject: Subject
    name: str
    bucket_name: str


def admit(instance: Instance, spender: Spender, units: Mapping[Rate, int]) -> None:
    """Takes units of each rate that has a quota. Raises THROTTLED for the first that is spent, and gives back the rest.

    Costs what `take_share` costs for each quota, and nothing without quotas.
    """
    taken: dict[Rate, int] = {}
    for rate, needed in units.items():
        limit = instance.quota_cache.rate_of(spender.subject, spender.name, rate)
        if limit is None:
            continue
        try:
            take_share(instance, _key(spender, rate), limit, needed)
        except PenstockError:
            give_back(instance, spender, taken)
            raise
        taken[rate] = needed


def give_back(instance: Instance, spender: Spender, units: Mapping[Rate, int]) -> None:
    """Gives back what `admit` has taken for a request that another quota refuses. Sends no call."""
    for rate, count in units.items():
        if instance.quota_cache.rate_of(spender.subject, spender.name, rate) is not None:
            instance.quota_shares.spend(_key(spender, rate), -count)


def admit_fetch(instance: Instance, spender: Spender, max_bytes: int) -> int:
    """Takes one fetch of the spender's quotas, and gives the bytes that it may answer, at most `max_bytes`.

    The bytes themselves are spent when they are known (`spend_fetched`). A fetch may answer `QUOTA_FETCH_BYTES_MIN`
    however little is left, and one batch: a debt, which delays the next fetch. Raises THROTTLED. Costs as `admit`.
    """
    admit(instance, spender, _ONE_FETCH)
    limit = instance.quota_cache.rate_of(spender.subject, spender.name, Rate.FETCH_BYTES)
    if limit is None:
        return max_bytes
    key = _key(spender, Rate.FETCH_BYTES)
    try:
        take_share(instance, key, limit, 1, max_bytes)
    except PenstockError:
        give_back(instance, spender, _ONE_FETCH)
        raise
    return min(max_bytes, max(QUOTA_FETCH_BYTES_MIN, instance.quota_shares.left(key)))


def give_back_fetch(instance: Instance, spender: Spender) -> None:
    """Gives back what `admit_fetch` has taken for a call that other quotas refuse. Sends no call."""
    give_back(instance, spender, _ONE_FETCH)


def spend_fetched(instance: Instance, spender: Spender, fetched_bytes: int) -> None:
    """Spends the bytes that a fetch has answered, or has read and passed over. Sends no call."""
    if instance.quota_cache.rate_of(spender.subject, spender.name, Rate.FETCH_BYTES) is not None:
        instance.quota_shares.spend(_key(spender, Rate.FETCH_BYTES), fetched_bytes)


def _key(spender: Spender, rate: Rate) -> BucketKey:
    return BucketKey(subject=spender.subject, name=spender.bucket_name, rate=rate)
