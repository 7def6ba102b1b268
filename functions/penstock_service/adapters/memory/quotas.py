"""QuotaStore in memory."""

import threading
from collections.abc import Sequence
from dataclasses import replace

from penstock_core.limits import QUOTAS_MAX
from penstock_core.quotas.bucket import Bucket, BucketKey
from penstock_core.quotas.claim import Claim, ClaimKind
from penstock_core.quotas.quota import Quota, Subject, too_many_quotas
from penstock_service.ports.quotas import ChargeOutcome


class MemoryQuotaStore:
    """QuotaStore: the port documents its methods. Buckets stay for good."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._quotas: dict[tuple[Subject, str], Quota] = {}
        self._buckets: dict[BucketKey, Bucket] = {}
        self._claims: dict[str, dict[tuple[ClaimKind, str, str], Claim]] = {}

    def put(self, quota: Quota) -> None:
        with self._lock:
            key = (quota.subject, quota.name)
            if key not in self._quotas and len(self._quotas) >= QUOTAS_MAX:
                raise too_many_quotas()
            self._quotas[key] = quota

    def delete(self, subject: Subject, name: str) -> bool:
        with self._lock:
            return self._quotas.pop((subject, name), None) is not None

    def list(self) -> Sequence[Quota]:
        with self._lock:
            return [self._quotas[key] for key in sorted(self._quotas)]

    def claims(self, principal: str) -> Sequence[Claim]:
        with self._lock:
            return [*self._claims.get(principal, {}).values()]

    def put_claim(self, principal: str, claim: Claim) -> None:
        with self._lock:
            self._claims.setdefault(principal, {})[claim.place] = claim

    def drop_claim(self, principal: str, claim: Claim) -> None:
        with self._lock:
            stored = self._claims.get(principal, {}).get(claim.place)
            if stored is not None and stored.claimed_at_ms == claim.claimed_at_ms:
                del self._claims[principal][claim.place]

    def forget_claim(self, principal: str, kind: ClaimKind, name: str, resource_id: str) -> None:
        with self._lock:
            self._claims.get(principal, {}).pop((kind, name, resource_id), None)

    def charge(self, key: BucketKey, bucket: Bucket, units: int, now_ms: int) -> ChargeOutcome:
        with self._lock:
            stored = self._buckets.get(key)
            if stored is None or (stored.rate, stored.since_ms) != (bucket.rate, bucket.since_ms):
                return ChargeOutcome(is_made=False, bucket=stored)
            if stored.charged >= stored.ceiling(now_ms):
                return ChargeOutcome(is_made=False, bucket=stored)
            charged = replace(stored, charged=stored.charged + units)
            self._buckets[key] = charged
            return ChargeOutcome(is_made=True, bucket=charged)

    def begin(self, key: BucketKey, old: Bucket | None, new: Bucket) -> ChargeOutcome:
        with self._lock:
            stored = self._buckets.get(key)
            if stored != old:
                return ChargeOutcome(is_made=False, bucket=stored)
            self._buckets[key] = new
            return ChargeOutcome(is_made=True, bucket=new)
