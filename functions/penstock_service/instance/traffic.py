"""The traffic of topics that an instance has counted since it last published it.

`penstock_handlers.edge.lambda_function` takes it once a minute, and publishes it. Where a stage has no metrics of
topics, nothing is counted.
"""

import threading
from dataclasses import dataclass, field

from penstock_core.errors import Category, ErrorCode, PenstockError
from penstock_core.limits import INSTANCE_TRAFFIC_TOPICS_MAX
from penstock_core.metrics.topic_traffic import NO_TRAFFIC, OTHER, TopicTraffic
from penstock_core.outcomes import Outcome


@dataclass(slots=True)
class Traffic:
    """The traffic by topic. Safe for use by several threads. Nothing is counted unless `is_on`."""

    is_on: bool = False
    _counts: dict[str, TopicTraffic] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, topic: str, traffic: TopicTraffic) -> None:
        """Counts the traffic. Beyond `INSTANCE_TRAFFIC_TOPICS_MAX` topics it counts for `OTHER`."""
        if not self.is_on:
            return
        with self._lock:
            is_known = topic in self._counts or len(self._counts) < INSTANCE_TRAFFIC_TOPICS_MAX
            name = topic if is_known else OTHER
            self._counts[name] = self._counts.get(name, NO_TRAFFIC).plus(traffic)

    def add_error(self, topic: str, outcome: Outcome[object]) -> None:
        """Counts the outcome if it is an error. A topic that may not exist counts for `OTHER`."""
        if not self.is_on or not isinstance(outcome, PenstockError):
            return
        category = outcome.code.category
        may_be_unknown = category in (Category.NOT_FOUND, Category.DENIED) or outcome.code is ErrorCode.INVALID_NAME
        counts = TopicTraffic(requests_failed=1, requests_throttled=int(category is Category.THROTTLED))
        self.add(OTHER if may_be_unknown else topic, counts)

    def take(self) -> dict[str, TopicTraffic]:
        """The traffic by topic since the last call."""
        with self._lock:
            taken, self._counts = self._counts, {}
        return taken
