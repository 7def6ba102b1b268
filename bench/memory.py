"""Prices each hot function over Lambda's memories: its CPU is measured here, its waits are counted.

A function's time is its waits for storage, plus its CPU over the share of a core that the memory brings (1,769 MB are
one core; more does not help a request of one thread). CPU is that of this machine. The waits are calls that follow each
other in a warm request, each of the median time of bench/scale/latencies.py. A delivery waits for its target, too.
`peak` is the most memory of the process, after its largest request; Lambda's own runtime takes some 40 MB more.

More memory is quicker and dearer. `choice` is the last memory whose step costs at most a cent for each ms that it
saves a million requests, on the mean of the function's requests. `now` is what penstock_cdk/settings.py has.
"""

import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from statistics import fmean
from typing import Any
from unittest.mock import patch

import click

from bench.handler_cpu import measure
from bench.loads.null_aws import from_base64, null_aws
from bench.loads.warm_requests import write_warm_requests
from bench.report.recording import Report, reported
from bench.report.result import Row
from bench.scale.latencies import Latencies
from penstock import prices
from penstock.testing import MemoryPenstock
from penstock_cdk.settings import FUNCTION_SIZES
from penstock_service.adapters.tables.tables import Tables

Cost = Mapping[str, Any]  # `cpu_ms` of a warm request, `waits` by the call that each began with, and `peak_mib`

REQUESTS = {
    "produce": ("1 KB", "64 KiB", "1 MiB"),
    "fetch": ("1 KB", "64 KiB", "1 MiB"),
    "share": ("acquire 10", "accept and acquire 10"),
    "groups": ("heartbeat", "commit"),
    "transactions": ("batch and offset",),
}
LARGEST = {"produce": "4 MiB", "fetch": "4 MiB"}
MEMORIES_MB = (256, 384, 512, 768, 1_024, 1_769)
CORE_MB = 1_769
RUNTIME_MIB = 40  # of Lambda's own processes, assumed
MS_USD = 0.01  # what a ms of a million requests is worth
TARGET_MS = 50.0  # of a function that a subscription calls, assumed
MILLION = 1_000_000
_ROOT = Path(__file__).parents[1]
_TARGET = "arn:aws:lambda:us-east-1:123456789012:function:target"
_READS = ("get_item", "batch_get_item", "query")
_WRITES = ("put_item", "update_item", "transact_write_items")
_LATENCIES = Latencies()
_WAITS_MS = {
    "put_object": _LATENCIES.express_put.median_ms,
    "get_object": _LATENCIES.express_get.median_ms,
    "target": TARGET_MS,
    **dict.fromkeys(_READS, _LATENCIES.read.median_ms),
    **dict.fromkeys(_WRITES, _LATENCIES.update.median_ms),
}


@click.command(help=__doc__)
@reported("memory")
@click.option("--requests", default=100, show_default=True, type=click.IntRange(1), help="In each process.")
def main(report: Report, requests: int) -> None:
    costs = _measured(requests)
    call_ms = costs["produce"]["1 KB"]["storage_ms"] / costs["produce"]["1 KB"]["calls"]
    costs["deliver"] = {"1 KB": _delivery(requests, call_ms)}
    report.show("warm requests", [_request_row(name, *cost) for name, each in costs.items() for cost in each.items()])
    report.show("memories", [row for name, each in costs.items() for row in memory_rows(name, list(each.values()))])


def memory_rows(function: str, costs: Sequence[Cost]) -> list[dict[str, Any]]:
    """A row for each memory: the mean time of the requests, and the dollars of a million."""
    choice_mb = choice_of(costs)
    peak_mib = max(cost.get("peak_mib", 0) for cost in costs) + RUNTIME_MIB
    return [
        {
            "function": function,
            "memory_mb": memory_mb,
            "mean_ms": round(fmean(function_ms(cost, memory_mb) for cost in costs), 1),
            "usd_per_million": round(_usd(costs, memory_mb), 3),
            "fits": "yes" if peak_mib <= memory_mb else "no",
            "choice": "choice" if memory_mb == choice_mb else "",
            "now": "now" if FUNCTION_SIZES[function].memory_mb == memory_mb else "",
        }
        for memory_mb in MEMORIES_MB
    ]


