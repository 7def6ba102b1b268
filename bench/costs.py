"""Measures the cost of idempotence, groups and transactions: storage calls and DynamoDB units, beside plain produce.

The bench runs the service's code in this process on the stack's tables and buckets, and counts calls and units
(`meters/metering.py`). Latency, throughput and handler CPU are those of the deployed functions. Both sides take turns,
so other work of the machine falls on both. It needs the local stack that `make run` or `penstock local up` starts.
"""

import secrets
import statistics
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager

import click

from bench.meters.counting import CountingTransport
from bench.meters.metering import metered_instance
from bench.report.recording import Report, reported
from bench.report.result import Row
from penstock import Admin, Producer
from penstock.http.transport import Transport, open_transport
from penstock.testing import MemoryTransport
from penstock_core.groups.group import Member, parse_subscription
from penstock_core.groups.group_target import EMPTY_TARGET, encode_target, make_target
from penstock_core.ids import MemberName, TopicId, TopicName
from penstock_core.limits import TAIL_ROLL_REFS
from penstock_core.log.topic import Topic
from penstock_service.groups.commit_offsets import CommitEntry, commit_offsets
from tests.support.group_member import GroupMember, settle

APPENDS = 10 * TAIL_ROLL_REFS
PARTITIONS = (1, 10, 50)
MEMBERS, TOPICS, TOPIC_PARTITIONS = 1_000, 100, 100
rounds_option = click.option("--rounds", default=20, show_default=True, help="How often the sides take turns.")


@click.group(help=__doc__)
def main() -> None:
    pass


@main.command()
@reported("costs_idempotence")
@rounds_option
def idempotence(report: Report, rounds: int) -> None:
    """Measure the write units of an append for several producers, and the functions with idempotence on and off."""
    report.show("append", _units_by_producers())
    report.show("deployed_functions", _on_and_off(rounds))


def _units_by_producers() -> list[Row]:
    """Units and calls of one append, with its share of a roll. The producers write to one partition in turns."""
    instance, meter = metered_instance()
    rows: list[Row] = []
    here = MemoryTransport(instance)
    for producers in (0, 1, 5, 20):
        with _topic(here) as topic, ExitStack() as stack:
            clients = [
                stack.enter_context(Producer(transport=here, linger_ms=0, enable_idempotence=producers > 0))
                for _ in range(max(1, producers))
            ]
            for client in clients:  # from here on the head knows each producer
                client.send(topic, b"v").result()
            with meter.metered() as cost:
                for number in range(APPENDS):
                    clients[number % len(clients)].send(topic, b"v").result()
        rows.append({"idempotent_producers": producers, **cost.per(APPENDS)})
    return rows


def _on_and_off(rounds: int) -> list[Row]:
    """The medians of the deployed functions with idempotence on and off, in turns."""
    deployed = CountingTransport(open_transport())
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
    medians = (("latency of one record, s", seconds), ("handler CPU, ms", cpu_ms), ("throughput, records/s", rates))
    return [
        {
            "p50": name,
            "on": float(f"{statistics.median(values['on']):.3g}"),
            "off": float(f"{statistics.median(values['off']):.3g}"),
            "on_to_off": _ratio(values, "on", "off"),
        }
        for name, values in medians
    ]


@main.command()
@reported("costs_groups")
def groups(report: Report) -> None:
    """Count the calls and units of heartbeats and commits; time the target of 1,000 members and 10,000 partitions."""
    instance, meter = metered_instance()
    here = MemoryTransport(instance)
    rows: list[Row] = []
    with _topic(here, 100) as topic:
        group = f"g-{topic}"
        member = GroupMember(instance, secrets.token_hex(16), topics=(topic,), group=group)
        with meter.metered() as cost:
            member.settle()
        rows.append({"request": "a first member joins and takes 100 partitions", **cost.per(1)})
        with meter.metered() as cost:
            for _ in range(10):
                member.beat()
        rows.append({"request": "idle heartbeat", **cost.per(10)})
        for count in (1, 100):
            entries = [
                CommitEntry(topic=topic, partition=lease.partition.partition, offset=1, lease_epoch=lease.epoch)
                for lease in list(member.held.values())[:count]
            ]
            with meter.metered() as cost:
                refused = commit_offsets(instance, group, entries, member.member_id)
            if any(refused):
                raise RuntimeError(f"commits were refused: {refused}")
            rows.append({"request": f"commit of {count} partition{'s' * (count > 1)}", **cost.per(1)})
        other = GroupMember(instance, secrets.token_hex(16), topics=(topic,), group=group)
        with meter.metered() as cost:
            settle(member, other)
        rows.append({"request": "another joins: 50 partitions move", **cost.per(1)})
    report.show("requests", rows)
    report.show("targets", _targets())


@main.command()
@reported("costs_transactions")
@rounds_option
def transactions(report: Report, rounds: int) -> None:
    """Count the calls and units of a transaction over 1, 10 and 50 partitions, beside a plain produce to them."""
    deployed = open_transport()
    instance, meter = metered_instance()
    here = MemoryTransport(instance)
    rows: list[Row] = []
    for partitions in PARTITIONS:
        with ExitStack() as stack:
            topic = stack.enter_context(_topic(here, partitions))
            costs = []
            for send in _sides(here, topic, partitions, stack).values():
                for _ in range(2):  # the first request of each side costs more
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
            {"request": f"plain produce to {partitions}", **costs[0]},
            {
                "request": f"transaction over {partitions}",
                **costs[1],
                "latency_p50_to_plain": _ratio(seconds, "transaction", "plain"),
            },
        ]
    report.show("requests", rows)


_MANY = 3_000  # records of 1 KB


def _send_many(producer: Producer, topic: str) -> None:
    for _ in range(_MANY):
        producer.send(topic, b"x" * 1_000)
    producer.flush()


def _sides(transport: Transport, topic: str, partitions: int, stack: ExitStack) -> dict[str, Callable[[], None]]:
    """The two sides: both send one record to each partition, in one request, plain or in a transaction."""
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
    """The CPU and the size of a large group's assignment, at first and when a member leaves. Sends no call."""
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
                "target": f"{len(now):,} members, {TOPICS * TOPIC_PARTITIONS:,} partitions, {what}",
                "cpu_s": round(statistics.median(cpu_s), 3),
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


def _in_turns(sides: Iterable[str], number: int) -> Sequence[str]:
    """The sides in the order of this round: every second round reverses it, so that neither side always comes first."""
    return list(sides) if number % 2 else list(reversed(list(sides)))


def _seconds(what: Callable[[], object], times: int) -> list[float]:
    found = []
    for _ in range(times):
        started_s = time.perf_counter()
        what()
        found.append(time.perf_counter() - started_s)
    return found


def _ratio(values: dict[str, list[float]], over: str, under: str) -> float:
    """The ratio of the medians of two sides."""
    return round(statistics.median(values[over]) / statistics.median(values[under]), 2)


if __name__ == "__main__":
    main()
