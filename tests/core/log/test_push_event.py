from dataclasses import replace

from penstock_core.ids import Offset
from penstock_core.log.index import EMPTY_HEAD, appended, armed, push_armed
from penstock_core.log.push_event import PushEvent, push_event
from tests.core.log.test_ref import GOLDEN
from tests.core.storage.stored_values import KEY

WAITS = replace(EMPTY_HEAD, has_push_waiter=True)


def test_append_to_a_head_with_a_push_waiter_is_an_event() -> None:
    after = appended(WAITS, GOLDEN)
    assert push_event(KEY, WAITS, after) == PushEvent(key=KEY, next_offset=after.next_offset)
    assert push_event(KEY, after, appended(after, GOLDEN)) is None, "nobody has armed the head since"


def test_arming_is_no_event() -> None:
    for before, after in (
        (EMPTY_HEAD, push_armed(EMPTY_HEAD, Offset(0))),
        (WAITS, push_armed(WAITS, Offset(0))),
        (WAITS, armed(WAITS, Offset(0), 5)),
    ):
        assert after is not None
        assert after.has_push_waiter
        assert push_event(KEY, before, after) is None


def test_push_arming_needs_the_offset_that_the_delivery_saw() -> None:
    assert push_armed(appended(EMPTY_HEAD, GOLDEN), Offset(0)) is None
