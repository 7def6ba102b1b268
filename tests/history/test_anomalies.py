"""Every anomaly in a faulty history made by hand, and beside it the nearest history that is right."""

from tests.history.format import Acks, Function, Poll, Send, Subscribe, Truncate
from tests.history.story import ORDERS, OTHER, Story, read, told


def abc() -> Story:
    return told(("a", 0), ("b", 1), ("c", 2))


def test_a_history_of_nothing_is_clean() -> None:
    assert Story().found() == {}


def test_records_sent_and_read_in_order_are_clean() -> None:
    assert abc().found() == {}


# inconsistent-offsets


def test_inconsistent_offsets_when_two_polls_disagree() -> None:
    story = abc()
    story.maybe_sent("other", "x")
    story.polled("late", read((1, "x")))
    assert story.found() == {"inconsistent-offsets": 1}


def test_inconsistent_offsets_when_two_sends_were_given_one_offset() -> None:
    story = abc()
    story.sent("other", ("x", 2))
    assert story.found() == {"inconsistent-offsets": 1, "lost-write": 1}


def test_no_inconsistent_offsets_when_a_maybe_names_an_offset_that_another_has() -> None:
    story = abc()
    operation = story.begin("other", "x")
    story.recorder.maybe(operation, [Send(ORDERS, "x", 1)])
    assert story.found() == {}


def test_inconsistent_offsets_when_a_poll_proves_that_the_maybe_took_effect() -> None:
    story = abc()
    operation = story.recorder.invoke("other", Function.TXN, [Send(ORDERS, "x"), Send(OTHER, "y")])
    story.recorder.maybe(operation, [Send(ORDERS, "x", 1), Send(OTHER, "y")])
    story.polled("late", read((0, "y"), where=OTHER))
    assert story.found() == {"inconsistent-offsets": 1, "lost-write": 1}


def test_equal_values_in_different_partitions_are_different_records() -> None:
    story = abc()
    story.sent("producer", ("a", 5), where=OTHER)
    story.polled("reader", read((5, "a"), where=OTHER))
    assert story.found() == {}


# duplicate


def test_duplicate_when_a_record_is_at_two_offsets() -> None:
    story = abc()
    story.polled("reader", read((3, "a")))
    assert story.found() == {"duplicate": 1}
    assert story.check().examples[0].anomaly.offsets == (0, 3)


def test_duplicate_even_of_a_send_told_of_another_offset_than_it_is_read_at() -> None:
    story = abc()
    story.sent("producer", ("d", 4))
    story.polled("reader", read((3, "d")))
    assert story.found() == {"duplicate": 1}


def test_no_duplicate_when_a_record_is_read_again_after_a_seek() -> None:
    story = abc()
    story.sought("reader", 0)
    story.polled("reader", read((0, "a"), (1, "b")))
    assert story.found() == {}


def test_retry_duplicates_are_counted_apart_when_allowed_and_explained_by_attempts() -> None:
    story = Story()
    story.sent("producer", ("a", 1), attempts=2)
    story.polled("reader", read((0, "a"), (1, "a")))
    assert story.found() == {"duplicate": 1}
    report = story.check(allow_retry_duplicates=True)
    assert report.is_clean
    assert report.counts.retry_duplicates == 1
    assert report.explained[0].values == ("a",)


def test_retry_duplicates_are_explained_by_a_maybe_and_a_second_send() -> None:
    story = Story()
    story.maybe_sent("producer", "a", attempts=1)
    story.sent("producer", ("a", 1))
    story.polled("reader", read((0, "a"), (1, "a")))
    assert story.check(allow_retry_duplicates=True).counts.retry_duplicates == 1


def test_retry_duplicates_of_a_maybe_are_explained_when_nobody_counted_its_attempts() -> None:
    story = Story()
    story.maybe_sent("producer", "a")
    story.polled("reader", read((0, "a"), (1, "a"), (2, "a")))
    assert story.found(allow_retry_duplicates=True) == {}


