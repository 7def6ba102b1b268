"""The broker of this function instance, made from its environment at the first request and then kept."""

from functools import cache

from penstock_broker.adapters.aws import aws_broker, storage_of_environment
from penstock_broker.adapters.storage_calls import StorageCalls
from penstock_broker.broker import Broker

STORAGE_CALLS = StorageCalls()


@cache
def broker() -> Broker:
    """Reads what `storage_of_environment` reads. Sends no call."""
    return aws_broker(storage_of_environment(), STORAGE_CALLS)
