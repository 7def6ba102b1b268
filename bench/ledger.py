"""A payment ledger that balances whoever dies: payments in, a debit and a credit out, exactly once.

Workers share the payments as a group, and book each in a transaction with its offset. Now and then one is killed
(SIGKILL) and started again. At the end every payment must be booked once, on both sides, and the sum must be 0.
Runs on the local stack that `make run` or `penstock local up` has started. Exit code 0: the ledger balances.
"""

import json
import multiprocessing
import random
import secrets
import time
from collections import Counter
from dataclasses import asdict, dataclass

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from penstock import Admin, Consumer, Producer, TopicPartition, Transaction, Transformer
from penstock.model import ConsumerRecord

PARTITIONS = 6
ACCOUNTS = 50
SESSION_MS = 8_000  # how long a killed worker's partitions wait
HEARTBEAT_MS = 1_000


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What was found in the ledger at the end. `records_per_s` of payments, kills and restarts included."""

    payments: int
    booked: int
    booked_twice: int
    missing: int
    balance: int
    kills: int
    seconds: float
    records_per_s: float

    @property
    def is_right(self) -> bool:
        return self.booked == self.payments and not (self.booked_twice or self.missing or self.balance)


def book(record: ConsumerRecord, transaction: Transaction) -> None:
    """A payment's two entries, each in the partition of its account."""
    payment = json.loads(record.value or b"")
    for account, amount in ((payment["from"], -payment["amount"]), (payment["to"], payment["amount"])):
        entry = json.dumps({"payment": payment["id"], "account": account, "amount": amount})
        transaction.send(ledger_of(record.topic), entry, key=account)


def ledger_of(payments: str) -> str:
    """The topic that this one's payments are booked in."""
    return payments.replace("payments", "ledger")


def work(payments: str, number: int) -> None:
    """One worker, until it is killed. Its transactional id is the same after a restart."""
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


def run(payments_count: int, workers: int, kills: int, seed: int, console: Console) -> Outcome:
    """The whole of it, on topics of its own."""
    chance = random.Random(seed)
    payments = f"payments-{secrets.token_hex(4)}"
    with Admin() as admin, Producer() as producer:
        for topic in (payments, ledger_of(payments)):
            admin.create_topic(topic, partitions=PARTITIONS)
        for number in range(payments_count):
            source, target = chance.sample(range(ACCOUNTS), 2)
            payment = {"id": number, "from": f"a{source}", "to": f"a{target}", "amount": chance.randint(1, 1_000)}
            producer.send(payments, json.dumps(payment), key=str(number))
        producer.flush()
        started_s = time.monotonic()
        context = multiprocessing.get_context("spawn")
        alive = {number: _started(context, payments, number) for number in range(workers)}
        kill_at = sorted(chance.sample(range(payments_count // 20, payments_count), kills))
        killed = 0
        try:
            with _progress(console) as progress:
                task = progress.add_task("book payments", total=payments_count)
                while (booked := _committed(payments)) < payments_count:
                    progress.update(task, completed=booked)
                    for number, process in alive.items():
                        if not process.is_alive():
                            raise click.ClickException(f"worker {number} has ended by itself: see above")
                    if killed < kills and booked >= kill_at[killed]:
                        number = chance.choice(list(alive))
                        alive[number].kill()
                        alive[number].join()
                        alive[number] = _started(context, payments, number)
                        killed += 1
                    time.sleep(0.1)
                progress.update(task, completed=booked)
        finally:
            for process in alive.values():
                process.kill()
                process.join()
        seconds = time.monotonic() - started_s
    return _judged(payments, payments_count, killed, seconds)


def _started(
    context: multiprocessing.context.SpawnContext, payments: str, number: int
) -> multiprocessing.process.BaseProcess:
    process = context.Process(target=work, args=(payments, number), daemon=True)
    process.start()
    return process


def _committed(payments: str) -> int:
    """How many payments the group has committed."""
    with Consumer(group_id=payments) as consumer:
        partitions = [TopicPartition(payments, number) for number in range(PARTITIONS)]
        consumer.assign(partitions)
        return sum(consumer.committed(each) or 0 for each in partitions)


def _judged(payments: str, payments_count: int, kills: int, seconds: float) -> Outcome:
    sides: Counter[tuple[int, bool]] = Counter()
    balance = 0
    ledger = ledger_of(payments)
    with Consumer(ledger, consumer_timeout_ms=3_000) as consumer:
        for record in consumer:
            entry = json.loads(record.value or b"")
            sides[entry["payment"], entry["amount"] > 0] += 1
            balance += entry["amount"]
    wanted = [(number, side) for number in range(payments_count) for side in (False, True)]
    return Outcome(
        payments=payments_count,
        booked=len({number for number, _ in sides}),
        booked_twice=sum(count > 1 for count in sides.values()),
        missing=sum(each not in sides for each in wanted),
        balance=balance,
        kills=kills,
        seconds=round(seconds, 1),
        records_per_s=round(payments_count / seconds, 1),
    )


def _progress(console: Console) -> Progress:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    return Progress(*columns, console=console)


@click.command(help=__doc__)
@click.option("--payments", default=20_000, show_default=True, help="How many payments.")
@click.option("--workers", default=3, show_default=True, help="How many processes share them.")
@click.option("--kills", default=10, show_default=True, help="How often one of them is killed.")
@click.option("--seed", default=0, show_default=True, help="Chooses payments and victims.")
@click.option("--json", "as_json", is_flag=True, help="Print the figures as JSON.")
def main(payments: int, workers: int, kills: int, seed: int, as_json: bool) -> None:
    console = Console(stderr=as_json)
    outcome = run(payments, workers, kills, seed, console)
    if as_json:
        click.echo(json.dumps(asdict(outcome)))
    else:
        table = Table("", "", title="The ledger")
        for name, value in asdict(outcome).items():
            table.add_row(name.replace("_", " "), f"{value:,}")
        console.print(table)
    console.print("It balances." if outcome.is_right else "[red]It does not balance.[/red]")
    raise SystemExit(0 if outcome.is_right else 1)


if __name__ == "__main__":
    main()
