"""Reads of what is not there, records that nobody reads: histories made by hand, each beside the nearest right one."""

from tests.history.format import Acks, Function, Send
from tests.history.story import ORDERS, OTHER, abc, read


def test_aborted_read_when_a_failed_send_is_polled() -> None:
    story = abc()
    story.failed_to_send("producer", "d")
    story.polled("reader", read((3, "d")))
    assert story.found() == {"aborted-read": 1}


def test_no_aborted_read_when_a_maybe_send_is_polled() -> None:
    story = abc()
    story.maybe_sent("producer", "d")
    story.polled("reader", read((3, "d")))
    assert story.found() == {}


def test_no_aborted_read_when_the_failed_send_was_made_again() -> None:
    story = abc()
    story.failed_to_send("producer", "d")
    story.sent("producer", ("d", 3))
    story.polled("reader", read((3, "d")))
    assert story.found() == {}


def test_unwritten_read_when_nobody_sent_the_value_to_the_partition() -> None:
    story = abc()
    story.sent("producer", ("d", 0), where=OTHER)
    story.polled("reader", read((0, "d"), where=OTHER), read((3, "d")))
    assert story.found() == {"unwritten-read": 1}


def test_no_unwritten_read_when_the_send_never_completed() -> None:
    story = abc()
    story.begin("producer", "d")
    story.polled("reader", read((3, "d")))
    assert story.found() == {}


def test_precommitted_read_when_a_transaction_polls_what_it_sends() -> None:
    story = abc()
    story.committed("worker", Send(ORDERS, "d", 3), read((3, "d")))
    assert story.found() == {"precommitted-read": 1}


def test_no_precommitted_read_when_a_transaction_polls_what_others_sent() -> None:
    story = abc()
    story.committed("worker", read((2, "c")), Send(ORDERS, "d", 3))
    story.polled("reader", read((3, "d")))
    assert story.found() == {}


def test_no_precommitted_read_when_an_earlier_maybe_sent_it_too() -> None:
    story = abc()
    story.maybe_sent("worker", "d")
    story.committed("worker", read((3, "d")), Send(ORDERS, "d", 3))
    assert story.found() == {}


def test_lost_write_when_a_later_record_was_read() -> None:
    story = abc()
    story.sent("producer", ("d", 3), ("e", 4))
    story.sought("reader", 4)
    story.polled("reader", read((4, "e")))
    assert story.found() == {"lost-write": 1}
    assert story.found(allow_unseen=True) == {"lost-write": 1}


def test_unseen_when_no_later_record_was_read() -> None:
    story = abc()
    story.sent("producer", ("d", 3))
    assert story.found() == {"unseen": 1}
    report = story.check(allow_unseen=True)
    assert report.is_clean
    assert report.counts.unseen == 1


def test_unseen_when_an_acknowledged_record_of_unknown_offset_is_never_read() -> None:
    story = abc()
    story.sent("producer", ("d", None))
    assert story.found() == {"unseen": 1}


def test_neither_lost_nor_unseen_when_it_was_truncated_or_failed_or_only_maybe_sent() -> None:
    story = abc()
    story.sent("producer", ("d", 3), ("e", 4))
    story.sent("producer", ("f", None))
    story.failed_to_send("producer", "g")
    story.maybe_sent("producer", "h")
    story.truncated(5)
    assert story.found() == {}


def test_lost_write_when_the_truncation_stopped_short_of_it() -> None:
    story = abc()
    story.sent("producer", ("d", 3), ("e", 4))
    story.sought("reader", 4)
    story.polled("reader", read((4, "e")))
    story.truncated(3)
    assert story.found() == {"lost-write": 1}


def test_neither_lost_nor_unseen_when_it_was_acknowledged_by_one_zone_only() -> None:
    story = abc()
    story.sent("producer", ("d", 3), acks=Acks.LEADER)
    story.sent("producer", ("e", 4))
    story.polled("reader", read((4, "e")))
    assert story.found() == {}


def test_lost_write_when_all_zones_acknowledged() -> None:
    story = abc()
    story.sent("producer", ("d", 3), acks=Acks.ALL)
    story.sent("producer", ("e", 4))
    story.polled("reader", read((4, "e")))
    assert story.found() == {"lost-write": 1, "poll-skip": 1}


def test_lost_write_when_a_maybe_append_is_there_in_part() -> None:
    story = abc()
    story.maybe_sent("producer", "d", "e")
    story.polled("reader", read((3, "d"), (4, "x")))
    story.maybe_sent("other", "x")
    assert story.found() == {"lost-write": 1}


def test_unseen_when_a_maybe_append_is_there_in_part_at_the_end() -> None:
    story = abc()
    story.maybe_sent("producer", "d", "e")
    story.polled("reader", read((3, "d")))
    assert story.found() == {"unseen": 1}


def test_torn_transaction_when_a_maybe_is_there_in_part() -> None:
    story = abc()
    operation = story.recorder.invoke("worker", Function.TXN, [Send(ORDERS, "d"), Send(OTHER, "e")])
    story.recorder.maybe(operation)
    story.polled("reader", read((3, "d")))
    assert story.found() == {"torn-transaction": 1}


def test_not_unseen_when_a_maybe_send_to_two_partitions_took_effect_in_one() -> None:
    story = abc()
    operation = story.recorder.invoke("producer", Function.SEND, [Send(ORDERS, "d"), Send(OTHER, "e")])
    story.recorder.maybe(operation)
    story.polled("reader", read((3, "d")))
    assert story.found() == {}


def test_lost_write_when_an_append_acknowledged_without_offsets_is_there_in_part() -> None:
    story = abc()
    story.sent("producer", ("d", None), ("e", None))
    story.maybe_sent("other", "x")
    story.polled("reader", read((3, "x"), (4, "e")))
    assert story.found() == {"lost-write": 1}


def test_neither_lost_nor_unseen_when_only_what_was_sent_again_of_a_maybe_is_there() -> None:
    story = abc()
    story.maybe_sent("producer", "d", "e")
    story.sent("producer", ("d", 3))
    story.polled("reader", read((3, "d")))
    assert story.found() == {}


def test_lost_write_is_told_from_unseen_by_records_that_were_sent_once() -> None:
    story = abc()
    story.maybe_sent("producer", "d", "e", "f")
    story.sent("producer", ("d", 9))
    story.polled("reader", read((3, "x"), (4, "e"), (5, "y")))
    story.sought("reader", 9)
    story.polled("reader", read((9, "d")))
    story.maybe_sent("other", "x")
    story.maybe_sent("other", "y")
    assert story.found() == {"lost-write": 1}
    assert story.check().examples[0].anomaly.offsets == (5,)


def test_neither_lost_nor_unseen_when_a_lower_truncation_follows() -> None:
    story = abc()
    story.sent("producer", ("d", 3))
    story.truncated(4)
    story.truncated(2)
    assert story.found() == {}


def test_a_record_that_one_zone_acknowledged_may_be_read() -> None:
    story = abc()
    story.sent("producer", ("d", 3), acks=Acks.LEADER)
    story.polled("reader", read((3, "d")))
    assert story.found() == {}
