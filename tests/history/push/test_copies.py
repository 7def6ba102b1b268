"""A topic that a subscription copies to has each record once, in order, and no others."""

from typing import Any

from tests.history.format import Value
from tests.history.history_builder import OTHER
from tests.history.push.push_builder import MIRROR, PushBuilder


def mirror(*copies: tuple[int, Value], **settings: Any) -> PushBuilder:
    """A drained subscription, and the copies that two readers found."""
    history = PushBuilder(copies_to=MIRROR[0], dead_letter_topic=None, **settings)
    history.drained()
    history.found_copies(*copies)
    history.found_copies(*copies)
    return history


def test_nothing_is_wrong_when_each_record_was_copied_once() -> None:
    history = mirror((0, "a"), (1, "b"), (2, "c"))
    assert history.found() == {}
    assert history.history.check().counts.copies == 3


def test_unhandled_when_a_record_was_not_copied() -> None:
    assert mirror((0, "a"), (1, "c")).found() == {"unhandled": 1}


def test_copied_twice() -> None:
    assert mirror((0, "a"), (1, "b"), (2, "b"), (3, "c")).found() == {"copied-twice": 1}


def test_handled_late_when_copies_are_out_of_order() -> None:
    assert mirror((0, "b"), (1, "a"), (2, "c")).found() == {"handled-late": 1}
    assert mirror((0, "b"), (1, "a"), (2, "c"), is_ordered=False).found() == {}


def test_wrong_copy_when_no_record_of_the_partition_has_its_value() -> None:
    assert mirror((0, "a"), (1, "b"), (2, "c"), (3, "x")).found() == {"wrong-copy": 1}


def test_wrong_copy_when_it_is_of_another_partition() -> None:
    history = mirror((0, "a"), (1, "b"), (2, "c"))
    history.history.sent("producer", ("o", 0), where=OTHER)
    history.found_copies((0, "a"), where=(MIRROR[0], 1))
    assert history.history.found(allow_unseen=True) == {"wrong-copy": 1}


def test_wrong_filter_when_a_copy_is_excluded() -> None:
    assert mirror((0, "a"), ending="a").found() == {}
    assert mirror((0, "a"), (1, "b"), ending="a").found() == {"wrong-filter": 1}
