"""Count the calls that a quota refuses among the metrics of the topics that they name."""

from collections.abc import Iterable

from penstock_core.errors import PenstockError
from penstock_core.metrics.topic_traffic import OTHER
from penstock_service.instance.instance import Instance


def count_throttled(instance: Instance, topics: Iterable[str], error: PenstockError) -> None:
    """Counts the error for each of these topics, as often as it is there.

    Quotas come before the topics are read. So a topic that the instance does not remember may not exist, and counts for
    `OTHER`. Sends no call.
    """
    for topic in topics:
        instance.traffic.add_error(topic if instance.topic_cache.remembers(topic) else OTHER, error)
