"""The APIs of this room."""

from collections.abc import Iterable

from penstock_kafka.context import Context
from penstock_kafka.dispatch.api import Api, ApiKey
from penstock_kafka.fetch.fetch import Fetch


def apis(context: Context) -> Iterable[Api]:
    """Fetch."""
    yield Api(key=ApiKey.FETCH, versions=(4, 16), handler=Fetch(context).answer, may_rest=True)
