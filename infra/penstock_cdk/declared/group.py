"""A group of consumers whose metrics a template uses. A group comes into being when its first member joins."""

from constructs import Construct

from penstock_cdk.declared.consumer_metrics import ConsumerMetrics
from penstock_core.errors import PenstockError
from penstock_core.ids import parse_group_name


class Group(Construct):
    """A group by its name. `metrics` has its lag and its age."""

    def __init__(self, scope: Construct, *, metrics: ConsumerMetrics, alarm_age_ms: int | None) -> None:
        """Raises ValueError for a wrong name, and as `ConsumerMetrics.alarm`."""
        name = metrics.consumer.name
        super().__init__(scope, name)
        try:
            parse_group_name(name)
        except PenstockError as error:
            raise ValueError(error.message) from error
        self.name = name
        self.metrics = metrics
        if alarm_age_ms is not None:
            metrics.alarm(self, alarm_age_ms)
