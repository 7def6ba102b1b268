"""The APIs of this room."""

from collections.abc import Iterable

from penstock_kafka.context import Context
from penstock_kafka.dispatch.api import Api, ApiKey
from penstock_kafka.transactions.init_producer_id import InitProducerId


def apis(context: Context) -> Iterable[Api]:  # noqa: ARG001 - idempotent producers need nothing of the service
    """InitProducerId."""
    yield Api(key=ApiKey.INIT_PRODUCER_ID, versions=(0, 5), handler=InitProducerId().answer)
