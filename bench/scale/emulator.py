"""Compares the model with the emulator under its rule `latency`: how much longer an append takes with S3's times.

The emulator's own time is not that of AWS, so both sides take turns, and the difference of their medians is compared
with the model's. It needs a running local stack: give its port.
"""

import secrets
import statistics
import time
from dataclasses import replace

import click

from bench.report.recording import Report, reported
from bench.scale.latencies import Latencies
from bench.scale.scenario import Scenario
from bench.scale.simulate import simulate
from localstack.rules_client import set_rules
from penstock import Admin, Producer
from penstock.http.transport import open_transport

_PER_ROUND = 10
_ONE = Scenario(name="one record at a time", bytes_per_s=2_000, partitions=1, seconds=300.0)


@click.command(help=__doc__)
@reported("scale_emulator")
@click.option("--port", required=True, type=int, help="The emulator's port.")
@click.option("--rounds", default=30, show_default=True, help="How often the sides take turns.")
def main(report: Report, port: int, rounds: int) -> None:
    seconds: dict[str, list[float]] = {"none": [], "latency": []}
    transport = open_transport()
    topic = f"scale-{secrets.token_hex(4)}"
    with Admin(transport=transport) as admin:
        admin.create_topic(topic)
        try:
            with Producer(transport=transport, linger_ms=0) as producer:
                producer.send(topic, b"first").result()
                for number in range(rounds):
                    for rules in sorted(seconds, reverse=number % 2 == 0):
                        set_rules(port, rules)
                        producer.send(topic, b"warm").result()
                        seconds[rules] += [_append_s(producer, topic) for _ in range(_PER_ROUND)]
        finally:
            set_rules(port, "none")
            admin.delete_topic(topic)
    off_ms, on_ms = (1_000 * statistics.median(seconds[rules]) for rules in ("none", "latency"))
    report.show(
        "An append of 100 B, median ms",
        [
            {
                "side": "emulator",
                "without_ms": round(off_ms, 1),
                "with_ms": round(on_ms, 1),
                "added_ms": round(on_ms - off_ms, 1),
            },
            _modelled(),
        ],
    )


def _append_s(producer: Producer, topic: str) -> float:
    started_s = time.perf_counter()
    producer.send(topic, b"x" * 100).result()
    return time.perf_counter() - started_s


def _modelled() -> dict[str, str | int | float | None]:
    """The same of the model, whose puts take no time on one side."""
    latencies = Latencies()
    at_once = replace(latencies.express_put, median_ms=0.001, slow_share=0.0)
    off_ms, on_ms = (
        simulate(_ONE, latencies=each).append_ms[0] for each in (replace(latencies, express_put=at_once), latencies)
    )
    return {
        "side": "model",
        "without_ms": round(off_ms, 1),
        "with_ms": round(on_ms, 1),
        "added_ms": round(on_ms - off_ms, 1),
    }


if __name__ == "__main__":
    main()
