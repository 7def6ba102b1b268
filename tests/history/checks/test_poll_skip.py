"""offset-gap, poll-skip and int-poll-skip in histories made by hand, each with the nearest right one."""

from tests.history.format import Function, Poll, Subscribe, Truncate
from tests.history.history_builder import ORDERS, OTHER, HistoryBuilder, abc, read, sent_and_read


def test_offset_gap_when_a_reader_passes_an_offset_that_holds_nothing() -> None:
    history = sent_and_read(("a", 0), ("b", 2))
    history.sent("producer", ("c", 5))
    history.polled("reader", read((5, "c")))
    history.sought("reader", 0)
    history.polled("reader", read((0, "a"), (2, "b"), (5, "c")))
    assert history.found() == {"offset-gap": 2}


def test_offset_gap_when_a_reader_started_before_the_first_offset() -> None:
    history = HistoryBuilder()
    history.assigned("reader", started=[(ORDERS, 0)])
    history.sent("producer", ("a", 1))
    history.polled("reader", read((1, "a")))
    assert history.found() == {"offset-gap": 1}


def test_filtered_reader_skips_only_what_its_filter_takes() -> None:
    history = sent_and_read(("a.x", 0), ("b.y", 1), ("c.x", 2))
    history.sent("producer", ("d.x", 4), ("e.x", 5))
    for process in ("right", "wrong"):
        history.assigned(process, started=[(ORDERS, 0)])
    history.polled("right", Poll(ORDERS, ((0, "a.x"), (2, "c.x"), (4, "d.x"), (5, "e.x")), ending=".x"))
    assert history.found() == {}
    history.polled("wrong", Poll(ORDERS, ((0, "a.x"),), ending=".x"))
    history.polled("wrong", Poll(ORDERS, ((4, "d.x"),), ending=".x"))
    assert history.found() == {"poll-skip": 1}


def test_no_offset_gap_when_nobody_passed_the_offset() -> None:
    history = sent_and_read(("a", 0))
    history.sent("producer", ("b", 2))
    history.sought("reader", 2)
    history.polled("reader", read((2, "b")))
    assert history.found() == {}


def test_no_offset_gap_when_the_offsets_were_truncated() -> None:
    history = sent_and_read(("a", 0))
    history.sent("producer", ("b", 3))
    history.truncated(3)
    history.polled("reader", read((3, "b")))
    assert history.found() == {}


def test_offset_gap_when_the_truncation_came_after_the_poll() -> None:
    history = sent_and_read(("a", 0))
    history.sent("producer", ("b", 3))
    history.polled("reader", read((3, "b")))
    history.truncated(3)
    assert history.found() == {"offset-gap": 1}


def test_no_offset_gap_when_the_truncation_was_under_way_or_maybe() -> None:
    history = sent_and_read(("a", 0))
    history.sent("producer", ("b", 3))
    operation = history.recorder.invoke("admin", Function.TRUNCATE, [Truncate(ORDERS, 3)])
    history.polled("reader", read((3, "b")))
    history.recorder.maybe(operation)
    assert history.found() == {}


def test_offset_gap_when_the_truncation_failed() -> None:
    history = sent_and_read(("a", 0))
    history.sent("producer", ("b", 3))
    history.recorder.fail(history.recorder.invoke("admin", Function.TRUNCATE, [Truncate(ORDERS, 3)]))
    history.polled("reader", read((3, "b")))
    assert history.found() == {"offset-gap": 1}


def test_an_offset_out_of_this_world_is_found_without_counting_up_to_it() -> None:
    history = sent_and_read(("a", 0))
    history.sent("producer", ("b", 1 << 60))
    history.polled("reader", read((1 << 60, "b")))
    assert history.found() == {"offset-gap": 1}


def test_poll_skip_when_a_process_passes_a_record_that_others_read() -> None:
    history = abc()
    history.polled("skipper", read((0, "a")))
    history.polled("skipper", read((2, "c")))
    assert history.found() == {"poll-skip": 1}
    assert history.check().examples[0].anomaly.values == ("b",)


def test_poll_skip_when_a_process_skips_what_comes_at_its_position() -> None:
    history = abc()
    history.sought("skipper", 1)
    history.polled("skipper", read((2, "c")))
    assert history.found() == {"poll-skip": 1}


def test_no_poll_skip_when_the_client_sought_or_is_new_there() -> None:
    history = abc()
    history.polled("jumper", read((0, "a")))
    history.sought("jumper", 2)
    history.polled("jumper", read((2, "c")))
    history.polled("newcomer", read((1, "b")))
    assert history.found() == {}


def test_no_poll_skip_when_the_client_sought_anywhere() -> None:
    history = abc()
    history.polled("jumper", read((0, "a")))
    history.sought("jumper", None)
    history.polled("jumper", read((2, "c")))
    assert history.found() == {}


