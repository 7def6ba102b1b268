"""What an acquire gets of its wish when a quota leaves a part of it."""

import pytest

from penstock_service.share.acquire.acquire import AcquireWish


@pytest.mark.parametrize(
    ("topics", "may_take", "taken"),
    [
        (None, None, None),
        ({"a", "b"}, None, {"a", "b"}),
        (None, {"a"}, {"a"}),
        ({"a", "b"}, {"b", "gone"}, {"b"}),
    ],
)
def test_wish_takes_the_topics_that_it_names_and_that_are_left(
    topics: set[str] | None, may_take: set[str] | None, taken: set[str] | None
) -> None:
    wish = AcquireWish(
        records_max=1,
        bytes_max=1,
        topics=None if topics is None else frozenset(topics),
        may_take=None if may_take is None else frozenset(may_take),
    )
    assert wish.taken_topics == taken
