"""The dashboard of a stage: what goes into topics and out of them, what fails, and how far consumers are behind.

It searches for series, so a topic or consumer that is made later appears by itself. A dashboard costs $3 a month, but
for the first three of an account.
"""

from aws_cdk import Duration
from aws_cdk import aws_cloudwatch as cloudwatch
from constructs import Construct

from penstock_cdk.settings import METRICS_NAMESPACE, StageSettings
from penstock_core.metrics.lag_memory import ConsumerKind

_MINUTE = Duration.minutes(1)
_WIDTH, _HEIGHT = 12, 6
# title, metrics of a topic with the statistic of each
_OF_TOPICS = (
    ("Bytes into topics", ("bytes_received",)),
    ("Bytes out of topics", ("bytes_sent",)),
    ("Records into topics", ("records_received",)),
    ("Records out of topics", ("records_sent",)),
    ("Requests that failed, and those that were throttled", ("requests_failed", "requests_throttled")),
)


class Dashboard(Construct):
    """One dashboard with the stage's name. Consumers are on it where the stage measures them."""

    def __init__(self, scope: Construct, construct_id: str, *, settings: StageSettings) -> None:
        super().__init__(scope, construct_id)
        self._stage = settings.name
        graphs = [self._graph(title, [("topic", name, "Sum") for name in names]) for title, names in _OF_TOPICS]
        if settings.metrics.of == "all":
            kinds = [*ConsumerKind]
            graphs = [
                self._graph("Age of the oldest record, ms", [(kind, "oldest_waited", "Maximum") for kind in kinds]),
                self._graph("Records that wait", [(kind, "records_waiting", "Maximum") for kind in kinds]),
                *graphs,
            ]
        rows = [graphs[start : start + 2] for start in range(0, len(graphs), 2)]
        cloudwatch.Dashboard(self, "Dashboard", dashboard_name=settings.name, widgets=rows)

    def _graph(self, title: str, series: list[tuple[str, str, str]]) -> cloudwatch.IWidget:
        searches = [
            cloudwatch.MathExpression(
                expression=(
                    f'SEARCH(\'{{{METRICS_NAMESPACE},service,{dimension}}} service="{self._stage}" '
                    f"MetricName=\"{name}\"', '{statistic}')"
                ),
                label="",
                period=_MINUTE,
                using_metrics={},
            )
            for dimension, name, statistic in series
        ]
        return cloudwatch.GraphWidget(title=title, left=searches, width=_WIDTH, height=_HEIGHT, period=_MINUTE)
