"""The walls between callers of one stage: instances that a function has for itself, and the request rates of routes.

The setting of the second API, for callers who have tokens (JWT) in place of IAM's keys (docs/adr/0054).
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from penstock_core.acls.tokens import CLAIM_DEFAULT, check_issuer
from penstock_core.quotas.bucket import WaitPool

_UNRESERVED_MIN = 100  # Lambda lets nobody reserve these
_WALLED_MIN = 200  # instances of an account that are worth walls
# Percent of what may be reserved. Polls get little more than half, and commits and heartbeats are short.
_SHARES: Mapping[str, int] = {
    "fetch": 36,
    "share": 18,
    "produce": 30,
    "transactions": 6,
    "groups": 10,
}
NEW_ACCOUNT = 10  # instances that a new account has until it asks for more: what we take an unknown account for
# Percent of the account that pollers of a queue may start at once. Lambda scales each of them to 1,000 by itself.
_POLLER_SHARES: Mapping[str, int] = {"deliver": 10, "promote": 5, "replicate": 5}
_POLLERS_MIN, _POLLERS_MAX = 2, 1_000  # Lambda takes no other maximum concurrency of a mapping
_WAITING = frozenset({"fetch", "share"})
_SHARED_POOL = "stage"


class Instances(Protocol):
    """The settings of a stage that are about instances of its functions."""

    @property
    def account_concurrency(self) -> int | None:
        """The instances that the account has, None if nobody told."""

    @property
    def reserved_concurrency(self) -> Mapping[str, int]:
        """The instances that functions have for themselves."""

    @property
    def waits_max(self) -> int | None:
        """The instances that may wait at once, None for what `wait_pool` takes then."""


def reserved_concurrency(account: int) -> Mapping[str, int]:
    """Returns the instances by function that are reserved, in an account with `account` instances.

    A reserve is a guarantee and a cap. So long polls, which hold an instance for up to 20 s, cannot take the instances
    of producers, commits and heartbeats, and neither can other programs of the account. A quarter of the account stays
    for all others, and at least the 100 that Lambda lets nobody reserve. An account below 200 gets no walls.
    """
    if account < _WALLED_MIN:
        return {}
    reservable = account - max(_UNRESERVED_MIN, account // 4)
    return {name: reservable * percent // 100 for name, percent in _SHARES.items()}


def wait_pool(function: str, settings: "Instances") -> WaitPool | None:
    """Returns the pool of waiting time of a function, None for one whose requests never wait.

    By default a function with a reserve lets half of it wait. The others have one pool together: a quarter of the
    account, which they share with all other functions. An account of unknown size counts as a new one.
    `waits_max` is one pool for all functions.
    """
    if function not in _WAITING:
        return None
    if settings.waits_max is not None:
        return WaitPool(name=_SHARED_POOL, instances=settings.waits_max)
    reserved = settings.reserved_concurrency.get(function)
    if reserved is not None:
        return WaitPool(name=function, instances=max(1, reserved // 2))
    return WaitPool(name=_SHARED_POOL, instances=max(1, _account(settings) // 4))


def pollers_max(function: str, settings: "Instances") -> int:
    """Returns the instances that the pollers of a queue may start for a function at once.

    So a burst of deliveries, timers or repairs cannot take the instances of producers.
    """
    share = _account(settings) * _POLLER_SHARES[function] // 100
    return min(max(share, _POLLERS_MIN), _POLLERS_MAX)


def _account(settings: "Instances") -> int:
    return NEW_ACCOUNT if settings.account_concurrency is None else settings.account_concurrency


def check_reserved(reserved: Mapping[str, int], functions: Mapping[str, object], account: int | None) -> None:
    """Raises ValueError if Lambda would refuse these instances by function, in an account with `account` instances.

    With None, AWS tells at the deployment whether the account has enough.
    """
    for name, instances in reserved.items():
        if name not in functions:
            raise ValueError(f"reserved_concurrency has {name!r}, which is no function: name {', '.join(functions)}")
        if instances < 0:
            raise ValueError(f"reserved_concurrency has {name}={instances}: give 1 instance or more, or 0 to stop it")
    total = sum(reserved.values())
    if total and account is not None and account - total < _UNRESERVED_MIN:
        raise ValueError(
            f"reserved_concurrency has {total:,} of the {account:,} instances of the account: "
            f"leave {_UNRESERVED_MIN}, which Lambda lets nobody reserve"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestRate:
    """The requests that API Gateway takes of one route, from all callers together. It answers 429 to others."""

    per_second: int
    burst: int

    def __post_init__(self) -> None:
        """Raises ValueError for a rate that would refuse all."""
        if self.per_second < 1 or self.burst < 1:
            raise ValueError(f"{self}: give 1 request or more")


REQUEST_RATE = RequestRate(per_second=5_000, burst=2_500)
# API Gateway takes 10,000 requests a second for all APIs of an account and region. Readers and operators get less than
# half of them, so that the other routes can take 5,000 each as long as their callers leave each other room.
ROUTE_RATES: Mapping[str, RequestRate] = {
    "fetch": RequestRate(per_second=2_500, burst=1_250),
    "records_fetch": RequestRate(per_second=1_000, burst=500),
    "group_admin": RequestRate(per_second=100, burst=100),
    "share_admin": RequestRate(per_second=100, burst=100),
    "subscriptions": RequestRate(per_second=50, burst=50),
    "quotas": RequestRate(per_second=10, burst=10),
    "zones": RequestRate(per_second=10, burst=10),
    "acls": RequestRate(per_second=10, burst=10),
}
_ACCOUNT_RATE, _SMALL_ACCOUNT_RATE = 10_000, 2_500  # requests a second of an account, by AWS's default
# "API Gateway quotas" in its guide, read 2026-11-28. There Service Quotas shows 10,000, and the account has less.
_SMALL_REGIONS = frozenset((
    "af-south-1", "ap-south-2", "ap-southeast-3", "ap-southeast-4", "ap-southeast-5", "ap-southeast-7", "ca-west-1",
    "eu-central-2", "eu-south-1", "eu-south-2", "il-central-1", "me-central-1", "mx-central-1",
))  # fmt: skip


def account_rate(region: str | None) -> int:
    """Returns the requests a second that API Gateway takes by default of an account in the region."""
    return _SMALL_ACCOUNT_RATE if region in _SMALL_REGIONS else _ACCOUNT_RATE


def scaled(rate: RequestRate, account: int) -> RequestRate:
    """Returns the rate in an account that takes `account` requests a second: as it is, or lower in proportion."""
    share = min(1.0, account / _ACCOUNT_RATE)
    return RequestRate(per_second=max(1, int(rate.per_second * share)), burst=max(1, int(rate.burst * share)))


TOKEN_RATE = RequestRate(per_second=250, burst=250)  # of each route: strangers share the account's 10,000 with it
_CLAIM = re.compile(r"[A-Za-z0-9_:./-]{1,100}", re.ASCII)
_LOCAL = ("http://127.0.0.1:", "http://localhost:")
_AUDIENCES_MAX = 50  # API Gateway takes as many of one authorizer


@dataclass(frozen=True, slots=True, kw_only=True)
class Jwt:
    """The tokens that a stage takes: those of one `issuer`, for one of `audiences`.

    API Gateway reads the issuer's keys from `<issuer>/.well-known/openid-configuration`. The caller is
    `jwt:<issuer>#<claim>`. Choose a claim that no caller may choose: `sub`, unless you know better. With `scopes`, a
    token needs one of them, which keeps out ID tokens. `request_rate` applies to each route, for all tokens together;
    a route whose rate on the stage is lower has that.
    """

    issuer: str
    audiences: Sequence[str]
    claim: str = CLAIM_DEFAULT
    scopes: Sequence[str] = ()
    request_rate: RequestRate = TOKEN_RATE

    def __post_init__(self) -> None:
        """Raises ValueError for what would let in tokens that are not for this stage."""
        check_issuer(self.issuer)
        if not self.issuer.startswith(("https://", *_LOCAL)):
            raise ValueError(f"issuer {self.issuer!r}: API Gateway takes https:// only, as the keys come from there")
        if isinstance(self.audiences, str) or isinstance(self.scopes, str):
            raise ValueError("audiences and scopes are sequences of texts, not a text")
        if not 1 <= len(self.audiences) <= _AUDIENCES_MAX or not all(self.audiences):
            raise ValueError(f"audiences {[*self.audiences]}: give 1 to {_AUDIENCES_MAX}; a token of any would do else")
        if not all(self.scopes):
            raise ValueError(f"scopes {[*self.scopes]}: give each scope a name, or none")
        if not _CLAIM.fullmatch(self.claim):
            raise ValueError(f"claim {self.claim!r:.100}: give the name of a claim, such as sub")
