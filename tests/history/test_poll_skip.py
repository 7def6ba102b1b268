"""offset-gap, poll-skip and int-poll-skip in histories made by hand, each beside the nearest right one."""

from tests.history.format import Function, Subscribe, Truncate
from tests.history.story import ORDERS, OTHER, Story, abc, read, told


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
