"""Records are handled in order for the first time, again only if an answer may be lost, and no others."""

import pytest

from tests.history.push.push_builder import NAME, PushBuilder


def test_handled_late_when_a_later_record_came_first() -> None:
    history = PushBuilder()
    history.handled((1, "b"))
    history.handled((0, "a"))
    history.handled((2, "c"))
    [example] = history.history.check().examples
    assert example.anomaly.kind == "handled-late"
    assert "'a' at offset 0 was handled for the first time after 'b' at 1" in example.anomaly.text


def test_handled_late_when_a_batch_is_out_of_order() -> None:
    history = PushBuilder()
    history.handled((0, "a"), (2, "c"), (1, "b"))
    assert history.found() == {"handled-late": 1}


def test_order_counts_what_was_handled_and_not_what_failed() -> None:
    history = PushBuilder()
    history.failed((1, "b"))
    history.begun((2, "c"))
    history.handled((0, "a"), (1, "b"))
    assert history.found() == {}


def test_invocations_at_the_same_time_have_no_order() -> None:
    history = PushBuilder()
    first = history.begun((0, "a"))
    history.handled((1, "b"))
    history.recorder.ok(first)
    assert history.found() == {}


def test_parallel_mode_has_no_order() -> None:
    history = PushBuilder(is_ordered=False)
    history.handled((2, "c"), (0, "a"))
    history.handled((1, "b"))
    assert history.found() == {}


def test_wrong_filter_when_the_target_got_a_record_that_it_excludes() -> None:
    history = PushBuilder(ending="a")
    history.handled((0, "a"))
    history.found_dead()
    history.drained()
    assert history.found() == {}
    history.handled((1, "b"))
    assert history.found() == {"wrong-filter": 1}


@pytest.mark.parametrize("is_ordered", [True, False])
def test_handled_again_when_nothing_was_disturbed(is_ordered: bool) -> None:
    history = PushBuilder(is_ordered=is_ordered, is_complete=True)
    history.disturbed()
    history.handled((0, "a"), (1, "b"))
    history.handled((1, "b"))
    history.disturbed()
    [example] = history.history.check().examples
    assert (example.anomaly.kind, example.anomaly.offsets) == ("handled-again", (1,))


def test_nothing_is_said_of_repeats_where_the_history_is_not_complete() -> None:
    history = PushBuilder()
    history.handled((0, "a"))
    history.handled((0, "a"))
    assert history.found() == {}


@pytest.mark.parametrize("group", [None, NAME])
def test_record_comes_again_after_a_disturbance(group: str | None) -> None:
    history = PushBuilder(is_complete=True)
    history.handled((0, "a"))
    history.disturbed(group=group)
    history.handled((0, "a"))
    assert history.found() == {}


def test_disturbance_of_one_repeat_does_not_excuse_the_next() -> None:
    history = PushBuilder(is_complete=True)
    history.handled((0, "a"))
    history.disturbed()
    history.handled((0, "a"))
    history.handled((0, "a"))
    assert history.found() == {"handled-again": 1}


def test_disturbance_lasts_as_long_as_it_says() -> None:
    for lasts_ms, found in ((5, {}), (1, {"handled-again": 1})):
        history = PushBuilder(is_complete=True)
        history.disturbed(lasts_ms=lasts_ms)
        history.passes(2)
        history.handled((0, "a"))
        history.handled((0, "a"))
        assert history.found() == found


def test_record_comes_again_after_an_invocation_that_failed_or_had_no_answer() -> None:
    history = PushBuilder(is_complete=True)
    history.failed((0, "a"))
    history.begun((0, "a"))
    history.handled((0, "a"))
    assert history.found() == {}


def test_records_behind_a_named_one_come_again_in_ordered_mode_only() -> None:
    for is_ordered, found in ((True, {}), (False, {"handled-again": 1})):
        history = PushBuilder(is_ordered=is_ordered, is_complete=True)
        history.handled((0, "a"), (1, "b"), (2, "c"), refused=(1,))
        history.handled((1, "b"), (2, "c"))
        late = {"handled-late": 1} if is_ordered else {}  # the target went on behind the record that it names
        assert history.found() == {**found, **late}


def test_record_before_a_named_one_does_not_come_again() -> None:
    history = PushBuilder(is_complete=True)
    history.handled((0, "a"), (1, "b"), refused=(1,))
    history.handled((0, "a"), (1, "b"))
    assert history.found() == {"handled-again": 1}
