"""Quotas as operators see them. All values are immutable."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Quota:
    """The limits of one principal or topic. The name "*" is the default of all that have no quota of their own.

    `limits` has rates in bytes or requests a second: `produce_bytes_per_s`, `produce_requests_per_s`,
    `fetch_bytes_per_s`, `fetch_requests_per_s`. A principal may also have bounds of what it creates: `topics_max`,
    `partitions_max`, `groups_max` (share groups among them) and `subscriptions_max`. There is no bound for a limit that
    is missing.
    """

    subject: str
    name: str
    limits: Mapping[str, int]
