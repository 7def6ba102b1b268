"""The clients of a function in Lambda: direct ones for segments and for DynamoDB, botocore's for what is left."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from penstock_service.adapters.direct.dynamodb import DirectDynamoDb
from penstock_service.adapters.direct.places import Places
from penstock_service.adapters.direct.s3 import DirectS3
from penstock_service.adapters.direct.signature import Keys
from penstock_service.adapters.on_demand import OnDemand
from penstock_service.adapters.storage_calls import StorageCalls
from penstock_service.ports.runtime import Runtime

if TYPE_CHECKING:
    from penstock_service.adapters.drivers import Drivers


class DirectDrivers:
    """Drivers: the protocol documents its methods. `others` makes botocore's when something first needs them."""

    def __init__(
        self,
        places: Places,
        keys: Keys,
        runtime: Runtime,
        calls: StorageCalls,
        others: "Callable[[], Drivers]",
    ) -> None:
        self.region = places.region
        self._keys = keys
        self._others = OnDemand(others)
        self.dynamodb = DirectDynamoDb(places, self.keys, runtime.clock.now_ms, calls)
        self._s3 = DirectS3(places, self.keys, runtime, calls, lambda: self._others().s3())

    def s3(self) -> DirectS3:
        return self._s3

    def control(self, service: str) -> Any:
        return self._others().control(service)

    def keys(self) -> Keys:
        return self._keys

    def clients_of_role(self, role_arn: str) -> Callable[[str, Any], Any]:
        clients: Callable[[str, Any], Any] = self._others().clients_of_role(role_arn)
        return clients
