import pytest

from penstock_core.ids import Partition, PartitionKey, TopicId
from penstock_core.limits import TIMERS_PROMOTED_MAX
from penstock_core.log.delivery import Delivery, DeliveryOutcome, rolling
from penstock_core.log.index import EMPTY_HEAD
from penstock_core.storage.timer_item import head_write, page_writes, refused_outcome, timer_writes
from tests.support.tables import check_update
from tests.support.timers import timer_at

KEY = PartitionKey(TopicId("0f" * 10), Partition(3))
PLAIN = Delivery(key=KEY, timers=[timer_at(KEY, 1_000, number) for number in range(20)], now_ms=2_000)
ROLLING = rolling(PLAIN, EMPTY_HEAD)


def test_plain_delivery_asks_nothing_of_the_tail() -> None:
    write = head_write(PLAIN)
    assert write.condition == "attribute_exists(next_offset) AND attribute_not_exists(mirror)"
    assert len(write.values[":refs"]["L"]) == 20
    assert page_writes(PLAIN) == []
    assert len(timer_writes(PLAIN)) == 20


def test_rolling_delivery_compares_the_whole_tail_and_leaves_the_readers_waiter() -> None:
    write = head_write(ROLLING)
    assert write.condition.endswith("tail_base = :base AND tail = :before")
    assert write.values[":before"] == {"L": []}
    assert len(write.values[":after"]["L"]) == 4
    assert "push_waiter = :idle" in write.update
    assert write.values[":idle"] == {"N": "0"}
    assert "REMOVE" not in write.update
    [page] = page_writes(ROLLING)
    assert page.condition == "attribute_not_exists(pk)"
    assert page.item["sk"]["S"].endswith("16")


def test_delivery_of_most_timers_is_within_the_limits_of_an_expression() -> None:
    timers = [timer_at(KEY, 1_000, number) for number in range(TIMERS_PROMOTED_MAX)]
    check_update(head_write(rolling(Delivery(key=KEY, timers=timers, now_ms=2_000), EMPTY_HEAD)))


@pytest.mark.parametrize(
    ("delivery", "refused", "outcome"),
    [
        (PLAIN, [True, *[False] * 20], None),
        (PLAIN, [True, *[False] * 19, True], DeliveryOutcome.SETTLED),
        (ROLLING, [True, False, *[False] * 20], DeliveryOutcome.MOVED),
        (ROLLING, [False, True, *[False] * 20], DeliveryOutcome.MOVED),
        (ROLLING, [True, True, True, *[False] * 19], DeliveryOutcome.SETTLED),
    ],
)
def test_outcome_of_a_refusal_names_settled_timers_first(
    delivery: Delivery, refused: list[bool], outcome: DeliveryOutcome | None
) -> None:
    assert refused_outcome(delivery, refused) is outcome
