from collections.abc import Callable

from bench.turns import Spread, spread, take_turns


def test_order_alternates_when_sides_take_turns() -> None:
    order: list[str] = []

    def side(name: str) -> Callable[[], str]:
        return lambda: order.append(name) or name  # type: ignore[func-returns-value]

    samples = take_turns([side("a"), side("b")], 2)
    assert "".join(order) == "ab" + "ba" + "ab"
    assert samples == [["a", "a"], ["b", "b"]]


def test_warm_up_does_not_count() -> None:
    numbers = iter(range(10))
    assert take_turns([lambda: next(numbers)], 2) == [[1, 2]]


def test_spread_has_the_median_and_both_ends() -> None:
    assert spread([5.0, 1.0, 900.0]) == Spread(median=5.0, low=1.0, high=900.0)
    assert spread([1_200.0, 0.12345]).words() == "0.123 to 1,200"