def choice_of(costs: Sequence[Cost]) -> int:
    """The last memory whose step from the one before is worth its dollars."""
    choice_mb = MEMORIES_MB[0]
    for less_mb, more_mb in pairwise(MEMORIES_MB):
        saved_ms = fmean(function_ms(cost, less_mb) - function_ms(cost, more_mb) for cost in costs)
        if _usd(costs, more_mb) - _usd(costs, less_mb) > MS_USD * saved_ms:
            break
        choice_mb = more_mb
    return choice_mb


def function_ms(cost: Cost, memory_mb: int) -> float:
    """The time of a request in a function of the memory."""
    waits_ms = sum(_WAITS_MS[name] * float(number) for name, number in cost["waits"].items())
    return waits_ms + float(cost["cpu_ms"]) * CORE_MB / min(memory_mb, CORE_MB)


def _usd(costs: Sequence[Cost], memory_mb: int) -> float:
    """The dollars for the GB-seconds of a million requests, the mean of their kinds."""
    mean_s = fmean(function_ms(cost, memory_mb) for cost in costs) / 1_000
    return prices.LAMBDA_GB_SECONDS.of(mean_s * memory_mb / 1_024) * MILLION


def _measured(requests: int) -> dict[str, dict[str, Cost]]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        stored = write_warm_requests(folder)
        with null_aws(stored["tables"], from_base64(stored), folder) as place:

            def cost_of(function: str, kind: str) -> Cost:
                return measure(_ROOT, function, folder / f"{function}-{kind}.json", place, requests)

            costs = {name: {kind: cost_of(name, kind) for kind in kinds} for name, kinds in REQUESTS.items()}
            for function, kind in LARGEST.items():
                peak_mib = cost_of(function, kind)["peak_mib"]
                first = REQUESTS[function][0]
                costs[function][first] = {**costs[function][first], "peak_mib": peak_mib}
    return costs


def _delivery(requests: int, call_ms: float) -> Cost:
    """The cost of a delivery of one record: its calls follow each other, and each takes `call_ms` of CPU."""
    waits: dict[str, int] = {"target": 0}
    inside_s = 0.0

    def counted(name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def run(tables: Tables, **arguments: Any) -> Any:
            nonlocal inside_s
            waits[name] = waits.get(name, 0) + 1
            begun_s = time.thread_time()
            try:
                return call(tables, **arguments)
            finally:
                inside_s += time.thread_time() - begun_s

        return run

    def target(*_: object) -> dict[str, object]:
        waits["target"] += 1
        return {}

    spent_s = 0.0
    with MemoryPenstock() as service, service.producer(linger_ms=0) as producer:
        service.create_topic("orders", partitions=1)
        service.create_topic("dead", partitions=1)
        service.add_function(_TARGET, target)
        service.admin().put_subscription("pushed", "orders", {"lambda": _TARGET}, {"dead_letter_topic": "dead"})
        calls: dict[str, Any] = {name: counted(name, getattr(Tables, name)) for name in (*_READS, *_WRITES)}
        for _ in range(requests):
            producer.send("orders", bytes(1_000)).result()
            with patch.multiple(Tables, **calls):
                begun_s = time.process_time()
                service.deliver_pushes()
                spent_s += time.process_time() - begun_s
    number = sum(waits.values()) - waits["target"]
    cpu_ms = (spent_s - inside_s) * 1_000 + number * call_ms
    return {"cpu_ms": cpu_ms / requests, "waits": {name: count / requests for name, count in waits.items()}}


def _request_row(function: str, kind: str, cost: Cost) -> Row:
    return {
        "function": function,
        "request": kind,
        "cpu_ms": round(cost["cpu_ms"], 2),
        "waits": ", ".join(f"{number:.2g} {name}" for name, number in cost["waits"].items()),
        "waits_ms": round(function_ms({**cost, "cpu_ms": 0}, CORE_MB), 1),
        "peak_mib": round(cost["peak_mib"]) if "peak_mib" in cost else None,
    }


if __name__ == "__main__":
    main()
