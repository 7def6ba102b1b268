"""Wake-ups that overtake the answer of the fetch that armed the partition."""

import pytest

from penstock_kafka.fetch.tails import Cover, Tail


@pytest.mark.parametrize(
    ("woken_to", "blind", "is_armed"),
    [
        (0, 0, True),
        (10, 0, True),  # of a record that the fetch has read
        (11, 0, False),
        (0, 1, False),
    ],
)
def test_partition_is_not_quiet_when_it_was_woken_since_the_fetch_began(
    woken_to: int, blind: int, is_armed: bool
) -> None:
    tail = Tail()
    cover = Cover(subscription=3, woken_to=0, blind_wake_ups=0)
    tail.woken_to, tail.blind_wake_ups = woken_to, blind
    assert tail.arm(10, cover, now_ms=0) == is_armed
    assert tail.quiet_at == (10 if is_armed else None)


def test_false_wake_up_before_the_fetch_does_not_keep_the_partition_awake() -> None:
    tail = Tail(woken_to=99, blind_wake_ups=4)
    assert tail.arm(10, Cover(subscription=3, woken_to=99, blind_wake_ups=4), now_ms=0)