def test_duplicate_though_retries_are_allowed_when_there_are_more_copies_than_attempts() -> None:
    story = Story()
    story.sent("producer", ("a", 1), attempts=2)
    story.polled("reader", read((0, "a"), (1, "a"), (2, "a")))
    assert story.found(allow_retry_duplicates=True) == {"duplicate": 1}


def test_duplicate_though_retries_are_allowed_when_the_other_attempt_failed() -> None:
    story = Story()
    story.failed_to_send("producer", "a")
    story.sent("producer", ("a", 0))
    story.polled("reader", read((0, "a"), (1, "a")))
    assert story.found(allow_retry_duplicates=True) == {"duplicate": 1}


# aborted-read, unwritten-read, precommitted-read


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


# lost-write, unseen


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


def test_unseen_when_a_maybe_transaction_is_there_in_part() -> None:
    story = abc()
    operation = story.recorder.invoke("worker", Function.TXN, [Send(ORDERS, "d"), Send(OTHER, "e")])
    story.recorder.maybe(operation)
    story.polled("reader", read((3, "d")))
    assert story.found() == {"unseen": 1}


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


# offset-gap, poll-skip, int-poll-skip


def test_offset_gap_when_a_reader_passes_an_offset_that_holds_nothing() -> None:
    story = told(("a", 0), ("b", 2))
    story.sent("producer", ("c", 5))
    story.polled("reader", read((5, "c")))
    story.sought("reader", 0)
    story.polled("reader", read((0, "a"), (2, "b"), (5, "c")))
    assert story.found() == {"offset-gap": 2}


def test_offset_gap_when_a_reader_started_before_the_first_offset() -> None:
    story = Story()
    story.assigned("reader", started=[(ORDERS, 0)])
    story.sent("producer", ("a", 1))
    story.polled("reader", read((1, "a")))
    assert story.found() == {"offset-gap": 1}


def test_no_offset_gap_when_nobody_passed_the_offset() -> None:
    story = told(("a", 0))
    story.sent("producer", ("b", 2))
    story.sought("reader", 2)
    story.polled("reader", read((2, "b")))
    assert story.found() == {}


def test_no_offset_gap_when_the_offsets_were_truncated() -> None:
    story = told(("a", 0))
    story.sent("producer", ("b", 3))
    story.truncated(3)
    story.polled("reader", read((3, "b")))
    assert story.found() == {}


def test_offset_gap_when_the_truncation_came_after_the_poll() -> None:
    story = told(("a", 0))
    story.sent("producer", ("b", 3))
    story.polled("reader", read((3, "b")))
    story.truncated(3)
    assert story.found() == {"offset-gap": 1}


def test_no_offset_gap_when_the_truncation_was_under_way_or_maybe() -> None:
    story = told(("a", 0))
    story.sent("producer", ("b", 3))
    operation = story.recorder.invoke("admin", Function.TRUNCATE, [Truncate(ORDERS, 3)])
    story.polled("reader", read((3, "b")))
    story.recorder.maybe(operation)
    assert story.found() == {}


def test_offset_gap_when_the_truncation_failed() -> None:
    story = told(("a", 0))
    story.sent("producer", ("b", 3))
    story.recorder.fail(story.recorder.invoke("admin", Function.TRUNCATE, [Truncate(ORDERS, 3)]))
    story.polled("reader", read((3, "b")))
    assert story.found() == {"offset-gap": 1}


def test_an_offset_out_of_this_world_is_found_without_counting_up_to_it() -> None:
    story = told(("a", 0))
    story.sent("producer", ("b", 1 << 60))
    story.polled("reader", read((1 << 60, "b")))
    assert story.found() == {"offset-gap": 1}


