"""The end of the queue workload: share groups are worked off, delayed records come, and dead letters are read."""

import time
from functools import partial

from penstock import Admin, Consumer, ShareConsumer, TopicPartition
from penstock.model import ConsumerRecord
from penstock_core.errors import PenstockError
from penstock_core.share.dead_letter import own_headers
from tests.chaos.clients.clients import Target, read_to_end, run_all
from tests.chaos.clients.queue_topics import DEAD, GROUPS, LATER, READ_AT_END, TASKS, is_poison
from tests.chaos.clients.values import name_of
from tests.chaos.push.push_clients import read_copies
from tests.chaos.push.subscriptions import BURIED
from tests.chaos.recording import RecordingTransport
from tests.history.format import DeadLetter, DeadLetters, Drained, Function
from tests.history.recorder import Recorder
from tests.support.dead_letters import dead_letter_of

_LOOK_EACH_S = 2.0


def run_drains(target: Target, within_s: float) -> None:
    """A process's entry: accept what is left of each share group, and reject poison.

    `drains.unread.json` lists what stays.
    """
    left: list[str] = []
    deadline = time.monotonic() + within_s
    with target.recorder("drains") as recorder:
        run_all([partial(_drain, target, recorder, group, deadline, left) for group in GROUPS])
        left += _await_delayed(target, deadline)
    target.tell_unread("drains", left)


def _drain(target: Target, recorder: Recorder, group: str, deadline: float, left: list[str]) -> None:
    process = f"drain-{group}"
    operation = recorder.invoke(process, Function.DRAINED, group=group)
    transport = RecordingTransport(target.transport(), recorder, process)
    lags: dict[int, int] = {-1: 1}
    with (
        Admin(transport=target.transport()) as admin,
        ShareConsumer(transport=transport, group_id=group, wait="poll") as consumer,
    ):
        look_at = 0.0
        while any(lags.values()) and time.monotonic() < deadline:
            try:
                for record in consumer.poll(timeout_ms=500):
                    if is_poison(name_of(record.value)):
                        consumer.reject(record)
                if time.monotonic() >= look_at:
                    consumer.flush()
                    lags = {each.partition: each.lag for each in admin.describe_share_group(group).partitions}
                    look_at = time.monotonic() + _LOOK_EACH_S
            except (PenstockError, TimeoutError):
                continue
    if any(lags.values()):
        recorder.maybe(operation)
        left.append(f"share group {group}, of which {lags} are left")
    else:
        recorder.ok(operation, [Drained(TASKS)])


def _await_delayed(target: Target, deadline: float) -> list[str]:
    """Wait until no delayed record waits any more. The run promotes meanwhile."""
    left = "anything"
    with Admin(transport=target.transport()) as admin:
        while time.monotonic() < deadline:
            try:
                waiting = admin.list_scheduled(LATER)
            except PenstockError:
                continue
            if not waiting:
                return []
            left = f"{len(waiting)} timers, the first {waiting[0]}"
            time.sleep(_LOOK_EACH_S)
    return [f"delayed records: {left}"]


def run_queue_end_reader(target: Target, reader: str, within_s: float) -> None:
    """A process's entry: read the topics of the queue workload, dead letters and copies, from start to end."""
    name, deadline = f"{reader}.queue", time.monotonic() + within_s
    with (
        target.recorder(name) as recorder,
        Consumer(transport=target.transport(), fetch_wait_ms=0, max_in_flight=4) as consumer,
    ):
        left = read_to_end(consumer, recorder, name, target.partitions_of(READ_AT_END), deadline)
        for topic in (DEAD, BURIED):
            left += _read_dead_letters(consumer, recorder, name, topic, deadline)
        target.tell_unread(name, left + read_copies(consumer, recorder, name, target, deadline))


def _read_dead_letters(consumer: Consumer, recorder: Recorder, process: str, topic: str, deadline: float) -> list[str]:
    where = TopicPartition(topic, 0)
    consumer.assign([where])
    consumer.seek(where, 0)
    end = consumer.end_offsets([where])[where]
    while consumer.position(where) < end and time.monotonic() < deadline:
        operation = recorder.invoke(process, Function.DEAD_LETTERS)
        try:
            records = consumer.poll(timeout_ms=1_000)
        except PenstockError:
            recorder.fail(operation)
            continue
        recorder.ok(operation, [DeadLetters((topic, 0), tuple(_letter(each) for each in records))])
    return [] if consumer.position(where) >= end else [f"{topic} from {consumer.position(where)} to {end}"]


def _letter(record: ConsumerRecord) -> DeadLetter:
    name = name_of(record.value)
    if list(own_headers(record.headers)) != [("tag", name[-1].encode())]:
        raise AssertionError(f"the dead letter of {name} has the headers {record.headers}")
    return dead_letter_of(record.offset, name, record.key, record.headers)
