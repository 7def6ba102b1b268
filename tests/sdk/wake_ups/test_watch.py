"""Which channels a consumer takes, and what it may rely on."""

from penstock.wake_ups.watch import Watch
from penstock_core.limits import SDK_WAKE_UP_CHANNELS_MAX, SDK_WAKE_UP_PARTITIONS_MAX


def _wanting(*partitions: tuple[str, int]) -> Watch:
    watch = Watch()
    watch.want(partitions, 100)
    return watch


def test_few_partitions_take_a_channel_each_and_that_of_the_topic() -> None:
    assert _wanting(("t", 0), ("t", 7)).leaves == {("t", "0"), ("t", "7"), ("t", "all")}


def test_many_partitions_take_one_channel_for_all() -> None:
    watch = _wanting(*(("t", number) for number in range(SDK_WAKE_UP_PARTITIONS_MAX + 1)), ("u", 1))
    assert watch.leaves == {("t", "*"), ("u", "1"), ("u", "all")}


def test_many_topics_take_one_channel_each_up_to_the_bound() -> None:
    watch = _wanting(*((f"t{number:03}", part) for number in range(60) for part in (0, 1)))
    assert len(watch.leaves) == SDK_WAKE_UP_CHANNELS_MAX
    assert all(leaf == "*" for _, leaf in watch.leaves)
    watch.subscribed(("t000", "*"))
    assert watch.coverage("t000", 1)
    assert not watch.coverage("t059", 1)


def test_partition_is_covered_when_every_channel_that_may_carry_its_wake_ups_is_subscribed() -> None:
    watch = _wanting(("t", 0))
    watch.subscribed(("t", "0"))
    assert not watch.coverage("t", 0)
    watch.subscribed(("t", "all"))
    assert watch.coverage("t", 0)
    assert not watch.coverage("t", 1)
    assert not watch.coverage(None, 0)
    watch.unsubscribed(("t", "all"))
    assert not watch.coverage("t", 0)


def test_coverage_has_another_number_after_each_subscription() -> None:
    watch = _wanting(("t", 0))
    numbers = []
    for _ in range(3):
        watch.subscribed(("t", "0"))
        watch.subscribed(("t", "all"))
        numbers.append(watch.coverage("t", 0))
        watch.lost()
        assert not watch.coverage("t", 0)
    assert len(set(numbers)) == 3


def test_version_grows_only_when_what_is_wanted_changes() -> None:
    watch = _wanting(("t", 0))
    version = watch.version
    watch.want([("t", 0)], 5_000)
    assert (watch.version, watch.hold_until_ms) == (version, 100)
    watch.want([("t", 1)], 5_000)
    assert (watch.version, watch.hold_until_ms) == (version + 1, 100)
