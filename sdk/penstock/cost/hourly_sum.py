"""Questions to CloudWatch for the sums of a metric, hour by hour."""

from collections.abc import Mapping
from typing import Any

_HOUR_S = 3_600


def hourly_sum(number: int, namespace: str, metric: str, dimensions: Mapping[str, str]) -> dict[str, Any]:
    """Returns one entry of MetricDataQueries; its id is `m` and the number."""
    return {
        "Id": f"m{number}",
        "MetricStat": {
            "Metric": {
                "Namespace": namespace,
                "MetricName": metric,
                "Dimensions": [{"Name": name, "Value": value} for name, value in dimensions.items()],
            },
            "Period": _HOUR_S,
            "Stat": "Sum",
        },
    }
