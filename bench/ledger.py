"""Keeps a payment ledger that balances although workers die: payments in, a debit and a credit out, exactly once.

Workers share the payments as a group, and book each in a transaction with its offset. Now and then a SIGKILL ends one,
and it starts again. At the end every payment must be booked once, on both sides, and the sum must be 0. It needs the
local stack that `make run` or `penstock local up` starts. Exit code 0: the ledger balances.
"""

import json
import multiprocessing
import random
import secrets
import time
from collections import Counter
from dataclasses import dataclass

import click
from rich.console import Console

from bench.report.recording import Report, reported
from bench.report.result import Row
from penstock import Admin, Consumer, Producer, TopicPartition, Transaction, Transformer
from penstock.model import ConsumerRecord

PARTITIONS = 6
ACCOUNTS = 50
SESSION_MS = 8_000  # the partitions of a killed worker wait so long
HEARTBEAT_MS = 1_000


def book(record: ConsumerRecord, transaction: Transaction) -> None:
    """Sends the two entries of a payment, each to the partition of its account."""
    payment = json.loads(record.value or b"")
    for account, amount in ((payment["from"], -payment["amount"]), (payment["to"], payment["amount"])):
        entry = json.dumps({"payment": payment["id"], "account": account, "amount": amount})
        transaction.send(ledger_of(record.topic), entry, key=account)


def ledger_of(payments: str) -> str:
    """The topic for the entries of these payments."""
    return payments.replace("payments", "ledger")


def work(payments: str, number: int) -> None:
    """Runs one worker until it is killed. Its transactional id is the same after a restart."""
    consumer = Consumer(
        payments,
        group_id=payments,
        delivery="exactly_once",
        session_timeout_ms=SESSION_MS,
        heartbeat_interval_ms=HEARTBEAT_MS,
    )
    producer = Producer(transactional_id=f"{payments}-{number}")
    with consumer, producer:
        Transformer(consumer, producer, book).run()


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The number of payments, of workers and of kills. `seed` chooses payments, moments and victims."""

    payments: int
    workers: int
    kills: int
    seed: int


def run(plan: Plan, console: Console) -> Row:
    """Sends the payments, books them under kills, and judges the ledger, on topics of its own."""
    chance = random.Random(plan.seed)
    payments = f"payments-{secrets.token_hex(4)}"
    with Admin() as admin, Producer() as producer:
        for topic in (payments, ledger_of(payments)):
            admin.create_topic(topic, partitions=PARTITIONS)
        for number in range(plan.payments):
            source, target = chance.sample(range(ACCOUNTS), 2)
            payment = {"id": number, "from": f"a{source}", "to": f"a{target}", "amount": chance.randint(1, 1_000)}
            producer.send(payments, json.dumps(payment), key=str(number))
        producer.flush()
    started_s = time.monotonic()
    killed = _book_all(plan, payments, chance, console)
    return _judged(payments, plan.payments, killed, time.monotonic() - started_s)


def _book_all(plan: Plan, payments: str, chance: random.Random, console: Console) -> int:
    """Lets workers book until the group has committed all payments. Returns the number of kills."""
    context = multiprocessing.get_context("spawn")
    alive = {number: _started(context, payments, number) for number in range(plan.workers)}
    kill_at = sorted(chance.sample(range(plan.payments // 20, plan.payments), plan.kills))
    killed = 0
    try:
        while (booked := _committed(payments)) < plan.payments:
            for number, process in alive.items():
                if not process.is_alive():
                    raise click.ClickException(f"worker {number} has ended by itself: see above")
            if killed < plan.kills and booked >= kill_at[killed]:
                number = chance.choice(list(alive))
                alive[number].kill()
                alive[number].join()
                alive[number] = _started(context, payments, number)
                killed += 1
                console.print(f"{booked:,} of {plan.payments:,} booked, worker {number} killed")
            time.sleep(0.1)
    finally:
        for process in alive.values():
            process.kill()
            process.join()
    return killed


def _started(
    context: multiprocessing.context.SpawnContext, payments: str, number: int
) -> multiprocessing.process.BaseProcess:
    process = context.Process(target=work, args=(payments, number), daemon=True)
    process.start()
    return process


def _committed(payments: str) -> int:
    """The number of payments that the group has committed."""
    with Consumer(group_id=payments) as consumer:
        partitions = [TopicPartition(payments, number) for number in range(PARTITIONS)]
        consumer.assign(partitions)
        return sum(consumer.committed(each) or 0 for each in partitions)


def _judged(payments: str, payments_count: int, kills: int, seconds: float) -> Row:
    sides: Counter[tuple[int, bool]] = Counter()
    balance = 0
    ledger = ledger_of(payments)
    with Consumer(ledger, consumer_timeout_ms=3_000) as consumer:
        for record in consumer:
            entry = json.loads(record.value or b"")
            sides[entry["payment"], entry["amount"] > 0] += 1
            balance += entry["amount"]
    wanted = [(number, side) for number in range(payments_count) for side in (False, True)]
    return {
        "payments": payments_count,
        "booked": len({number for number, _ in sides}),
        "booked_twice": sum(count > 1 for count in sides.values()),
        "missing": sum(each not in sides for each in wanted),
        "balance": balance,
        "kills": kills,
        "seconds": round(seconds, 1),
        "payments_per_s": round(payments_count / seconds, 1),
    }


@click.command(help=__doc__)
@reported("ledger")
@click.option("--payments", default=20_000, show_default=True, help="How many payments.")
@click.option("--workers", default=3, show_default=True, help="How many processes share them.")
@click.option("--kills", default=10, show_default=True, help="How often a worker is killed.")
@click.option("--seed", default=0, show_default=True, help="Chooses payments and victims.")
def main(report: Report, **options: int) -> None:
    row = run(Plan(**options), report.console)
    report.show("ledger", [{"workers": options["workers"], **row}])
    is_whole = row["booked"] == row["payments"]
    report.judge(holds=is_whole and not (row["booked_twice"] or row["missing"] or row["balance"]))


if __name__ == "__main__":
    main()