def test_poll_skip_when_a_process_passes_a_record_that_others_read() -> None:
    story = abc()
    story.polled("skipper", read((0, "a")))
    story.polled("skipper", read((2, "c")))
    assert story.found() == {"poll-skip": 1}
    assert story.check().examples[0].anomaly.values == ("b",)


def test_poll_skip_when_a_process_skips_what_comes_at_its_position() -> None:
    story = abc()
    story.sought("skipper", 1)
    story.polled("skipper", read((2, "c")))
    assert story.found() == {"poll-skip": 1}


def test_no_poll_skip_when_the_client_sought_or_is_new_there() -> None:
    story = abc()
    story.polled("jumper", read((0, "a")))
    story.sought("jumper", 2)
    story.polled("jumper", read((2, "c")))
    story.polled("newcomer", read((1, "b")))
    assert story.found() == {}


def test_no_poll_skip_when_the_client_sought_anywhere() -> None:
    story = abc()
    story.polled("jumper", read((0, "a")))
    story.sought("jumper", None)
    story.polled("jumper", read((2, "c")))
    assert story.found() == {}


def test_no_poll_skip_when_the_partition_was_taken_away_between() -> None:
    story = abc()
    story.polled("member", read((0, "a")))
    story.assigned("member", OTHER)
    story.assigned("member", ORDERS, OTHER)
    story.polled("member", read((2, "c")))
    assert story.found() == {}


def test_poll_skip_when_the_new_assignment_keeps_the_partition() -> None:
    story = abc()
    story.polled("member", read((0, "a")))
    story.assigned("member", ORDERS, OTHER)
    story.polled("member", read((2, "c")))
    assert story.found() == {"poll-skip": 1}


def test_no_poll_skip_when_the_client_subscribed_or_maybe_assigned() -> None:
    story = abc()
    for process in ("subscriber", "assigned"):
        story.polled(process, read((0, "a")))
    story.recorder.done("subscriber", Function.SUBSCRIBE, [Subscribe(("orders",))])
    story.recorder.maybe(story.recorder.invoke("assigned", Function.ASSIGN))
    story.recorder.maybe(story.recorder.invoke("assigned", Function.SUBSCRIBE, [Subscribe(("orders",))]))
    for process in ("subscriber", "assigned"):
        story.polled(process, read((2, "c")))
    assert story.found() == {}


def test_poll_skip_when_the_seek_failed() -> None:
    story = abc()
    story.polled("skipper", read((0, "a")))
    story.recorder.fail(story.recorder.invoke("skipper", Function.SUBSCRIBE, [Subscribe(("orders",))]))
    story.polled("skipper", read((2, "c")))
    assert story.found() == {"poll-skip": 1}


def test_no_skip_or_step_back_when_the_assignment_changed_during_the_poll() -> None:
    story = abc()
    story.polled("member", read((0, "a")))
    operation = story.recorder.invoke("member", Function.POLL)
    story.assigned("member", started=[(ORDERS, None)])
    story.recorder.ok(operation, [read((2, "c")), read((0, "a"), (2, "c"))])
    assert story.found() == {}


def test_poll_skip_when_another_partition_was_moved_during_the_poll() -> None:
    story = abc()
    story.polled("member", read((0, "a")))
    operation = story.recorder.invoke("member", Function.POLL)
    story.sought("member", 5, where=OTHER)
    story.recorder.ok(operation, [read((2, "c"))])
    assert story.found() == {"poll-skip": 1}


def test_poll_skip_when_a_failed_poll_moved_the_position() -> None:
    story = abc()
    story.polled("skipper", read((0, "a")))
    story.failed_to_poll("skipper", read((1, "b")))
    story.polled("skipper", read((2, "c")))
    assert story.found() == {"poll-skip": 1}


def test_no_skip_when_the_client_subscribed_during_the_poll() -> None:
    story = abc()
    story.polled("member", read((0, "a")))
    operation = story.recorder.invoke("member", Function.POLL)
    story.recorder.done("member", Function.SUBSCRIBE, [Subscribe(("orders",))])
    story.recorder.ok(operation, [read((0, "a"), (2, "c"))])
    assert story.found() == {}


