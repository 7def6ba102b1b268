"""Reads of absent records, and records that no client reads: histories made by hand, each with a right one."""

from tests.history.format import Acks, Function, Send
from tests.history.history_builder import ORDERS, OTHER, abc, read


def test_aborted_read_when_a_failed_send_is_polled() -> None:
    history = abc()
    history.failed_to_send("producer", "d")
    history.polled("reader", read((3, "d")))
    assert history.found() == {"aborted-read": 1}


def test_no_aborted_read_when_a_maybe_send_is_polled() -> None:
    history = abc()
    history.maybe_sent("producer", "d")
    history.polled("reader", read((3, "d")))
    assert history.found() == {}


def test_no_aborted_read_when_the_failed_send_was_made_again() -> None:
    history = abc()
    history.failed_to_send("producer", "d")
    history.sent("producer", ("d", 3))
    history.polled("reader", read((3, "d")))
    assert history.found() == {}


def test_unwritten_read_when_nobody_sent_the_value_to_the_partition() -> None:
    history = abc()
    history.sent("producer", ("d", 0), where=OTHER)
    history.polled("reader", read((0, "d"), where=OTHER), read((3, "d")))
    assert history.found() == {"unwritten-read": 1}


def test_no_unwritten_read_when_the_send_never_completed() -> None:
    history = abc()
    history.begin("producer", "d")
    history.polled("reader", read((3, "d")))
    assert history.found() == {}


def test_precommitted_read_when_a_transaction_polls_what_it_sends() -> None:
    history = abc()
    history.committed("worker", Send(ORDERS, "d", 3), read((3, "d")))
    assert history.found() == {"precommitted-read": 1}


def test_no_precommitted_read_when_a_transaction_polls_what_others_sent() -> None:
    history = abc()
    history.committed("worker", read((2, "c")), Send(ORDERS, "d", 3))
    history.polled("reader", read((3, "d")))
    assert history.found() == {}


def test_no_precommitted_read_when_an_earlier_maybe_sent_it_too() -> None:
    history = abc()
    history.maybe_sent("worker", "d")
    history.committed("worker", read((3, "d")), Send(ORDERS, "d", 3))
    assert history.found() == {}


def test_lost_write_when_a_later_record_was_read() -> None:
    history = abc()
    history.sent("producer", ("d", 3), ("e", 4))
    history.sought("reader", 4)
    history.polled("reader", read((4, "e")))
    assert history.found() == {"lost-write": 1}
    assert history.found(allow_unseen=True) == {"lost-write": 1}


def test_unseen_when_no_later_record_was_read() -> None:
    history = abc()
    history.sent("producer", ("d", 3))
    assert history.found() == {"unseen": 1}
    report = history.check(allow_unseen=True)
    assert report.is_clean
    assert report.counts.unseen == 1


def test_unseen_when_an_acknowledged_record_of_unknown_offset_is_never_read() -> None:
    history = abc()
    history.sent("producer", ("d", None))
    assert history.found() == {"unseen": 1}


def test_neither_lost_nor_unseen_when_it_was_truncated_or_failed_or_only_maybe_sent() -> None:
    history = abc()
    history.sent("producer", ("d", 3), ("e", 4))
    history.sent("producer", ("f", None))
    history.failed_to_send("producer", "g")
    history.maybe_sent("producer", "h")
    history.truncated(5)
    assert history.found() == {}


def test_lost_write_when_the_truncation_stopped_short_of_it() -> None:
    history = abc()
    history.sent("producer", ("d", 3), ("e", 4))
    history.sought("reader", 4)
    history.polled("reader", read((4, "e")))
    history.truncated(3)
    assert history.found() == {"lost-write": 1}


def test_neither_lost_nor_unseen_when_it_was_acknowledged_by_one_zone_only() -> None:
    history = abc()
    history.sent("producer", ("d", 3), acks=Acks.ONE)
    history.sent("producer", ("e", 4))
    history.polled("reader", read((4, "e")))
    assert history.found() == {}


def test_lost_write_when_all_zones_acknowledged() -> None:
    history = abc()
    history.sent("producer", ("d", 3), acks=Acks.ALL)
    history.sent("producer", ("e", 4))
    history.polled("reader", read((4, "e")))
    assert history.found() == {"lost-write": 1, "poll-skip": 1}


def test_lost_write_when_a_maybe_append_is_there_in_part() -> None:
    history = abc()
    history.maybe_sent("producer", "d", "e")
    history.polled("reader", read((3, "d"), (4, "x")))
    history.maybe_sent("other", "x")
    assert history.found() == {"lost-write": 1}


def test_unseen_when_a_maybe_append_is_there_in_part_at_the_end() -> None:
    history = abc()
    history.maybe_sent("producer", "d", "e")
    history.polled("reader", read((3, "d")))
    assert history.found() == {"unseen": 1}


def test_torn_transaction_when_a_maybe_is_there_in_part() -> None:
    history = abc()
    operation = history.recorder.invoke("worker", Function.TXN, [Send(ORDERS, "d"), Send(OTHER, "e")])
    history.recorder.maybe(operation)
    history.polled("reader", read((3, "d")))
    assert history.found() == {"torn-transaction": 1}


def test_not_unseen_when_a_maybe_send_to_two_partitions_took_effect_in_one() -> None:
    history = abc()
    operation = history.recorder.invoke("producer", Function.SEND, [Send(ORDERS, "d"), Send(OTHER, "e")])
    history.recorder.maybe(operation)
    history.polled("reader", read((3, "d")))
    assert history.found() == {}


def test_lost_write_when_an_append_acknowledged_without_offsets_is_there_in_part() -> None:
    history = abc()
    history.sent("producer", ("d", None), ("e", None))
    history.maybe_sent("other", "x")
    history.polled("reader", read((3, "x"), (4, "e")))
    assert history.found() == {"lost-write": 1}


def test_neither_lost_nor_unseen_when_only_what_was_sent_again_of_a_maybe_is_there() -> None:
    history = abc()
    history.maybe_sent("producer", "d", "e")
    history.sent("producer", ("d", 3))
    history.polled("reader", read((3, "d")))
    assert history.found() == {}


def test_lost_write_is_told_from_unseen_by_records_that_were_sent_once() -> None:
    history = abc()
    history.maybe_sent("producer", "d", "e", "f")
    history.sent("producer", ("d", 9))
    history.polled("reader", read((3, "x"), (4, "e"), (5, "y")))
    history.sought("reader", 9)
    history.polled("reader", read((9, "d")))
    history.maybe_sent("other", "x")
    history.maybe_sent("other", "y")
    assert history.found() == {"lost-write": 1}
    assert history.check().examples[0].anomaly.offsets == (5,)


def test_neither_lost_nor_unseen_when_a_lower_truncation_follows() -> None:
    history = abc()
    history.sent("producer", ("d", 3))
    history.truncated(4)
    history.truncated(2)
    assert history.found() == {}


def test_a_record_that_one_zone_acknowledged_may_be_read() -> None:
    history = abc()
    history.sent("producer", ("d", 3), acks=Acks.ONE)
    history.polled("reader", read((3, "d")))
    assert history.found() == {}
