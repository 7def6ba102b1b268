"""A crowd of consumers that wait, in an account with ten instances: what is left for a producer.

The emulator runs as many functions at once as a new account of AWS does. The crowd waits for records of a quiet topic,
for 20 s in each call, and stays away as long as an answer says. The producer sends a record each 100 ms.
"""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

import click

from bench.neighbours.callers import Calls, beside, fetch, paced, port, produce, topic, user
from bench.report.recording import Report, reported
from localstack.clients import client
from localstack.rules_client import set_rules
from penstock import Admin
from penstock_core.limits import FETCH_WAIT_MS_MAX
from penstock_core.quotas.wait_pool import VARIABLE

ACCOUNT = 10
POOL = ACCOUNT // 4  # as a stage that knows its account has by default
WARM_UP_S = 25  # a new instance takes seconds here, and counts as one that runs
_FUNCTION = "penstock-fetch"


@click.command(help=__doc__)
@reported("neighbours_crowd")
@click.option("--consumers", default=14, show_default=True, type=click.IntRange(1))
@click.option("--seconds", default=15, show_default=True, type=click.IntRange(5), help="Of each measurement.")
def main(report: Report, consumers: int, seconds: int) -> None:
    sides: dict[str, tuple[Calls, Calls]] = {}
    with Admin() as admin, user("crowd") as transport, topic(admin, "c-1") as quiet, topic(admin, "c-2") as busy:

        def wait(is_over: threading.Event, *, calls: Calls) -> None:
            while not is_over.wait(fetch(transport, quiet, calls, wait_ms=FETCH_WAIT_MS_MAX)):
                pass

        for side, pool, size in (
            ("no crowd", f"bench={POOL}", 0),
            ("a crowd, and a quarter of the account may wait", f"bench={POOL}", consumers),
            ("a crowd, without a pool", None, consumers),
        ):
            calls = sides[side] = Calls(), Calls()
            send = partial(produce, transport, busy, calls[0])
            with _pool(pool), _account(ACCOUNT):
                paced(partial(produce, transport, busy, Calls()), seconds=3, pause_s=0.1)
                with beside(*[partial(wait, calls=calls[1])] * size):
                    time.sleep(WARM_UP_S)
                    paced(send, seconds=seconds, pause_s=0.1)
    report.show("the producer", [calls[0].row(side) for side, calls in sides.items()])
    report.show(
        "the crowd",
        [
            {"side": side, "calls_served": len(calls[1].took_ms), "failed": calls[1].failed}
            for side, calls in sides.items()
        ],
    )
    is_served = not any(sides[side][0].failed for side in [*sides][:2])
    report.judge(holds=is_served and sides[[*sides][2]][0].failed > 0)


@contextmanager
def _account(instances: int) -> Iterator[None]:
    set_rules(port(), f"concurrency.account={instances}")
    try:
        yield
    finally:
        set_rules(port(), "")


@contextmanager
def _pool(text: str | None) -> Iterator[None]:
    """The function `fetch` has this pool of waiting time. Changing its environment replaces its instances."""
    lambdas = client("lambda", port())
    before = lambdas.get_function_configuration(FunctionName=_FUNCTION)["Environment"]["Variables"]
    changed = {name: value for name, value in before.items() if name != VARIABLE}
    changed |= {} if text is None else {VARIABLE: text}
    lambdas.update_function_configuration(FunctionName=_FUNCTION, Environment={"Variables": changed})
    try:
        yield
    finally:
        lambdas.update_function_configuration(FunctionName=_FUNCTION, Environment={"Variables": before})
