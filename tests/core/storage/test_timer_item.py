from dataclasses import replace

import pytest

from penstock_core.ids import Partition, PartitionKey, TopicId
from penstock_core.log.timer import DueMinute, Timer, cancelled, delivered
from penstock_core.storage.timer_item import (
    due_minute_key,
    due_minute_shards,
    parse_due_minute,
    parse_switch,
    parse_timer,
    settling,
    switch_item,
    timer_item,
)
from tests.support.timers import timer_at

KEY = PartitionKey(TopicId("0f" * 10), Partition(3))
TIMER = timer_at(KEY, 1_800_000_000_123, 9, span=2)


@pytest.mark.parametrize(
    "timer", [TIMER, replace(TIMER, is_announced=True), delivered(TIMER, 5), cancelled(TIMER, 1_800_000_000_000)]
)
def test_timer_item_round_trip(timer: Timer) -> None:
    assert parse_timer(timer_item(timer)) == timer


def test_timer_item_golden() -> None:
    item = timer_item(delivered(TIMER, 1_800_000_000_200))
    ref = item.pop("ref")["B"]
    assert ref[0] == 8
    assert item == {
        "pk": {"S": "0f0f0f0f0f0f0f0f0f0f#3#timers#1"},
        "sk": {"S": "timer#001800000000123#00000000000000000000000000000009"},
        "crc": {"N": "7"},
        "settled_ms": {"N": "1800000000200"},
        "outcome": {"S": "delivered"},
        "expires_at_s": {"N": "1800086400"},
    }


def test_timer_that_waits_has_no_time_to_live() -> None:
    assert timer_item(TIMER).keys() == {"pk", "sk", "ref", "crc"}
    with pytest.raises(ValueError, match="waits"):
        settling(TIMER)


def test_due_minute_item_round_trip() -> None:
    minute = DueMinute(30_000_001, KEY)
    key = due_minute_key(minute)
    assert key == {"pk": {"S": "#timers#01"}, "sk": {"S": "0030000001#0f0f0f0f0f0f0f0f0f0f#3"}}
    assert key["pk"]["S"] in due_minute_shards()
    assert parse_due_minute(key) == minute


def test_switch_item_round_trip() -> None:
    assert parse_switch(switch_item(77)) == 77
