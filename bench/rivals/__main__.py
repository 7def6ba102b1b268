"""Compares Penstock with Kinesis and SQS on the same emulator, and with Redis, RabbitMQ and NATS on the same machine.

It needs a running local stack. The servers are Debian's; without them it goes on, and says how to get them.
"""

import signal
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from importlib.util import find_spec
from urllib.parse import urlsplit

import click

from bench.harness.turns import take_turns
from bench.report.recording import Report, reported
from bench.report.result import Row
from bench.rivals.alone import latencies, wire
from bench.rivals.kinesis import Kinesis
from bench.rivals.penstock_sdk import PenstockSdk
from bench.rivals.race import Load, Turn, pool_of, run_turn
from bench.rivals.rival import Rival
from bench.rivals.servers import HOW_TO_GET_THEM, nats_syncs, start_nats, start_rabbitmq, start_redis
from bench.rivals.sqs import Sqs
from bench.rivals.verdict import EMBEDDED, bar_rows, rate_rows
from penstock.configuration import find_configuration

SIZES = (100, 1_000)
_WIRE_RECORDS = {"SQS": 500, "SQS FIFO": 500}  # of others 5,000
_ONLY = ("Penstock", EMBEDDED, "Kinesis", "SQS", "SQS FIFO", "Redis Streams", "RabbitMQ", "NATS JetStream")

Threads = dict[str, tuple[int, int]]


@click.command(help=__doc__)
@reported("rivals")
@click.option("--seconds", default=4.0, show_default=True, help="Of each turn, to send and to receive.")
@click.option("--rounds", default=3, show_default=True, type=click.IntRange(1), help="How often all take turns.")
@click.option("--clients", default=(1, 4), show_default=True, multiple=True, type=click.IntRange(1))
@click.option("--samples", default=200, show_default=True, type=click.IntRange(10), help="Records of the latencies.")
@click.option("--only", type=click.Choice(_ONLY), multiple=True, help="These systems only.")
@click.option("--quick", is_flag=True, help="One client, short turns: a look in less than two minutes.")
def main(
    report: Report, seconds: float, rounds: int, clients: Sequence[int], samples: int, only: Sequence[str], quick: bool
) -> None:
    if quick:
        seconds, rounds, clients, samples = 0.7, 1, (1,), 20
        report.conditions.append("A quick look: one client, one round, turns of 0.7 s.")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that the servers end with this process
    with ExitStack() as stack:
        rivals = [each for each in _rivals(stack, report) if not only or each.name in only]
        threads = _helpful_threads(rivals, report, seconds=0.3 if quick else 1.5)
        rates: dict[tuple[int, int], dict[str, list[Turn]]] = {}
        for size in SIZES:
            for count in clients:
                load = Load(record_bytes=size, clients=count, seconds=seconds)
                turns = rates[size, count] = _race(rivals, load, threads, rounds)
                report.show(f"{size} B, {count} to send, then {count} to receive", rate_rows(load, turns))
        report.show("Penstock by the others", bar_rows(rates))
        report.show("one record of 100 B at a time", latencies(rivals, samples))
        rows: list[Row] = []
        for size in SIZES:
            for each in rivals:
                if each.name == EMBEDDED:  # it has no wire of its own: the service's calls to the storage go out
                    continue
                records = _WIRE_RECORDS.get(each.name, 5_000)
                rows.append(wire(each, size, records // 5 if quick else records, threads[each.name]))
        report.show("on the wire", rows)


def _rivals(stack: ExitStack, report: Report) -> list[Rival]:
    """The systems that this machine has. The report says what is missing."""
    port = urlsplit(find_configuration().url).port
    if port is None:
        raise click.ClickException("PENSTOCK_URL is no local stack: `penstock local up` starts one")
    found: list[Rival] = [
        PenstockSdk(port=port),
        PenstockSdk(port=port, name=EMBEDDED, carrier="embedded"),
        Kinesis(port=port),
        Sqs(port=port),
        Sqs(port=port, is_fifo=True),
    ]
    missing: list[str] = []
    for name, package, start in (
        ("Redis Streams", "redis", start_redis),
        ("RabbitMQ", "pika", start_rabbitmq),
        ("NATS JetStream", "nats", start_nats),
    ):
        server = start(stack) if find_spec(package) is not None else None
        if server is None:
            missing.append(name)
        else:
            found.append(_server_rival(name, server))
    if missing:
        words = f"{', '.join(missing)} did not run: {HOW_TO_GET_THEM}"
        report.conditions.append(words)
        report.console.print(words, style="yellow")
    if "NATS JetStream" not in missing and not nats_syncs():
        report.conditions.append("NATS before 2.10 cannot sync each message: it acknowledges before the disk has it.")
    return found


def _server_rival(name: str, port: int) -> Rival:
    """Imports the client of that system, which a checkout need not have."""
    if name == "Redis Streams":
        from bench.rivals.redis_streams import RedisStreams

        return RedisStreams(port=port)
    if name == "RabbitMQ":
        from bench.rivals.rabbitmq import RabbitMq

        return RabbitMq(port=port)
    from bench.rivals.nats_jetstream import NatsJetStream

    return NatsJetStream(port=port)


def _helpful_threads(rivals: Sequence[Rival], report: Report, *, seconds: float) -> Threads:
    """The threads that give each rival's client its best rate, to send and to receive, at 100 B."""
    best: Threads = {}
    rows: list[Row] = []
    with pool_of(1) as pool:
        for rival in rivals:
            turns: dict[int, Turn] = {}
            for threads in rival.threads if len(rival.threads) > 1 else ():
                load = Load(record_bytes=100, clients=1, seconds=seconds, threads=(threads, threads))
                turns[threads] = turn = run_turn(rival, load, pool)
                rows.append(
                    {
                        "system": rival.name,
                        "threads": threads,
                        "sent_records_per_s": round(turn.sent_per_s),
                        "received_records_per_s": round(turn.received_per_s),
                    }
                )
            best[rival.name] = (
                max(turns, key=lambda each: turns[each].sent_per_s, default=1),
                max(turns, key=lambda each: turns[each].received_per_s, default=1),
            )
    if rows:
        report.show("threads of one client, 100 B: each side has its best", rows)
    return best


def _race(rivals: Sequence[Rival], load: Load, threads: Threads, rounds: int) -> dict[str, list[Turn]]:
    """The turns by system."""
    with pool_of(load.clients) as pool:

        def side(rival: Rival) -> Callable[[], Turn]:
            mine = Load(
                record_bytes=load.record_bytes,
                clients=load.clients,
                seconds=load.seconds,
                threads=threads[rival.name],
            )
            return partial(run_turn, rival, mine, pool)

        turns = take_turns([side(each) for each in rivals], rounds)
    return {rival.name: turn for rival, turn in zip(rivals, turns, strict=True)}


if __name__ == "__main__":
    main()
