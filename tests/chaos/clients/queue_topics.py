"""The topics and share groups of the queue workload: tasks for workers, what they make of them, and delayed records."""

from binascii import crc32
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from penstock import Admin
from tests.chaos.clients.clients import FILTERED_TAG
from tests.chaos.exchanges.shares import DEFAULT_LOCK_MS
from tests.chaos.push.subscriptions import PUSHED
from tests.history.format import Function, Share
from tests.history.recorder import Recorder

TASKS, DEAD, EFFECTS, LATER = "tasks", "tasks.dead", "effects", "later"
READ_AT_END = (TASKS, EFFECTS, LATER, PUSHED)
POOL, LANES, SEVENS, MOVERS = "pool", "lanes", "sevens", "movers"
GROUPS = (POOL, LANES, SEVENS, MOVERS)
DELIVERIES_MAX = 4
_POISON_ONE_IN = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class _Group:
    is_by_key: bool = False
    has_dead_letters: bool = True
    tag: str | None = None

    def config(self) -> Mapping[str, Any]:
        config: dict[str, Any] = {
            "lock_ms": DEFAULT_LOCK_MS,
            "retry_backoff_ms_min": 200,
            "retry_backoff_ms_max": 2_000,
        }
        if self.is_by_key:
            config |= {"ordering": "key", "key_batch_max": 3}
        if self.has_dead_letters:
            config |= {"dead_letter_topic": DEAD, "deliveries_max": DELIVERIES_MAX}
        if self.tag is not None:
            config |= {"filter": {"tag": [self.tag]}}
        return config

    def share(self) -> Share:
        return Share(
            topics=(TASKS,),
            deliveries_max=DELIVERIES_MAX if self.has_dead_letters else None,
            is_by_key=self.is_by_key,
            dead_letter_topic=DEAD if self.has_dead_letters else None,
            ending=self.tag,
        )


_GROUPS = {
    POOL: _Group(),
    LANES: _Group(is_by_key=True),
    SEVENS: _Group(has_dead_letters=False, tag=FILTERED_TAG),
    MOVERS: _Group(),
}


def create_queue(admin: Admin, recorder: Recorder, partitions: int) -> None:
    """Create the topics and the share groups, and tell the history of them."""
    for topic in (TASKS, EFFECTS, LATER):
        admin.create_topic(topic, partitions=partitions, config={"index_tags": True})
    admin.create_topic(DEAD, partitions=1)
    for name, group in _GROUPS.items():
        admin.create_share_group(name, TASKS, group.config())
        recorder.done("operator", Function.SHARE, [group.share()], group=name)


def is_poison(name: str) -> bool:
    """Return whether every handler of this record fails."""
    return crc32(name.encode()) % _POISON_ONE_IN == 0
