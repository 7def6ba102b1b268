"""The metrics of topics and consumers: what a function must know of them.

The task `measure` runs each minute where a stage has such metrics (docs/adr/0045).
"""

from aws_cdk import Annotations
from aws_cdk import aws_lambda as lambda_
from constructs import Construct

from penstock_cdk.settings import UPKEEP, StageSettings
from penstock_core.metrics.lag_memory import Consumer

MEASURE = "measure"
_ENVIRONMENT_BYTES_MAX = 3_000  # of the 4 KB that all variables of a function may have


def metrics_environment(settings: StageSettings, name: str) -> dict[str, str]:
    """The variables by which a function learns what to count, and that of `measure` what to measure."""
    metrics = settings.metrics
    if not metrics.is_on:
        return {}
    own = {"PENSTOCK_METRIC_SERIES": f"{metrics.topics},{metrics.consumers}"} if name == UPKEEP else {}
    return {"PENSTOCK_METRICS": metrics.of, **own}


class Pins:
    """The consumers that the template asks metrics of: `measure` always gives them series of their own."""

    def __init__(self, scope: Construct, *, settings: StageSettings, measure: lambda_.Function) -> None:
        self._settings = settings
        self._measure = measure
        self._pinned: set[Consumer] = set()
        if settings.metrics.is_on:
            Annotations.of(scope).add_info_v2(
                "penstock:metrics",
                f"metrics of {settings.metrics.of} cost up to ${settings.metrics.usd_max:.2f} a month, if all of "
                f"{settings.metrics.series_max} series have values in each hour; an hour without a value is free",
            )

    def pin(self, consumer: Consumer) -> None:
        """Raises ValueError where the stage measures no consumers, or has no place left."""
        metrics = self._settings.metrics
        if metrics.of != "all":
            raise ValueError(f"{consumer} has no metrics: the stage measures no consumers, set metrics='all'")
        self._pinned.add(consumer)
        if len(self._pinned) > metrics.consumers:
            raise ValueError(
                f"the template uses metrics of {len(self._pinned)} consumers, and {metrics.consumers} have series of "
                f"their own: set metrics=Metrics(of='all', consumers={len(self._pinned)})"
            )
        text = ",".join(sorted(map(str, self._pinned)))
        if len(text) > _ENVIRONMENT_BYTES_MAX:
            raise ValueError(
                f"the names of the consumers whose metrics the template uses have {len(text)} characters: "
                f"{_ENVIRONMENT_BYTES_MAX} at most fit into a function's environment"
            )
        self._measure.add_environment("PENSTOCK_METRICS_ALWAYS", text)
