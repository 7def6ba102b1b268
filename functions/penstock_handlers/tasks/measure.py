"""The task `measure`, each minute: lag and age of consumers, and the choice of the topics with series of their own.

A stage has it where its setting `metrics` is not `off`.
"""

import os
from collections.abc import Mapping
from typing import Any

from penstock_core.metrics.lag_memory import parse_consumer
from penstock_handlers.edge.meters.traffic_meter import publish
from penstock_service.instance.instance import Instance
from penstock_service.metrics.measure import MeasureWish, measure

BUDGET_MS = 40_000  # less than the time to the next run


def run(instance: Instance) -> dict[str, Any]:
    """Measures for `BUDGET_MS`, and publishes. Reads the variables of `wish_of_environment`."""
    done = measure(instance, wish_of_environment(os.environ), budget_ms=BUDGET_MS)
    now_ms = instance.clock.now_ms()
    for lag in done.lags:
        values = {"records_waiting": lag.records, "oldest_waited": lag.oldest_age_ms}
        publish(lag.consumer.kind, lag.consumer.name, values, now_ms)
    return {
        "consumers_measured": done.consumers,
        "consumers_published": len(done.lags),
        "topics_ranked": int(done.has_ranked),
        "measurements_failed": done.failures,
        "measurement_unfinished": int(not done.is_finished),
    }


def wish_of_environment(environ: Mapping[str, str]) -> MeasureWish:
    """Reads the wish.

    `PENSTOCK_METRICS` is `topics` or `all`. `PENSTOCK_METRIC_SERIES` has the numbers of topics and of consumers with
    series of their own, `10,20`. `PENSTOCK_METRICS_ALWAYS` has the consumers with alarms, `<kind>/<name>,…`.
    """
    topics_max, consumers_max = map(int, environ["PENSTOCK_METRIC_SERIES"].split(","))
    always = [parse_consumer(each) for each in environ.get("PENSTOCK_METRICS_ALWAYS", "").split(",") if each]
    return MeasureWish(
        topics_max=topics_max,
        consumers_max=consumers_max,
        always=always,
        topics_only=environ["PENSTOCK_METRICS"] == "topics",
    )
