"""The APIs of this room."""

from collections.abc import Iterable

from penstock_core.limits import KAFKA_METADATA_BYTES_MAX
from penstock_kafka.context import Context
from penstock_kafka.dispatch.api import Api, ApiKey
from penstock_kafka.metadata.describe_cluster import DescribeCluster
from penstock_kafka.metadata.find_coordinator import FindCoordinator
from penstock_kafka.metadata.metadata import Metadata


def apis(context: Context) -> Iterable[Api]:
    """Metadata, FindCoordinator and DescribeCluster."""
    return (
        Api(
            key=ApiKey.METADATA,
            versions=(0, 13),
            handler=Metadata(context).answer,
            bytes_max=KAFKA_METADATA_BYTES_MAX,
        ),
        Api(key=ApiKey.FIND_COORDINATOR, versions=(0, 6), handler=FindCoordinator(context.settings).answer),
        Api(key=ApiKey.DESCRIBE_CLUSTER, versions=(0, 1), handler=DescribeCluster(context.settings).answer),
    )
