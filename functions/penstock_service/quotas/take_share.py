"""Take units of a quota: from the share that this instance has charged, else from the bucket that all instances charge.

A request far below its quota takes from the share, and sends no call. See docs/protocol/access for the arithmetic.
"""

from dataclasses import dataclass
from math import ceil

from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.limits import QUOTA_ATTEMPTS_MAX, QUOTA_WAIT_MS_MAX
from penstock_core.quotas.bucket import BucketKey, fresh_bucket, units_to_charge
from penstock_core.quotas.quota import Subject
from penstock_service.instance.instance import Instance
from penstock_service.ports.access import ChargeOutcome

_CHANCES = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class _Charge:
    """The units that a request needs, those that its share lacks for it with the debt, and those that may come next."""

    needed: int
    missing: int
    ahead: int

    def units(self, rate: int, credit: int) -> int:
        """The units to charge with that credit."""
        return units_to_charge(rate=rate, needed=self.missing, expected=self.missing + self.ahead, credit=credit)


def take_share(instance: Instance, key: BucketKey, rate: int, needed: int, wanted: int = 0) -> None:
    """Takes `needed` units of a quota of `rate` units a second.

    A charge asks for `wanted` units, if they are more and there is credit. Costs nothing while the share lasts; else
    one or two conditional writes, and up to `QUOTA_ATTEMPTS_MAX` if other instances change the bucket. Raises THROTTLED
    with `retry_after_ms`: nothing was taken. If the bucket cannot be reached, the request passes.
    """
    shares = instance.quota_shares
    missing = shares.take(key, needed, rate)
    if missing is None:
        return
    blocked_ms = shares.blocked_ms(key)
    if blocked_ms > 0:
        raise over_quota(key, rate, blocked_ms)
    try:
        ahead = max(shares.expected(key), wanted - needed)
        _charge(instance, key, rate, _Charge(needed=needed, missing=missing, ahead=ahead))
    except PenstockError as error:
        if "quota" in error.facts:
            raise
        if error.code is ErrorCode.THROTTLED:  # that many charges are this principal's own doing
            raise over_quota(key, rate, QUOTA_WAIT_MS_MAX // 60) from error
        instance.telemetry.log("quota_uncharged", subject=key.subject, rate=key.rate, error=error.code.name)
    shares.spend(key, needed)


def over_quota(key: BucketKey, rate: int, wait_ms: float) -> PenstockError:
    """The error of a request over its quota. It names the quota and the time to wait."""
    retry_after_ms = ceil(min(max(wait_ms, 1), QUOTA_WAIT_MS_MAX))
    whose = "your principal" if key.subject == Subject.PRINCIPAL else "the topic"
    return PenstockError(
        ErrorCode.THROTTLED,
        f"{whose} has spent its quota {key.rate}={rate}: try again in {retry_after_ms} ms, or have the quota raised",
        retry_after_ms=retry_after_ms,
        quota=str(key.rate),
        subject=str(key.subject),
    )


def _charge(instance: Instance, key: BucketKey, rate: int, charge: _Charge) -> None:
    """Charges the bucket for the share. Raises THROTTLED if there is no credit.

    A debt was spent by an earlier request. It is charged in any case, and this request passes if credit is left.
    """
    known = instance.quota_shares.bucket(key)
    for _ in range(QUOTA_ATTEMPTS_MAX):
        now_ms = instance.clock.now_ms()
        if known is not None and known.rate == rate and not known.is_overfull(now_ms):
            units = charge.units(rate, known.credit(now_ms))
            outcome = instance.stores.quotas.charge(key, known, units, now_ms)
        else:
            burst = fresh_bucket(rate, 0, now_ms).credit(now_ms)
            units = charge.units(rate, burst)
            outcome = instance.stores.quotas.begin(key, known, fresh_bucket(rate, units, now_ms))
        if outcome.is_made and outcome.bucket is not None:
            instance.quota_shares.add(key, units, outcome.bucket)
            if charge.missing > charge.needed:
                _refuse_if_spent(instance, key, rate, outcome)
            return
        _refuse_if_spent(instance, key, rate, outcome)
        known = outcome.bucket
    raise over_quota(key, rate, 1)


def _refuse_if_spent(instance: Instance, key: BucketKey, rate: int, outcome: ChargeOutcome) -> None:
    """Raises THROTTLED, and remembers it, if the bucket has no credit."""
    bucket = outcome.bucket
    if bucket is None or bucket.rate != rate:
        return
    wait_ms = bucket.wait_ms(instance.clock.now_ms())
    if wait_ms <= 0:
        return
    chance = instance.entropy.random_bytes(1)[0] / _CHANCES  # instances do not come back together
    raise over_quota(key, rate, instance.quota_shares.block(key, bucket, wait_ms, chance))