def test_no_poll_skip_when_the_partition_was_taken_away_between() -> None:
    history = abc()
    history.polled("member", read((0, "a")))
    history.assigned("member", OTHER)
    history.assigned("member", ORDERS, OTHER)
    history.polled("member", read((2, "c")))
    assert history.found() == {}


def test_poll_skip_when_the_new_assignment_keeps_the_partition() -> None:
    history = abc()
    history.polled("member", read((0, "a")))
    history.assigned("member", ORDERS, OTHER)
    history.polled("member", read((2, "c")))
    assert history.found() == {"poll-skip": 1}


def test_no_poll_skip_when_the_client_subscribed_or_maybe_assigned() -> None:
    history = abc()
    for process in ("subscriber", "assigned"):
        history.polled(process, read((0, "a")))
    history.recorder.done("subscriber", Function.SUBSCRIBE, [Subscribe(("orders",))])
    history.recorder.maybe(history.recorder.invoke("assigned", Function.ASSIGN))
    history.recorder.maybe(history.recorder.invoke("assigned", Function.SUBSCRIBE, [Subscribe(("orders",))]))
    for process in ("subscriber", "assigned"):
        history.polled(process, read((2, "c")))
    assert history.found() == {}


def test_poll_skip_when_the_seek_failed() -> None:
    history = abc()
    history.polled("skipper", read((0, "a")))
    history.recorder.fail(history.recorder.invoke("skipper", Function.SUBSCRIBE, [Subscribe(("orders",))]))
    history.polled("skipper", read((2, "c")))
    assert history.found() == {"poll-skip": 1}


def test_no_skip_or_step_back_when_the_assignment_changed_during_the_poll() -> None:
    history = abc()
    history.polled("member", read((0, "a")))
    operation = history.recorder.invoke("member", Function.POLL)
    history.assigned("member", started=[(ORDERS, None)])
    history.recorder.ok(operation, [read((2, "c")), read((0, "a"), (2, "c"))])
    assert history.found() == {}


def test_poll_skip_when_another_partition_was_moved_during_the_poll() -> None:
    history = abc()
    history.polled("member", read((0, "a")))
    operation = history.recorder.invoke("member", Function.POLL)
    history.sought("member", 5, where=OTHER)
    history.recorder.ok(operation, [read((2, "c"))])
    assert history.found() == {"poll-skip": 1}


def test_poll_skip_when_a_failed_poll_moved_the_position() -> None:
    history = abc()
    history.polled("skipper", read((0, "a")))
    history.failed_to_poll("skipper", read((1, "b")))
    history.polled("skipper", read((2, "c")))
    assert history.found() == {"poll-skip": 1}


def test_no_skip_when_the_client_subscribed_during_the_poll() -> None:
    history = abc()
    history.polled("member", read((0, "a")))
    operation = history.recorder.invoke("member", Function.POLL)
    history.recorder.done("member", Function.SUBSCRIBE, [Subscribe(("orders",))])
    history.recorder.ok(operation, [read((0, "a"), (2, "c"))])
    assert history.found() == {}


def test_no_step_back_when_the_partition_was_first_assigned_during_the_poll() -> None:
    history = abc()
    operation = history.recorder.invoke("member", Function.POLL)
    history.assigned("member", ORDERS)
    history.recorder.ok(operation, [read((2, "c"), (0, "a"))])
    assert history.found() == {}


def test_no_poll_skip_when_it_is_unknown_whether_the_poll_before_counted() -> None:
    history = abc()
    history.polled("worker", read((0, "a")))
    history.recorder.maybe(history.recorder.invoke("worker", Function.POLL), [read((1, "b"))])
    history.polled("worker", read((2, "c")))
    history.polled("rewinder", read((0, "a")))
    history.recorder.maybe(history.recorder.invoke("rewinder", Function.POLL), [read((1, "b"))])
    history.polled("rewinder", read((1, "b")))
    assert history.found() == {}


def test_int_poll_skip_when_one_poll_leaves_a_known_record_out() -> None:
    history = abc()
    history.polled("skipper", read((0, "a"), (2, "c")))
    assert history.found() == {"int-poll-skip": 1}


def test_int_poll_skip_when_the_polls_of_one_operation_leave_a_known_record_out() -> None:
    history = abc()
    history.polled("skipper", read((0, "a")), read((2, "c")))
    assert history.found() == {"int-poll-skip": 1}


def test_no_int_poll_skip_when_the_polls_of_one_operation_follow_each_other() -> None:
    history = abc()
    history.polled("other", read((0, "a")), read((1, "b"), (2, "c")))
    assert history.found() == {}


def test_wrong_filter_when_a_poll_returns_what_its_filter_excludes() -> None:
    history = sent_and_read(("a7", 0), ("b8", 1))
    history.assigned("picky", started=[(ORDERS, 0)])
    history.polled("picky", Poll(ORDERS, ((0, "a7"), (1, "b8")), None, "7"))
    [example] = history.check().examples
    assert str(example.anomaly.kind) == "wrong-filter"
    assert example.anomaly.text == "picky polled 'b8' at offset 1, which its filter excludes"
