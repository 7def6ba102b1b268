from typing import Any

import pytest

from penstock_core.ids import Offset
from penstock_service.instance.instance import Instance
from penstock_service.share.batches.read_batches import WantedRecords, read_batches
from tests.support.service import head_of, key_of, new_topic, send


def _read_of(instance: Instance, topic: str, *offsets: int) -> list[Offset]:
    wanted = WantedRecords(
        key=key_of(instance, topic), head=head_of(instance, topic), ranges=tuple((each, each + 1) for each in offsets)
    )
    [found] = read_batches(instance, [wanted])
    assert (found.left_out, found.removed, found.unreadable) == ((), (), ())
    return [each.base_offset for each in found.batches]


@pytest.fixture
def asked(instance: Instance, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The offsets from which pages were read."""
    found: list[int] = []
    pages = instance.stores.log.pages

    def counted(key: Any, offset: Offset, limit: int) -> Any:
        found.append(offset)
        return pages(key, offset, limit)

    monkeypatch.setattr(instance.stores.log, "pages", counted)
    return found


def test_records_that_lie_scattered_in_a_page_cost_one_read_of_it(instance: Instance, asked: list[int]) -> None:
    topic = new_topic(instance)
    while len(pages := instance.stores.log.pages(key_of(instance, topic), Offset(0), 2)) < 2:
        send(instance, topic, "v")
    behind = pages[0].end_offset
    asked.clear()
    assert _read_of(instance, topic, 1, 3, 5, behind - 1, behind, behind + 2) == [
        1,
        3,
        5,
        behind - 1,
        behind,
        behind + 2,
    ]
    assert asked == [1, behind]