def test_no_step_back_when_the_partition_was_first_assigned_during_the_poll() -> None:
    story = abc()
    operation = story.recorder.invoke("member", Function.POLL)
    story.assigned("member", ORDERS)
    story.recorder.ok(operation, [read((2, "c"), (0, "a"))])
    assert story.found() == {}


def test_no_poll_skip_when_it_is_unknown_whether_the_poll_before_counted() -> None:
    story = abc()
    story.polled("worker", read((0, "a")))
    story.recorder.maybe(story.recorder.invoke("worker", Function.POLL), [read((1, "b"))])
    story.polled("worker", read((2, "c")))
    story.polled("rewinder", read((0, "a")))
    story.recorder.maybe(story.recorder.invoke("rewinder", Function.POLL), [read((1, "b"))])
    story.polled("rewinder", read((1, "b")))
    assert story.found() == {}


def test_int_poll_skip_when_one_poll_leaves_a_known_record_out() -> None:
    story = abc()
    story.polled("skipper", read((0, "a"), (2, "c")))
    assert story.found() == {"int-poll-skip": 1}


def test_int_poll_skip_when_the_polls_of_one_operation_leave_a_known_record_out() -> None:
    story = abc()
    story.polled("skipper", read((0, "a")), read((2, "c")))
    assert story.found() == {"int-poll-skip": 1}


def test_no_int_poll_skip_when_the_polls_of_one_operation_follow_each_other() -> None:
    story = abc()
    story.polled("other", read((0, "a")), read((1, "b"), (2, "c")))
    assert story.found() == {}


# nonmonotonic polls and sends


def test_nonmonotonic_poll_when_a_process_reads_a_record_again() -> None:
    story = abc()
    story.polled("reader", read((2, "c")))
    assert story.found() == {"nonmonotonic-poll": 1}


def test_nonmonotonic_poll_when_it_starts_below_the_position_sought() -> None:
    story = abc()
    story.sought("reader", 1)
    story.polled("reader", read((0, "a"), (1, "b")))
    assert story.found() == {"nonmonotonic-poll": 1}


def test_no_nonmonotonic_poll_when_another_process_reads_it() -> None:
    story = abc()
    story.polled("other", read((2, "c")))
    assert story.found() == {}


def test_no_nonmonotonic_poll_when_the_poll_before_failed() -> None:
    story = abc()
    story.polled("worker", read((0, "a")))
    story.failed_to_poll("worker", read((1, "b")))
    story.polled("worker", read((1, "b"), (2, "c")))
    assert story.found() == {}


def test_int_nonmonotonic_poll_when_a_poll_repeats_a_record() -> None:
    story = abc()
    story.polled("other", read((0, "a"), (1, "b"), (1, "b"), (2, "c")))
    assert story.found() == {"int-nonmonotonic-poll": 1}


def test_int_nonmonotonic_poll_when_a_poll_goes_back() -> None:
    story = abc()
    story.polled("other", read((1, "b"), (0, "a")))
    assert story.found() == {"int-nonmonotonic-poll": 1}


def test_nonmonotonic_send_when_a_later_send_has_a_lower_offset() -> None:
    assert told(("a", 1), ("b", 0)).found() == {"nonmonotonic-send": 1}


def test_nonmonotonic_send_when_two_sends_were_given_one_offset() -> None:
    story = Story()
    story.sent("producer", ("a", 0))
    story.sent("producer", ("b", 0))
    story.polled("reader", read((0, "a")))
    assert story.found() == {"inconsistent-offsets": 1, "lost-write": 1, "nonmonotonic-send": 1}


