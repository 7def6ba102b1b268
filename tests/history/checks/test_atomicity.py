"""After one reader saw a part of a transaction, every later reader sees all of it. Its effects are there once."""

import pytest

from tests.history.format import Function, Poll, Send, Source, TopicPartition, Value
from tests.history.history_builder import ORDERS, OTHER, HistoryBuilder, read
from tests.history.recorder import OpenOperation

PAIR = (Send(ORDERS, "debit", 0), Send(OTHER, "credit", 0))


def look(
    history: HistoryBuilder, process: str, where: TopicPartition, end_offset: int | None, *records: tuple[int, Value]
) -> None:
    history.polled(process, Poll(where, records, end_offset))


def moved(history: HistoryBuilder, *sends: Send) -> None:
    """An acknowledged transaction of these sends. In the end, a reader reads everything."""
    history.committed("mover", *sends)


def read_all(history: HistoryBuilder) -> None:
    history.polled("last", read((0, "debit")), read((0, "credit"), where=OTHER))


def test_nothing_is_torn_when_the_parts_are_read_one_by_one_from_then_on() -> None:
    history = HistoryBuilder()
    look(history, "reader", ORDERS, 0)
    look(history, "reader", OTHER, 0)
    moved(history, *PAIR)
    look(history, "reader", OTHER, 1, (0, "credit"))
    look(history, "reader", ORDERS, 1, (0, "debit"))
    read_all(history)
    assert history.found() == {}


@pytest.mark.parametrize("later", ["reader", "another"])
def test_torn_transaction_when_a_later_read_finds_the_other_part_not_there(later: str) -> None:
    history = HistoryBuilder()
    moved(history, *PAIR)
    look(history, "reader", ORDERS, 1, (0, "debit"))
    look(history, later, OTHER, 0)
    read_all(history)
    [example] = history.check().examples
    assert (str(example.anomaly.kind), example.anomaly.where) == ("torn-transaction", OTHER)


def test_torn_transaction_of_one_that_was_never_answered() -> None:
    history = HistoryBuilder()
    history.recorder.maybe(
        history.recorder.invoke("mover", Function.TXN, [Send(send.where, send.value) for send in PAIR])
    )
    look(history, "reader", ORDERS, 1, (0, "debit"))
    look(history, "reader", OTHER, 0)
    read_all(history)
    assert history.found() == {"torn-transaction": 1}


def begun(history: HistoryBuilder, process: str) -> OpenOperation:
    return history.recorder.invoke(process, Function.POLL)


def test_nothing_is_torn_when_the_reads_overlap_or_are_one() -> None:
    history = HistoryBuilder()
    moved(history, *PAIR)
    other = begun(history, "another")
    look(history, "reader", ORDERS, 1, (0, "debit"))
    history.recorder.ok(other, [Poll(OTHER, (), 0)])
    history = HistoryBuilder()
    both = begun(history, "reader")
    moved(history, *PAIR)
    history.recorder.ok(both, [Poll(OTHER, (), 0), Poll(ORDERS, ((0, "debit"),), 1)])
    read_all(history)
    assert history.found() == {}


def test_nothing_is_torn_when_the_read_does_not_tell_the_end() -> None:
    history = HistoryBuilder()
    moved(history, *PAIR)
    look(history, "reader", ORDERS, None, (0, "debit"))
    look(history, "reader", OTHER, None)
    read_all(history)
    assert history.found() == {}


def test_nothing_is_torn_of_separate_appends() -> None:
    history = HistoryBuilder()
    history.sent("mover", ("debit", 0))
    history.sent("mover", ("credit", 0), where=OTHER)
    look(history, "reader", ORDERS, 1, (0, "debit"))
    look(history, "reader", OTHER, 0)
    read_all(history)
    assert history.found() == {}


def test_torn_transaction_when_a_part_of_it_never_comes() -> None:
    history = HistoryBuilder()
    history.recorder.maybe(
        history.recorder.invoke("mover", Function.TXN, [Send(send.where, send.value) for send in PAIR])
    )
    history.polled("reader", read((0, "debit")))
    assert history.found() == {"torn-transaction": 1}
    assert history.found(allow_unseen=True) == {}


def effect(history: HistoryBuilder, value: str, offset: int, source: Source | None, outcome: str = "ok") -> None:
    operation = history.recorder.invoke("mover", Function.TXN, [Send(ORDERS, value, None, source)])
    getattr(history.recorder, outcome)(operation, *([[Send(ORDERS, value, offset, source)]] if outcome == "ok" else []))


def test_repeated_effect_when_two_records_have_one_source() -> None:
    history = HistoryBuilder()
    effect(history, "first", 0, ("in", 0, 7, ""))
    effect(history, "again", 1, ("in", 0, 7, ""))
    history.polled("reader", read((0, "first"), (1, "again")))
    [example] = history.check().examples
    assert (str(example.anomaly.kind), example.anomaly.values) == ("repeated-effect", ("first", "again"))


def test_repeated_effect_when_a_maybe_was_made_again_and_both_are_read() -> None:
    history = HistoryBuilder()
    effect(history, "first", 0, ("in", 0, 7, ""), "maybe")
    effect(history, "again", 1, ("in", 0, 7, ""))
    history.polled("reader", read((0, "first"), (1, "again")))
    assert history.found() == {"repeated-effect": 1}


@pytest.mark.parametrize("outcome", ["maybe", "fail"])
def test_no_effect_is_repeated_when_the_first_came_to_nothing(outcome: str) -> None:
    history = HistoryBuilder()
    effect(history, "first", 0, ("in", 0, 7, ""), outcome)
    effect(history, "again", 0, ("in", 0, 7, ""))
    history.polled("reader", read((0, "again")))
    assert history.found() == {}


def test_several_effects_of_one_record_have_names() -> None:
    history = HistoryBuilder()
    effect(history, "debit", 0, ("in", 0, 7, "debit"))
    effect(history, "credit", 1, ("in", 0, 7, "credit"))
    effect(history, "next", 2, ("in", 0, 8, "debit"))
    effect(history, "elsewhere", 3, ("in", 1, 7, "debit"))
    effect(history, "unsaid", 4, None)
    history.polled("reader", read(*enumerate(("debit", "credit", "next", "elsewhere", "unsaid"))))
    assert history.found() == {}
