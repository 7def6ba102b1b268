"""Transactions are seen whole by whoever reads after somebody saw a part, and their effects are there once."""

import pytest

from tests.history.format import Function, Poll, Send, Source, TopicPartition, Value
from tests.history.recorder import OpenOperation
from tests.history.story import ORDERS, OTHER, Story, read

PAIR = (Send(ORDERS, "debit", 0), Send(OTHER, "credit", 0))


def look(
    story: Story, process: str, where: TopicPartition, end_offset: int | None, *records: tuple[int, Value]
) -> None:
    story.polled(process, Poll(where, records, end_offset))


def moved(story: Story, *sends: Send) -> None:
    """A transaction of these, acknowledged; and everything is read in the end."""
    story.committed("mover", *sends)


def read_all(story: Story) -> None:
    story.polled("last", read((0, "debit")), read((0, "credit"), where=OTHER))


def test_nothing_is_torn_when_the_parts_are_read_one_by_one_from_then_on() -> None:
    story = Story()
    look(story, "reader", ORDERS, 0)
    look(story, "reader", OTHER, 0)
    moved(story, *PAIR)
    look(story, "reader", OTHER, 1, (0, "credit"))
    look(story, "reader", ORDERS, 1, (0, "debit"))
    read_all(story)
    assert story.found() == {}


@pytest.mark.parametrize("later", ["reader", "another"])
def test_torn_transaction_when_a_later_read_finds_the_other_part_not_there(later: str) -> None:
    story = Story()
    moved(story, *PAIR)
    look(story, "reader", ORDERS, 1, (0, "debit"))
    look(story, later, OTHER, 0)
    read_all(story)
    [example] = story.check().examples
    assert (str(example.anomaly.kind), example.anomaly.where) == ("torn-transaction", OTHER)


def test_torn_transaction_of_one_that_was_never_answered() -> None:
    story = Story()
    story.recorder.maybe(story.recorder.invoke("mover", Function.TXN, [Send(send.where, send.value) for send in PAIR]))
    look(story, "reader", ORDERS, 1, (0, "debit"))
    look(story, "reader", OTHER, 0)
    read_all(story)
    assert story.found() == {"torn-transaction": 1}


def begun(story: Story, process: str) -> OpenOperation:
    return story.recorder.invoke(process, Function.POLL)


def test_nothing_is_torn_when_the_reads_overlap_or_are_one() -> None:
    story = Story()
    moved(story, *PAIR)
    other = begun(story, "another")
    look(story, "reader", ORDERS, 1, (0, "debit"))
    story.recorder.ok(other, [Poll(OTHER, (), 0)])
    story = Story()
    both = begun(story, "reader")
    moved(story, *PAIR)
    story.recorder.ok(both, [Poll(OTHER, (), 0), Poll(ORDERS, ((0, "debit"),), 1)])
    read_all(story)
    assert story.found() == {}


def test_nothing_is_torn_when_the_read_does_not_tell_the_end() -> None:
    story = Story()
    moved(story, *PAIR)
    look(story, "reader", ORDERS, None, (0, "debit"))
    look(story, "reader", OTHER, None)
    read_all(story)
    assert story.found() == {}


def test_nothing_is_torn_of_separate_appends() -> None:
    story = Story()
    story.sent("mover", ("debit", 0))
    story.sent("mover", ("credit", 0), where=OTHER)
    look(story, "reader", ORDERS, 1, (0, "debit"))
    look(story, "reader", OTHER, 0)
    read_all(story)
    assert story.found() == {}


def test_torn_transaction_when_a_part_of_it_never_comes() -> None:
    story = Story()
    story.recorder.maybe(story.recorder.invoke("mover", Function.TXN, [Send(send.where, send.value) for send in PAIR]))
    story.polled("reader", read((0, "debit")))
    assert story.found() == {"torn-transaction": 1}
    assert story.found(allow_unseen=True) == {}


def effect(story: Story, value: str, offset: int, source: Source | None, outcome: str = "ok") -> None:
    operation = story.recorder.invoke("mover", Function.TXN, [Send(ORDERS, value, None, source)])
    getattr(story.recorder, outcome)(operation, *([[Send(ORDERS, value, offset, source)]] if outcome == "ok" else []))


def test_repeated_effect_when_two_records_have_one_source() -> None:
    story = Story()
    effect(story, "first", 0, ("in", 0, 7, ""))
    effect(story, "again", 1, ("in", 0, 7, ""))
    story.polled("reader", read((0, "first"), (1, "again")))
    [example] = story.check().examples
    assert (str(example.anomaly.kind), example.anomaly.values) == ("repeated-effect", ("first", "again"))


def test_repeated_effect_when_a_maybe_was_made_again_and_both_are_read() -> None:
    story = Story()
    effect(story, "first", 0, ("in", 0, 7, ""), "maybe")
    effect(story, "again", 1, ("in", 0, 7, ""))
    story.polled("reader", read((0, "first"), (1, "again")))
    assert story.found() == {"repeated-effect": 1}


@pytest.mark.parametrize("outcome", ["maybe", "fail"])
def test_no_effect_is_repeated_when_the_first_came_to_nothing(outcome: str) -> None:
    story = Story()
    effect(story, "first", 0, ("in", 0, 7, ""), outcome)
    effect(story, "again", 0, ("in", 0, 7, ""))
    story.polled("reader", read((0, "again")))
    assert story.found() == {}


def test_several_effects_of_one_record_have_names() -> None:
    story = Story()
    effect(story, "debit", 0, ("in", 0, 7, "debit"))
    effect(story, "credit", 1, ("in", 0, 7, "credit"))
    effect(story, "next", 2, ("in", 0, 8, "debit"))
    effect(story, "elsewhere", 3, ("in", 1, 7, "debit"))
    effect(story, "unsaid", 4, None)
    story.polled("reader", read(*enumerate(("debit", "credit", "next", "elsewhere", "unsaid"))))
    assert story.found() == {}