def test_int_nonmonotonic_send_when_one_operation_was_given_an_offset_twice() -> None:
    story = Story()
    story.sent("producer", ("a", 0), ("b", 0))
    story.polled("reader", read((0, "a")))
    assert story.found() == {"inconsistent-offsets": 1, "lost-write": 1, "int-nonmonotonic-send": 1}


def test_no_nonmonotonic_send_when_the_send_that_is_read_too_early_failed() -> None:
    story = Story()
    story.sent("producer", ("b", 1))
    story.failed_to_send("producer", "a")
    story.polled("reader", read((0, "a"), (1, "b")))
    assert story.found() == {"aborted-read": 1}


def test_no_nonmonotonic_send_when_a_maybe_left_copies_on_both_sides() -> None:
    story = Story()
    story.sent("producer", ("b", 1))
    story.maybe_sent("producer", "a")
    story.polled("reader", read((0, "a"), (1, "b"), (2, "a")))
    assert story.found() == {"duplicate": 1}


def test_no_nonmonotonic_send_when_another_process_sent_it() -> None:
    story = Story()
    story.sent("one", ("a", 1))
    story.sent("two", ("b", 0))
    story.polled("reader", read((0, "b"), (1, "a")))
    assert story.found() == {}


def test_nonmonotonic_send_goes_by_the_order_of_invokes_when_sends_overlap() -> None:
    story = Story()
    first, second = story.begin("producer", "a"), story.begin("producer", "b")
    story.recorder.ok(second, [Send(ORDERS, "b", 1)])
    story.recorder.ok(first, [Send(ORDERS, "a", 0)])
    story.polled("reader", read((0, "a"), (1, "b")))
    assert story.found() == {}
    story = Story()
    first, second = story.begin("producer", "a"), story.begin("producer", "b")
    story.recorder.ok(second, [Send(ORDERS, "b", 0)])
    story.recorder.ok(first, [Send(ORDERS, "a", 1)])
    story.polled("reader", read((0, "b"), (1, "a")))
    assert story.found() == {"nonmonotonic-send": 1}


def test_nonmonotonic_send_when_a_maybe_is_read_before_what_was_acknowledged_earlier() -> None:
    story = Story()
    story.sent("producer", ("a", 1))
    story.maybe_sent("producer", "b")
    story.polled("reader", read((0, "b"), (1, "a")))
    assert story.found() == {"nonmonotonic-send": 1}


def test_no_nonmonotonic_send_when_a_maybe_takes_effect_late() -> None:
    story = Story()
    story.maybe_sent("producer", "a")
    story.sent("producer", ("b", 0))
    story.polled("reader", read((0, "b"), (1, "a")))
    assert story.found() == {}


def test_no_nonmonotonic_send_when_a_repeat_is_answered_with_its_first_offset() -> None:
    story = Story()
    story.maybe_sent("producer", "a")
    story.sent("producer", ("b", 1))
    story.sent("producer", ("a", 0))
    story.polled("reader", read((0, "a"), (1, "b")))
    assert story.found() == {}


def test_int_nonmonotonic_send_when_one_operation_is_acknowledged_out_of_order() -> None:
    story = Story()
    story.sent("producer", ("a", 1), ("b", 0))
    story.polled("reader", read((0, "b"), (1, "a")))
    assert story.found() == {"int-nonmonotonic-send": 1}


def test_int_nonmonotonic_send_when_a_maybe_is_read_out_of_order() -> None:
    story = Story()
    story.maybe_sent("producer", "a", "b")
    story.polled("reader", read((0, "b"), (1, "a")))
    assert story.found() == {"int-nonmonotonic-send": 1}


def test_no_int_nonmonotonic_send_when_the_sends_are_to_two_partitions() -> None:
    story = Story()
    story.committed("worker", Send(ORDERS, "a", 5), Send(OTHER, "b", 3))
    story.polled("reader", read((5, "a")), read((3, "b"), where=OTHER))
    assert story.found() == {}


# figures


