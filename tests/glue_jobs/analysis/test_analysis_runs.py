"""The hours that a run counts, by the notes of earlier runs."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from penstock_core.errors import PenstockError
from penstock_spark.analysis.measure import HOUR_MS, TimeWindow
from penstock_spark.analysis.runs import choose_window, last_complete, note_run
from penstock_spark.result_store import FolderResultStore, ResultStore

NOW_MS = 1_000 * HOUR_MS + 30 * 60_000


@pytest.fixture
def results(tmp_path: Path) -> FolderResultStore:
    return FolderResultStore(tmp_path)


def run_at(results: ResultStore, hour: int, topics: Sequence[str] = (), from_text: str = "last") -> TimeWindow:
    """Note a run in the middle of an hour. Returns the window that it counted."""
    now_ms = hour * HOUR_MS + 30 * 60_000
    complete_to_ms = last_complete(results, topics)
    window = choose_window(from_text, "now", complete_to_ms=complete_to_ms, now_ms=now_ms)
    note_run(
        results,
        f"{hour}-{'-'.join(topics)}",
        window,
        topics=topics,
        complete_to_ms=complete_to_ms,
        now_ms=now_ms,
        late_ms=HOUR_MS,
    )
    return window


def first_hours(results: ResultStore, *runs: Sequence[str]) -> list[int]:
    return [last_complete(results, topics) // HOUR_MS for topics in runs]


def test_run_goes_on_where_the_runs_before_it_have_ended(results: FolderResultStore) -> None:
    assert run_at(results, 100).from_ms == 0
    assert run_at(results, 110).from_ms == 99 * HOUR_MS
    assert run_at(results, 120).from_ms == 109 * HOUR_MS


def test_run_of_some_topics_makes_nothing_complete_of_others(results: FolderResultStore) -> None:
    run_at(results, 100)
    run_at(results, 110, ["a"])
    run_at(results, 120, ["a", "b"])
    assert first_hours(results, [], ["a"], ["b"], ["c"], ["a", "c"]) == [99, 119, 119, 99, 99]


def test_run_of_all_topics_counts_for_each(results: FolderResultStore) -> None:
    run_at(results, 100, ["a"])
    run_at(results, 110)
    assert first_hours(results, [], ["a"], ["b"]) == [109, 109, 109]


def test_run_that_leaves_out_hours_completes_nothing(results: FolderResultStore) -> None:
    run_at(results, 100)
    run_at(results, 110, from_text="1970-01-05T09")  # hour 105
    assert first_hours(results, []) == [99]


def test_note_of_a_run_before_topics_could_be_named_is_one_of_all(results: FolderResultStore) -> None:
    results.put("runs/run=1.json", b'{"run": "1", "from_ms": 0, "to_ms": 7, "complete_to_ms": 7}')
    assert last_complete(results, []) == last_complete(results, ["a"]) == 7


@pytest.mark.parametrize(
    ("from_text", "to_text", "complete_to_ms", "message"),
    [
        ("2026-11-21", "2026-11-20", 0, "--from 2026-11-21 --to 2026-11-20"),
        ("last", "1970-01-01T05", 9 * HOUR_MS, "--from last \\(1970-01-01T09\\) --to 1970-01-01T05"),
        ("2026-11-21T5h", "now", 0, "'2026-11-21T5h' is no hour"),
        ("earliest", "tomorrow", 0, "'tomorrow' is no hour"),
    ],
)
def test_window_is_refused_when_it_is_empty_or_malformed(
    from_text: str, to_text: str, complete_to_ms: int, message: str
) -> None:
    with pytest.raises(PenstockError, match=message):
        choose_window(from_text, to_text, complete_to_ms=complete_to_ms, now_ms=NOW_MS)
