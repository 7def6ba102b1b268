"""The producers of the queue workload: tasks and pushed records with and without keys, and delayed records.

Some delayed records are cancelled. Some go in transactions, and some of these are aborted on purpose.
"""

import time
from collections.abc import Callable, Iterator
from functools import partial
from multiprocessing.synchronize import Event
from random import Random

from penstock import Admin, Producer
from penstock.model import RecordMetadata
from penstock_core.errors import PenstockError
from tests.chaos.clients.clients import DELIVERY_TIMEOUT_MS, Target, follow, run_all
from tests.chaos.clients.queue_topics import LATER, READ_AT_END, TASKS
from tests.chaos.clients.stop_file import StopFile
from tests.chaos.clients.values import make_value
from tests.chaos.push.subscriptions import PUSHED
from tests.chaos.recording import RecordingTransport
from tests.history.format import Function, Schedule
from tests.history.recorder import Recorder

_KEYS = 12
_BURST_MAX = 5
_PAUSE_S = 0.5
_LIFE_S = 20.0
_DELAY_MS_MAX = 15_000
_CANCELLABLE_SHARE, _ABORTED_SHARE = 0.4, 0.4
_ROUND_MS = 2_000  # deliver_at_ms is a multiple of this, so that many records share a due time


class AbortError(Exception):
    """The application gives a transaction up."""


def run_task_producers(target: Target, seed: int, stop: Event, topics: tuple[str, ...]) -> None:
    """A process's entry: producers of tasks, of pushed records, of delayed records, and of these in transactions.

    Those of other topics than `topics` are left out.
    """
    with target.recorder("task-producers") as recorder:
        producers: dict[str, list[Callable[[], None]]] = {
            TASKS: [partial(_send_with_keys, target, recorder, Random(f"{seed}.tasks"), stop, (TASKS, "task"))],
            PUSHED: [partial(_send_with_keys, target, recorder, Random(f"{seed}.pushed"), stop, (PUSHED, "push"))],
            LATER: [
                partial(_send_later, target, recorder, Random(f"{seed}.later"), stop),
                partial(_send_later_at_once, target, recorder, Random(f"{seed}.at-once"), stop),
            ],
        }
        run_all([body for topic in topics for body in producers[topic]])


def run_queue_reader(target: Target, stop: StopFile) -> None:
    """A process's entry: follow what share groups make, and the delayed records, until the last one has come."""
    with target.recorder("queue-tail") as recorder:
        follow(target, recorder, stop, "queue-tail", topics=READ_AT_END)


def _send_with_keys(
    target: Target, recorder: Recorder, chance: Random, stop: Event, topic_and_prefix: tuple[str, str]
) -> None:
    number, (topic, prefix) = 0, topic_and_prefix
    for producer in _lives(target, recorder, topic, stop):
        for _ in range(chance.randint(1, _BURST_MAX)):
            number += 1
            key = f"lane-{chance.randrange(_KEYS)}" if chance.random() < 0.8 else None
            name = f"{prefix}-{number}"
            _quietly(partial(producer.send, topic, make_value(name), key=key, headers=[("tag", name[-1].encode())]))


def _send_later(target: Target, recorder: Recorder, chance: Random, stop: Event) -> None:
    """Delayed records, some with a name by which they are cancelled after a while."""
    number = 0
    waiting: list[tuple[float, str]] = []  # when to cancel, and what
    admin = Admin(transport=RecordingTransport(target.transport(), recorder, "later-operator"))

    def delivered(error: PenstockError | None, metadata: RecordMetadata) -> None:
        if error is None and metadata.scheduled_id is not None and metadata.deliver_at_ms is not None:
            left_s = max(0.0, metadata.deliver_at_ms / 1_000 - time.time())
            waiting.append((time.monotonic() + chance.uniform(0, 1.2 * left_s), metadata.scheduled_id))

    with admin:
        for producer in _lives(target, recorder, "later", stop):
            for _ in range(chance.randint(1, _BURST_MAX)):
                number += 1
                _quietly(
                    partial(
                        producer.send,
                        LATER,
                        make_value(f"later-{number}"),
                        deliver_at_ms=_due_ms(chance),
                        cancellable=chance.random() < _CANCELLABLE_SHARE,
                        on_delivery=delivered,
                    )
                )
            due = [each for each in waiting if each[0] <= time.monotonic()]
            for each in due:
                waiting.remove(each)
                _quietly(partial(admin.cancel_scheduled, LATER, each[1]))


def _send_later_at_once(target: Target, recorder: Recorder, chance: Random, stop: Event) -> None:
    """Delayed records in transactions. The history knows those that were given up as failed."""
    transport = RecordingTransport(target.transport(), recorder, "at-once")
    number = 0
    with Producer(
        transport=transport, transactional_id="chaos-later", delivery_timeout_ms=DELIVERY_TIMEOUT_MS
    ) as producer:
        while not stop.wait(2 * _PAUSE_S):
            due_ms, gives_up = _due_ms(chance), chance.random() < _ABORTED_SHARE
            names = [f"at-once-{number}-{index}" for index in range(3)]
            number += 1
            if gives_up:
                ops = [Schedule((LATER, 0), name, 0, "given-up") for name in names]
                recorder.fail(recorder.invoke("at-once", Function.TXN, ops))
            try:
                with producer.transaction() as transaction:
                    for name in names:
                        transaction.send(LATER, make_value(name), partition=0, deliver_at_ms=due_ms)
                    if gives_up:
                        raise AbortError
            except (AbortError, PenstockError):
                continue


def _due_ms(chance: Random) -> int:
    due_ms = int(time.time() * 1_000) + chance.randrange(_DELAY_MS_MAX)
    return due_ms - due_ms % _ROUND_MS + _ROUND_MS


def _lives(target: Target, recorder: Recorder, name: str, stop: Event) -> Iterator[Producer]:
    """A producer for each burst: the same one for a while, then a new one under a new name."""
    life = 0
    while not stop.is_set():
        transport = RecordingTransport(target.transport(), recorder, f"{name}.{life}")
        ends_at = time.monotonic() + _LIFE_S
        with Producer(
            transport=transport, linger_ms=20, max_in_flight=2, delivery_timeout_ms=DELIVERY_TIMEOUT_MS
        ) as producer:
            while not stop.is_set() and time.monotonic() < ends_at:
                yield producer
                stop.wait(_PAUSE_S)
        life += 1


def _quietly(call: Callable[[], object]) -> None:
    """Make the call. The history tells what happened: a topic that was not found, or a cancel that came too late."""
    try:
        call()
    except PenstockError:
        return
