"""The APIs of this room."""

from collections.abc import Iterable

from penstock_core.limits import KAFKA_PRODUCE_BYTES_MAX
from penstock_kafka.context import Context
from penstock_kafka.dispatch.api import Api, ApiKey
from penstock_kafka.produce.produce import Produce
from penstock_kafka.produce.sender import Sender


def apis(context: Context) -> Iterable[Api]:
    """Produce. Version 12 would let a transaction begin without AddPartitionsToTxn; 13 has ids in place of names."""
    produce = Produce(context, Sender(context))
    yield Api(
        key=ApiKey.PRODUCE,
        versions=(3, 11),
        handler=produce.answer,
        is_pipelined=True,
        bytes_max=KAFKA_PRODUCE_BYTES_MAX,
    )
