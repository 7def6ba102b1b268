import pytest

from penstock_core.ids import Offset
from penstock_core.log.push_event import PushEvent
from tests.core.storage.stored_values import KEY


@pytest.mark.parametrize(("before", "after", "wakes"), [(3, 4, True), (3, None, True), (3, 3, False)])
def test_event_wakes_when_records_came_or_the_head_is_gone(before: int, after: int | None, wakes: bool) -> None:
    next_offset = None if after is None else Offset(after)
    assert PushEvent(key=KEY, old_next_offset=Offset(before), next_offset=next_offset).must_wake is wakes
