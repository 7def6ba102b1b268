"""Admit a request by the quotas of its principal and its topics, before anything is stored or read for it."""

from collections.abc import Mapping
from dataclasses import dataclass

from penstock_core.errors import PenstockError
from penstock_core.limits import QUOTA_FETCH_BYTES_MIN
from penstock_core.quotas.bucket import BucketKey
from penstock_core.quotas.quota import Rate, Subject
from penstock_service.instance.instance import Instance
from penstock_service.quotas.take_share import take_share


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
    taken: list[tuple[BucketKey, int]] = []
    for rate, needed in units.items():
        limit = instance.quota_cache.rate_of(spender.subject, spender.name, rate)
        if limit is None:
            continue
        key = _key(spender, rate)
        try:
            take_share(instance, key, limit, needed)
        except PenstockError:
            for before, count in taken:
                instance.quota_shares.spend(before, -count)
            raise
        taken.append((key, needed))


def admit_fetch(instance: Instance, spender: Spender, max_bytes: int) -> int:
    """Takes one fetch of the spender's quotas, and gives the bytes that it may answer, at most `max_bytes`.

    The bytes themselves are spent when they are known (`spend_fetched`). A fetch may answer `QUOTA_FETCH_BYTES_MIN`
    however little is left, and one batch: a debt, which delays the next fetch. Raises THROTTLED. Costs as `admit`.
    """
    limit = instance.quota_cache.rate_of(spender.subject, spender.name, Rate.FETCH_BYTES)
    if limit is not None:
        key = _key(spender, Rate.FETCH_BYTES)
        take_share(instance, key, limit, 1, max_bytes)
        max_bytes = min(max_bytes, max(QUOTA_FETCH_BYTES_MIN, instance.quota_shares.left(key)))
    admit(instance, spender, {Rate.FETCH_REQUESTS: 1})
    return max_bytes


def spend_fetched(instance: Instance, spender: Spender, fetched_bytes: int) -> None:
    """Spends the bytes that a fetch has answered. Sends no call."""
    if instance.quota_cache.rate_of(spender.subject, spender.name, Rate.FETCH_BYTES) is not None:
        instance.quota_shares.spend(_key(spender, Rate.FETCH_BYTES), fetched_bytes)


def _key(spender: Spender, rate: Rate) -> BucketKey:
    return BucketKey(subject=spender.subject, name=spender.bucket_name, rate=rate)
