"""The clients of the push workload: an operator, who changes subscriptions, and the reads and the drain at the end."""

import time
from collections.abc import Mapping
from functools import partial
from multiprocessing.synchronize import Event
from typing import Any

from penstock import Admin, Consumer, Producer, TopicPartition
from penstock_core.errors import PenstockError
from tests.chaos.clients.clients import DELIVERY_TIMEOUT_MS, Target, run_all
from tests.chaos.clients.values import make_value, name_of
from tests.chaos.push.subscriptions import (
    DELETED,
    DRAINED,
    ENDPOINT,
    LATEST,
    MIRROR,
    MIRRORED,
    PAUSED,
    PUSHED,
    PushOperator,
)
from tests.chaos.recording import RecordingTransport
from tests.history.format import Copies, Drained, Function
from tests.history.recorder import Recorder

_LOOK_EACH_S = 2.0
_LAST_RECORDS = 30


def run_push_operator(target: Target, targets: Mapping[str, Mapping[str, Any]], stop: Event) -> None:
    """A process's entry: delete a subscription, pause one, make one that begins late, and change lanes of another."""
    with target.recorder("push-operator") as recorder, Admin(transport=target.transport()) as admin:
        operator = PushOperator(admin=admin, recorder=recorder, targets=targets)
        stop.wait(8)
        operator.delete(DELETED)
        operator.pause(PAUSED)
        stop.wait(3)
        operator.create(LATEST)
        for lanes in (2, 1):
            if not stop.wait(10):
                operator.alter_lanes(ENDPOINT, lanes)


def run_push_drains(target: Target, within_s: float) -> None:
    """A process's entry: resume what is paused, send last records, and wait until each subscription has delivered all.

    So a subscription delivers something, even if it was created when the faults let no more records come.

    `push-drains.unread.json` lists what stays.
    """
    left: list[str] = []
    deadline = time.monotonic() + within_s
    with target.recorder("push-drains") as recorder:
        with Admin(transport=target.transport()) as admin:
            PushOperator(admin=admin, recorder=recorder, targets={}).resume(PAUSED)
        _send_last(target, recorder)
        run_all([partial(_drain, target, recorder, name, deadline, left) for name in DRAINED])
    target.tell_unread("push-drains", left)


def _send_last(target: Target, recorder: Recorder) -> None:
    transport = RecordingTransport(target.transport(), recorder, "last")
    with Producer(transport=transport, delivery_timeout_ms=DELIVERY_TIMEOUT_MS) as producer:
        for number in range(_LAST_RECORDS):
            name = f"last-{number}"
            partition = number % target.partitions
            producer.send(PUSHED, make_value(name), headers=[("tag", name[-1].encode())], partition=partition)


def _drain(target: Target, recorder: Recorder, name: str, deadline: float, left: list[str]) -> None:
    operation = recorder.invoke(f"drain-{name}", Function.DRAINED, group=name)
    places: object = "anything"
    with Admin(transport=target.transport()) as admin:
        while time.monotonic() < deadline:
            try:
                described = admin.describe_subscription(name)
            except PenstockError:
                continue
            if not described.lag:
                recorder.ok(operation, [Drained(PUSHED)])
                return
            places = [each for each in described.partitions if each.lag]
            time.sleep(_LOOK_EACH_S)
    recorder.maybe(operation)
    left.append(f"subscription {name}, of which {places} are left")


def read_copies(consumer: Consumer, recorder: Recorder, process: str, target: Target, deadline: float) -> list[str]:
    """Tell the history of all copies. Return what is left at the deadline."""
    partitions = target.partitions_of([MIRRORED])
    consumer.assign(partitions)
    for each in partitions:
        consumer.seek(each, 0)
    ends = consumer.end_offsets(partitions)
    while any(consumer.position(each) < ends[each] for each in partitions) and time.monotonic() < deadline:
        operation = recorder.invoke(process, Function.COPIES, group=MIRROR)
        try:
            records = consumer.poll(timeout_ms=1_000)
        except PenstockError:
            recorder.fail(operation)
            continue
        found: dict[TopicPartition, list[tuple[int, str]]] = {}
        for record in records:
            where = TopicPartition(record.topic, record.partition)
            found.setdefault(where, []).append((record.offset, name_of(record.value)))
        recorder.ok(operation, [Copies(where, tuple(rows)) for where, rows in found.items()])
    unread = [each for each in partitions if consumer.position(each) < ends[each]]
    return [f"copies of {each} from {consumer.position(each)} to {ends[each]}" for each in unread]
