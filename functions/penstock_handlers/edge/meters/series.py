"""Metrics of single topics and consumers, as lines in CloudWatch's embedded metric format (EMF).

Each line has one set of dimensions, so each topic and consumer has a line of its own. `Meter` has the metrics of the
stage as a whole.
"""

import json
import os
from collections.abc import Mapping

UNITS: Mapping[str, str] = {
    "records_received": "Count",
    "bytes_received": "Bytes",
    "records_sent": "Count",
    "bytes_sent": "Bytes",
    "requests_failed": "Count",
    "requests_throttled": "Count",
    "records_waiting": "Count",
    "oldest_waited": "Milliseconds",
}


def publish(dimension: str, name: str, values: Mapping[str, float], now_ms: int) -> None:
    """Prints a line with the values of one topic or consumer, `dimension` being its kind. Nothing for no values."""
    if not values:
        return
    line = {
        "_aws": {
            "Timestamp": now_ms,
            "CloudWatchMetrics": [
                {
                    "Namespace": os.environ.get("POWERTOOLS_METRICS_NAMESPACE", "Penstock"),
                    "Dimensions": [["service", dimension]],
                    "Metrics": [{"Name": each, "Unit": UNITS[each]} for each in values],
                }
            ],
        },
        "service": os.environ.get("POWERTOOLS_SERVICE_NAME", "penstock"),
        dimension: name,
        **values,
    }
    print(json.dumps(line, separators=(",", ":")))
