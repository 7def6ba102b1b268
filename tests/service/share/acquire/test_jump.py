"""Share groups step over the jump of a restore at once, whatever their order, and count none of it (finding U15)."""

from typing import Any

import pytest

from penstock_core.limits import LOST_HEAD_JUMP_OFFSETS
from penstock_service.instance.instance import Instance
from penstock_service.share.acquire.acquire import Acquired
from penstock_service.share.admin.describe_share_group import describe_share_group
from tests.service.share.sharing import GROUP, finish, new_group, state_of, take, values_in
from tests.support.restoring import jump
from tests.support.service import new_topic, send

BEHIND = 10 + LOST_HEAD_JUMP_OFFSETS


def _lag(instance: Instance) -> tuple[int, int | None]:
    [partition] = describe_share_group(instance, GROUP, "", 10)[1]
    return partition.lag, partition.oldest_age_ms


def _restored(instance: Instance, read: int, **config: Any) -> Acquired:
    """A group that has 0 to `read` in flight when the stage is restored."""
    new_topic(instance)
    new_group(instance, **config)
    send(instance, "orders", *map(str, range(10)))
    held = take(instance, read)
    jump(instance)
    return held


@pytest.mark.parametrize("ordering", ["none", "key"])
@pytest.mark.parametrize("read", [3, 10])
def test_records_behind_the_jump_come_next(instance: Instance, ordering: str, read: int) -> None:
    held = _restored(instance, read, ordering=ordering)
    assert finish(instance, held), "locks below the jump still count"
    send(instance, "orders", "new")
    assert _lag(instance) == (10 - read + 1, 0)
    found: list[str] = []
    for _ in range(3):
        acquired = take(instance)
        found += values_in(acquired)
        finish(instance, acquired)
    assert found == [*map(str, range(read, 10)), "new"]
    assert (state_of(instance).position, _lag(instance)) == (BEHIND + 1, (0, None))


@pytest.mark.parametrize("ordering", ["none", "key"])
def test_jump_without_records_behind_it_is_no_work(instance: Instance, ordering: str) -> None:
    finish(instance, _restored(instance, 10, ordering=ordering))
    acquired = take(instance)
    assert (values_in(acquired), acquired.next_available_ms) == ([], None)
    assert _lag(instance) == (0, None)
