"""The one broker that a gateway tells its clients of: itself."""

from penstock_kafka.dispatch.api import Answer
from penstock_kafka.settings import NODE_ID, Settings


def broker(settings: Settings) -> Answer:
    """The fields of a broker in Metadata, FindCoordinator and DescribeCluster."""
    advertised = settings.advertised
    return {"node_id": NODE_ID, "broker_id": NODE_ID, "host": advertised.host, "port": advertised.port, "rack": None}
