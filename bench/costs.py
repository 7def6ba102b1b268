"""What idempotence, groups and transactions cost: storage calls and DynamoDB units, and what they add to plain produce.

Calls and units are counted by running the service's code in this process on the stack's tables and buckets
(metering.py). Latency, throughput and handler CPU are of the deployed functions, in turns, so that whatever else the
machine does falls on both sides. Runs on the local stack that `make run` or `penstock local up` has started.
"""

import json
import secrets
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from bench.counting import CountingTransport
from bench.metering import metered_broker
from penstock import Admin, Producer
from penstock.testing import MemoryTransport
from penstock.transport import Transport, open_transport
from penstock_broker.commit_offsets import CommitEntry, commit_offsets
from penstock_core.group import Member, parse_subscription
from penstock_core.group_target import EMPTY_TARGET, encode_target, make_target
from penstock_core.ids import MemberName, TopicId, TopicName
from penstock_core.limits import TAIL_ROLL_REFS
from penstock_core.topic import Topic
from tests.broker.group_member import GroupMember, settle

APPENDS = 10 * TAIL_ROLL_REFS
PARTITIONS = (1, 10, 50)
MEMBERS, TOPICS, TOPIC_PARTITIONS = 1_000, 100, 100
Row = dict[str, Any]
as_json_option = click.option("--json", "as_json", is_flag=True, help="Print the figures as JSON.")
rounds_option = click.option("--rounds", default=20, show_default=True, help="How often the sides take turns.")


@click.group(help=__doc__)
def main() -> None:
    pass


@main.command()
@rounds_option
@as_json_option
def idempotence(rounds: int, as_json: bool) -> None:
    """Write units of an append by the number of producers; the deployed functions with it on and off."""
    deployed = CountingTransport(open_transport())
    broker, meter = metered_broker()
    rows: list[Row] = []
    here = MemoryTransport(broker)
    for producers in (0, 1, 5, 20):
        with _topic(here) as topic, ExitStack() as stack:
            clients = [
                stack.enter_context(Producer(transport=here, linger_ms=0, enable_idempotence=producers > 0))
                for _ in range(max(1, producers))
            ]
            for client in clients:  # from here on each is known, and the head has its tail
                client.send(topic, b"v").result()
            with meter.metered() as cost:
                for number in range(APPENDS):
                    clients[number % len(clients)].send(topic, b"v").result()
        rows.append({"idempotent producers": producers, **cost.per(APPENDS)})
    sides = {"off": False, "on": True}
    seconds: dict[str, list[float]] = {"off": [], "on": []}
    rates: dict[str, list[float]] = {"off": [], "on": []}
    cpu_ms: dict[str, list[float]] = {"off": [], "on": []}
    with ExitStack() as stack:
        topics = {side: stack.enter_context(_topic(deployed)) for side in sides}
        one_by_one, many = (
            {
                side: stack.enter_context(Producer(transport=deployed, enable_idempotence=is_on, **settings))
                for side, is_on in sides.items()
            }
            for settings in ({"linger_ms": 0}, {"compression_type": "none"})
        )
        for number in range(rounds):
            for side in _in_turns(sides, number):
                deployed.reset()
                seconds[side] += _seconds(lambda: one_by_one[side].send(topics[side], b"x" * 100).result(), 10)  # noqa: B023
                counts = deployed.counts("/v1/produce")
                cpu_ms[side].append(counts.cpu_ms / counts.requests)
                [took] = _seconds(lambda: _send_many(many[side], topics[side]), 1)  # noqa: B023
                rates[side].append(_MANY / took)
    rows.append(
        {
            "idempotent producers": "deployed, on / off",
            "latency p50": _ratio(seconds),
            "handler CPU p50": _ratio(cpu_ms),
            "throughput p50": _ratio(rates),
        }
    )
    _print("Idempotence, per append", rows, as_json)


@main.command()
@as_json_option
def groups(as_json: bool) -> None:
    """Calls and units of heartbeats and commits; the target of 1,000 members and 10,000 partitions."""
    broker, meter = metered_broker()
    here = MemoryTransport(broker)
    rows: list[Row] = []
    with _topic(here, 100) as topic:
        group = f"g-{topic}"
        member = GroupMember(broker, secrets.token_hex(16), topics=(topic,), group=group)
        with meter.metered() as cost:
            member.settle()
        rows.append({"": "join, and take 100 partitions", **cost.per(1)})
        with meter.metered() as cost:
            for _ in range(10):
                member.beat()
        rows.append({"": "idle heartbeat", **cost.per(10)})
        for count in (1, 100):
            entries = [
                CommitEntry(topic=topic, partition=lease.partition.partition, offset=1, lease_epoch=lease.epoch)
                for lease in list(member.held.values())[:count]
            ]
            with meter.metered() as cost:
                refused = commit_offsets(broker, group, entries, member.member_id)
            if any(refused):
                raise RuntimeError(f"commits were refused: {refused}")
            rows.append({"": f"commit of {count}", **cost.per(1)})
        other = GroupMember(broker, secrets.token_hex(16), topics=(topic,), group=group)
        with meter.metered() as cost:
            settle(member, other)
        rows.append({"": "another joins: 50 partitions move", **cost.per(1)})
    rows += _targets()
    _print("Groups", rows, as_json)


