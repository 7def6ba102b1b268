"""Access rules and quotas as operators see and write them. All values are immutable."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessRule:
    """A rule: it allows or denies a principal an operation on resources.

    `principal` is the ARN of an IAM role or user, or `jwt:<issuer>#<subject>`. `operation` is read, write, create,
    describe, alter, delete or all. `resource` is such as `topic:orders`, `group:billing`, `service`, or `*` for
    everything. A `*` at the end of a principal or a resource's name stands for any characters. `permission` is allow or
    deny, and a deny wins.
    """

    principal: str
    operation: str
    resource: str
    permission: str = "allow"


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessChange:
    """The rules that a call has added and removed, without those that were there before, or were not."""

    added: tuple[AccessRule, ...]
    removed: tuple[AccessRule, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessDecision:
    """The decision about a right of a principal, and its cause.

    `reason` is "an allow rule", "a deny rule", "the stage's default" or "super principal".
    """

    principal: str
    operation: str
    resource: str
    is_allowed: bool
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Quota:
    """The limits of one principal or topic, or of all whose names match a pattern that ends in "*".

    Each that matches has these limits for itself; with `shared`, all of them have them together. Each limit is that of
    the most specific quota that has it: the name itself, then the longest pattern. The name "*" is the default.

    `limits` has rates in bytes or requests a second: `produce_bytes_per_s`, `produce_requests_per_s`,
    `fetch_bytes_per_s`, `fetch_requests_per_s`. A principal may also have bounds of what it creates: `topics_max`,
    `partitions_max`, `groups_max` (share groups among them) and `subscriptions_max`. There is no bound for a limit that
    is missing.
    """

    subject: str
    name: str
    limits: Mapping[str, int]
    shared: bool = False
