"""How exact a quota of requests is on a deployed stack: clients that ask for far more, over many function instances.

The clients respect no `Retry-After`. The bench counts what is served in each window of 10 seconds.
"""

import threading
import time
from functools import partial

import click

from bench.neighbours.callers import USERS, Calls, beside, port, produce, topic, user
from bench.report.recording import Report, reported
from localstack.clients import client
from penstock import Admin

WINDOW_S = 10
TOLERANCE = 0.1


@click.command(help=__doc__)
@reported("neighbours_exact")
@click.option("--quota", default=5, show_default=True, type=click.IntRange(1), help="Produces a second.")
@click.option("--clients", default=4, show_default=True, type=click.IntRange(1))
@click.option("--seconds", default=40, show_default=True, type=click.IntRange(20))
def main(report: Report, quota: int, clients: int, seconds: int) -> None:
    served: list[Calls] = [Calls() for _ in range(clients)]
    with Admin() as admin, user("team-q") as transport, topic(admin, "q-1") as name:
        admin.set_quota("principal", f"{USERS}team-q", {"produce_requests_per_s": quota})
        try:
            time.sleep(31)  # it holds everywhere by then

            def run(is_over: threading.Event, *, number: int) -> None:
                while not is_over.wait(0.02):
                    produce(transport, name, served[number])

            since_ms = time.time_ns() // 1_000_000
            begin_s = time.perf_counter()
            with beside(*(partial(run, number=number) for number in range(clients))):
                time.sleep(seconds)
        finally:
            admin.delete_quota("principal", f"{USERS}team-q")
    ends = sorted(at - begin_s for calls in served for at in calls.ended_s)
    counts = [sum(at <= end < at + WINDOW_S for end in ends) for at in range(1, seconds - WINDOW_S)]
    asked = sum(len(each.ended_s) + each.throttled for each in served)
    report.show(
        "served in 10 s, as a share of the quota",
        [
            {
                "quota_per_s": quota,
                "asked_per_s": round(asked / seconds, 1),
                "instances": _instances(since_ms),
                "least": round(min(counts) / (quota * WINDOW_S), 3),
                "most": round(max(counts) / (quota * WINDOW_S), 3),
                "failed": sum(each.failed for each in served),
            }
        ],
    )
    bounds = (quota * WINDOW_S * (1 - TOLERANCE), quota * WINDOW_S * (1 + TOLERANCE))
    report.judge(holds=bounds[0] <= min(counts) and max(counts) <= bounds[1] and asked > 2 * quota * seconds)


def _instances(since_ms: int) -> int:
    """The instances of `produce` that have logged since then: each has a log stream of its own."""
    streams = client("logs", port()).describe_log_streams(logGroupName="/aws/lambda/penstock-produce")["logStreams"]
    return sum(each.get("lastEventTimestamp", 0) >= since_ms for each in streams)
