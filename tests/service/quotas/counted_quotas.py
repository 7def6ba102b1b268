"""A QuotaStore in memory that counts calls and may fail."""

from collections.abc import Sequence

from penstock_core.errors import PenstockError
from penstock_core.quotas.bucket import Bucket, BucketKey
from penstock_core.quotas.quota import Quota
from penstock_service.adapters.dynamodb.quotas import DynamoDbQuotaStore
from penstock_service.ports.access import ChargeOutcome
from tests.support.tables import memory_client


class CountedQuotas(DynamoDbQuotaStore):
    """Counts charges and beginnings in `calls`, reads of all quotas in `lists`, and raises a `failure` that is set."""

    def __init__(self) -> None:
        super().__init__(memory_client(), "groups")
        self.calls = 0
        self.lists = 0
        self.failure: PenstockError | None = None

    def list(self) -> Sequence[Quota]:
        self.lists += 1
        return super().list()

    def charge(self, key: BucketKey, bucket: Bucket, units: int, now_ms: int) -> ChargeOutcome:
        self._note()
        return super().charge(key, bucket, units, now_ms)

    def begin(self, key: BucketKey, old: Bucket | None, new: Bucket) -> ChargeOutcome:
        self._note()
        return super().begin(key, old, new)

    def _note(self) -> None:
        self.calls += 1
        if self.failure is not None:
            raise self.failure
