"""DescribeCluster: one broker, which is its own controller."""

from penstock_kafka.dispatch.api import Answer, Call
from penstock_kafka.metadata.broker import broker
from penstock_kafka.settings import CLUSTER_ID, NODE_ID, Settings

_RIGHTS_UNKNOWN = -(2**31)


class DescribeCluster:
    """Answers with the gateway itself."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    async def answer(self, call: Call) -> Answer:  # noqa: ARG002 - the answer is the same for each client
        """The cluster."""
        return {
            "cluster_id": CLUSTER_ID,
            "controller_id": NODE_ID,
            "brokers": [broker(self._settings)],
            "cluster_authorized_operations": _RIGHTS_UNKNOWN,
        }
