"""The APIs of this room."""

from collections.abc import Iterable

from penstock_kafka.context import Context
from penstock_kafka.dispatch.api import Api, ApiKey
from penstock_kafka.offsets.leader_epochs import OffsetForLeaderEpoch
from penstock_kafka.offsets.list_offsets import ListOffsets


def apis(context: Context) -> Iterable[Api]:
    """ListOffsets and OffsetForLeaderEpoch."""
    yield Api(key=ApiKey.LIST_OFFSETS, versions=(1, 9), handler=ListOffsets(context).answer)
    yield Api(key=ApiKey.OFFSET_FOR_LEADER_EPOCH, versions=(2, 4), handler=OffsetForLeaderEpoch(context.service).answer)