def test_worst_lag_is_from_the_acknowledgement_to_the_begin_of_a_poll_without_the_record() -> None:
    story = Story()
    story.assigned("reader", started=[(ORDERS, 0)])  # at 10
    story.sent("producer", ("a", 0))  # at 20, 30
    story.polled("reader", Poll(ORDERS, ()))  # at 40, 50
    story.sent("producer", ("b", 1))  # at 60, 70
    story.polled("reader", read((0, "a")))  # at 80, 90
    story.polled("reader", read((1, "b")))
    report = story.check()
    assert report.is_clean
    assert [(lag.lag_ns, lag.offset, lag.line) for lag in report.worst_lag] == [(10, 0, 5)]
    assert [(lag.lag_ns, lag.offset, lag.line) for lag in report.worst_empty_lag] == [(10, 0, 5)]


def test_no_lag_when_the_record_was_acknowledged_after_the_poll_began() -> None:
    story = Story()
    story.assigned("reader", started=[(ORDERS, 0)])
    operation = story.recorder.invoke("reader", Function.POLL)
    story.sent("producer", ("a", 0))
    story.recorder.ok(operation, [Poll(ORDERS, ())])
    story.polled("reader", read((0, "a")))
    assert story.check().worst_lag == ()


def test_no_lag_when_the_record_was_truncated() -> None:
    story = told(("a", 0))
    story.sent("producer", ("b", 1))
    story.truncated(2)
    story.polled("reader", Poll(ORDERS, ()))
    assert story.check().worst_lag == ()


def test_a_poll_that_returned_records_first_and_nothing_then_is_not_empty() -> None:
    story = told(("a", 0))
    story.sent("producer", ("b", 1), ("c", 2))
    story.polled("reader", read((1, "b")), read())
    story.polled("reader", read((2, "c")))
    report = story.check()
    assert report.worst_lag[0].offset == 2
    assert report.worst_empty_lag == ()


def test_lag_grows_until_the_record_is_returned() -> None:
    story = told(("a", 0))
    story.sent("producer", ("b", 1), ("c", 2))
    known_at = story.now_ns
    for _ in range(3):
        story.polled("reader", Poll(ORDERS, ()))
    began_at = story.now_ns - 10
    story.polled("reader", read((1, "b")))
    story.polled("reader", read((2, "c")))
    report = story.check()
    assert report.worst_empty_lag[0].lag_ns == began_at - known_at
    assert report.worst_lag[0].lag_ns == began_at + 20 - known_at


def test_counts_tell_what_was_sent_and_read() -> None:
    story = abc()
    story.maybe_sent("producer", "d")
    story.begin("producer", "e")
    story.failed_to_send("producer", "f", "g")
    counts = story.check().counts
    assert (counts.sends_acknowledged, counts.sends_maybe, counts.sends_failed) == (3, 2, 2)
    assert (counts.polls, counts.records_read, counts.unseen, counts.operations) == (1, 3, 0, 7)


def test_witnesses_always_have_the_operations_that_are_wrong() -> None:
    story = abc()
    for index in range(20):
        story.polled(f"bystander-{index}", read((1, "b")))
    story.polled("skipper", read((0, "a")))
    story.polled("skipper", read((2, "c")))
    (example,) = story.check().examples
    assert len(example.witnesses) == 8
    assert [witness.process for witness in example.witnesses][-2:] == ["skipper", "skipper"]


def test_witnesses_are_those_who_sent_and_read_what_is_wrong() -> None:
    story = abc()
    story.polled("bystander", read((2, "c")))
    story.failed_to_send("producer", "d")
    story.polled("reader", read((3, "d")))
    (example,) = story.check().examples
    assert [(witness.line, witness.process) for witness in example.witnesses] == [(12, "producer"), (14, "reader")]
    assert example.witnesses[1].text == "poll ok: offsets 3 to 3 (1 records), of them 3: 'd'"
