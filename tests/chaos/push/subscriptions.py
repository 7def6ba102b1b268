"""The subscriptions of a run: one for each kind of target and each mode, and some that an operator changes.

Each call of an operator is repeated until it succeeds, and the history has it from its first try to its last answer.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from penstock import Admin
from penstock.errors import NotFoundError
from penstock_core.errors import PenstockError
from penstock_core.limits import PUSH_LOCK_MS
from tests.history.format import Disturb, Function, Push
from tests.history.recorder import Recorder

PUSHED, BURIED, MIRRORED = "pushed", "pushed.dead", "mirrored"
IN_ORDER, AT_ONCE = "in-order", "at-once"
ENDPOINT, MIRROR = "endpoint", "mirror"
LATEST, PAUSED, DELETED = "latest", "paused", "deleted"
FUNCTIONS, BY_ENDPOINT = (IN_ORDER, AT_ONCE), (ENDPOINT, LATEST, PAUSED, DELETED)
FIRST = (IN_ORDER, AT_ONCE, ENDPOINT, MIRROR, PAUSED, DELETED)  # are there before the first record
DRAINED = (IN_ORDER, AT_ONCE, ENDPOINT, MIRROR, PAUSED, LATEST)
_RETRY = {"attempts_max": 3, "backoff_ms_min": 200, "backoff_ms_max": 2_000, "patience_ms": 20_000}
_BATCH_RECORDS = 10
_TRY_AGAIN_S, _TRIES_S_MAX = 0.5, 120.0
_PROCESS = "push-operator"


@dataclass(frozen=True, slots=True, kw_only=True)
class PushOperator:
    """Creates and changes subscriptions. `targets` has the target of each, as the API has it."""

    admin: Admin
    recorder: Recorder
    targets: Mapping[str, Mapping[str, Any]]

    def create_topics(self, partitions: int) -> None:
        """Create the topic that is delivered, the one of copies, and the dead-letter topic."""
        for topic in (PUSHED, MIRRORED):
            self.admin.create_topic(topic, partitions=partitions, config={"index_tags": True})
        self.admin.create_topic(BURIED, partitions=1)

    def create(self, name: str) -> None:
        """Create the subscription."""
        operation = self.recorder.invoke(_PROCESS, Function.PUSH, [_push(name)], group=name)
        _repeat(lambda: self.admin.put_subscription(name, [PUSHED], self.targets[name], _settings(name)))
        self.recorder.ok(operation)

    def pause(self, name: str) -> None:
        self._record(Function.STOP, name, lambda: self.admin.pause_subscription(name))

    def resume(self, name: str) -> None:
        self._record(Function.RESUME, name, lambda: self.admin.resume_subscription(name))

    def delete(self, name: str) -> None:
        self._record(Function.STOP, name, lambda: _delete(self.admin, name))

    def alter_lanes(self, name: str, lanes: int) -> None:
        """Change how many lanes it has. Two lanes may deliver the same records until the old ones' locks end."""
        disturb = Disturb("the number of lanes changes", PUSH_LOCK_MS)
        operation = self.recorder.invoke(_PROCESS, Function.DISTURB, [disturb], group=name)
        _repeat(lambda: self.admin.put_subscription(name, config={"concurrency": lanes}))
        self.recorder.ok(operation)

    def _record(self, function: Function, name: str, call: Callable[[], object]) -> None:
        operation = self.recorder.invoke(_PROCESS, function, group=name)
        _repeat(call)
        self.recorder.ok(operation)


def _settings(name: str) -> dict[str, Any]:
    settings: dict[str, Any] = {
        "mode": "parallel" if name == AT_ONCE else "ordered",
        "start": "latest" if name == LATEST else "earliest",
        "batch_records": _BATCH_RECORDS,
        "concurrency": 2 if name in FUNCTIONS else 1,
    }
    return settings if name == MIRROR else {**settings, "dead_letter_topic": BURIED, "retry": _RETRY}


def _push(name: str) -> Push:
    """The settings as the history tells them."""
    return Push(
        topics=(PUSHED,),
        is_ordered=name != AT_ONCE,
        dead_letter_topic=None if name == MIRROR else BURIED,
        is_latest=name == LATEST,
        copies_to=MIRRORED if name == MIRROR else None,
        lock_ms=PUSH_LOCK_MS,
        is_complete=True,
    )


def _delete(admin: Admin, name: str) -> None:
    try:
        admin.delete_subscription(name)
    except NotFoundError:
        return  # a try before this one has done it


def _repeat(call: Callable[[], object]) -> None:
    ends_at = time.monotonic() + _TRIES_S_MAX
    while True:
        try:
            call()
        except PenstockError:
            if time.monotonic() > ends_at:
                raise
            time.sleep(_TRY_AGAIN_S)
        else:
            return