@main.command()
@rounds_option
@as_json_option
def transactions(rounds: int, as_json: bool) -> None:
    """Calls and units of a transaction over 1, 10 and 50 partitions, beside a plain produce to them."""
    deployed = open_transport()
    broker, meter = metered_broker()
    here = MemoryTransport(broker)
    rows: list[Row] = []
    for partitions in PARTITIONS:
        with ExitStack() as stack:
            topic = stack.enter_context(_topic(here, partitions))
            costs = []
            for send in _sides(here, topic, partitions, stack).values():
                for _ in range(2):  # a first one of each is not as all others
                    send()
                with meter.metered() as cost:
                    for _ in range(TAIL_ROLL_REFS):
                        send()
                costs.append(cost.per(TAIL_ROLL_REFS))
            sides = _sides(deployed, topic, partitions, stack)
            seconds: dict[str, list[float]] = {side: [] for side in sides}
            for number in range(rounds):
                for side in _in_turns(sides, number):
                    seconds[side] += _seconds(sides[side], 1)
        rows += [
            {"": f"plain produce to {partitions}", **costs[0]},
            {
                "": f"transaction over {partitions}",
                **costs[1],
                "latency p50, to plain": _ratio(seconds, "transaction", "plain"),
            },
        ]
    _print("Transactions, one record per partition", rows, as_json)


_MANY = 3_000  # records of 1 KB


def _send_many(producer: Producer, topic: str) -> None:
    for _ in range(_MANY):
        producer.send(topic, b"x" * 1_000)
    producer.flush()


def _sides(transport: Transport, topic: str, partitions: int, stack: ExitStack) -> dict[str, Callable[[], None]]:
    """The same records, plain and in a transaction: one to each partition, in one request."""
    plain = stack.enter_context(Producer(transport=transport, linger_ms=5_000))
    transactional = stack.enter_context(Producer(transport=transport, transactional_id=f"t-{secrets.token_hex(8)}"))

    def send_plain() -> None:
        for partition in range(partitions):
            plain.send(topic, b"x" * 100, partition=partition)
        plain.flush()

    def send_in_transaction() -> None:
        with transactional.transaction() as transaction:
            for partition in range(partitions):
                transaction.send(topic, b"x" * 100, partition=partition)

    return {"plain": send_plain, "transaction": send_in_transaction}


def _targets() -> list[Row]:
    """Pure: what the assignment of a large group takes, at first and when a member leaves."""
    subscription = parse_subscription((), ("t*",))
    members = [
        Member(
            name=MemberName(name),
            member_id=name,
            subscription=subscription,
            session=1,
            sequence=1,
            deadline_ms=0,
            joined_at_ms=0,
        )
        for name in (secrets.token_hex(18) for _ in range(MEMBERS))
    ]
    topics = [
        Topic(
            topic_id=TopicId(secrets.token_hex(10)),
            name=TopicName(f"t{number}"),
            partitions=TOPIC_PARTITIONS,
            created_at_ms=0,
        )
        for number in range(TOPICS)
    ]
    rows: list[Row] = []
    first = make_target("sticky", members, topics, EMPTY_TARGET)
    for what, now, previous in (("made", members, EMPTY_TARGET), ("made anew without one member", members[1:], first)):
        cpu_s = []
        for _ in range(5):
            started_s = time.process_time()
            target = make_target("sticky", now, topics, previous)
            cpu_s.append(time.process_time() - started_s)
        rows.append(
            {
                "": f"target of {len(members):,} members, {TOPICS * TOPIC_PARTITIONS:,} partitions, {what}",
                "CPU s": round(statistics.median(cpu_s), 3),
                "bytes": sum(len(chunk) for chunk in encode_target(target)),
            }
        )
    return rows


@contextmanager
def _topic(transport: Transport, partitions: int = 1) -> Iterator[str]:
    name = f"costs-{secrets.token_hex(4)}"
    with Admin(transport=transport) as admin:
        admin.create_topic(name, partitions=partitions)
        yield name
        admin.delete_topic(name)


def _in_turns(sides: Any, number: int) -> Sequence[str]:
    """Every other round the other way round, so that neither side always comes first."""
    return list(sides) if number % 2 else list(reversed(list(sides)))


def _seconds(what: Callable[[], object], times: int) -> list[float]:
    found = []
    for _ in range(times):
        started_s = time.perf_counter()
        what()
        found.append(time.perf_counter() - started_s)
    return found


def _ratio(values: dict[str, list[float]], over: str = "on", under: str = "off") -> str:
    """The medians' ratio, and both."""
    upper, lower = statistics.median(values[over]), statistics.median(values[under])
    return f"{upper / lower:.2f} ({upper:.3g} / {lower:.3g})"


def _print(title: str, rows: list[Row], as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps(rows))
        return
    columns = list(dict.fromkeys(column for row in rows for column in row))
    table = Table(*columns, title=title)
    for row in rows:
        table.add_row(*(str(row.get(column, "")) for column in columns))
    Console(width=160).print(table)


if __name__ == "__main__":
    main()
