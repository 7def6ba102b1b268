"""The APIs of this room."""

from collections.abc import Iterable

from penstock_kafka.context import Context
from penstock_kafka.dispatch.api import Api, ApiKey
from penstock_kafka.produce.produce import Produce
from penstock_kafka.produce.sender import Sender

_REQUEST_BYTES_MAX = 8 * 1024 * 1024


def apis(context: Context) -> Iterable[Api]:
    """Produce. Version 12 would let a transaction begin without AddPartitionsToTxn; 13 has ids in place of names."""
    produce = Produce(context, Sender(context))
    yield Api(
        key=ApiKey.PRODUCE,
        versions=(3, 11),
        handler=produce.answer,
        is_pipelined=True,
        bytes_max=_REQUEST_BYTES_MAX,
    )
