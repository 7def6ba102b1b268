"""From the files of hours to a report: sums over hours and partitions, the findings, and a page that is safe to
open."""

import re
from collections import Counter
from collections.abc import Sequence
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from penstock_core.errors import ErrorCode, PenstockError
from penstock_spark.analysis.hourly import HOURS_SCHEMA, hour_name, merge_hour, read_hour
from penstock_spark.analysis.measure import HOUR_MS, bucket_start, buckets
from penstock_spark.analysis.page import key_text
from penstock_spark.analysis.report import TOPICS_SHOWN, render
from penstock_spark.analysis.summarize import summarize
from penstock_spark.analysis.summary import (
    Key,
    Summary,
    format_bytes,
    format_count,
    format_ms,
    format_percent,
    percentile,
)
from penstock_spark.result_store import FolderResultStore
from tests.glue_jobs.hour_files import lag_row, lag_table, row, write_lag_rows, write_rows

FIRST_MS = 500_000 * HOUR_MS
HOSTILE = b'"><script>alert(1)</script>'


@pytest.fixture
def results(tmp_path: Path) -> FolderResultStore:
    return FolderResultStore(tmp_path)


def summary_of(
    results: FolderResultStore,
    hours: int,
    topics: dict[str, int],
    lags: pa.Table | None = None,
    only: Sequence[str] = (),
) -> Summary:
    return summarize(
        results,
        from_ms=FIRST_MS,
        to_ms=FIRST_MS + hours * HOUR_MS,
        topics=topics,
        only=only,
        lags=lag_table([]) if lags is None else lags,
        runs_max=10,
    )


def report_of(summary: Summary) -> str:
    return render(summary, title="Report", run_ms=FIRST_MS + 10 * HOUR_MS, place="s3://results/reports")


class Page(HTMLParser):
    """The elements of a document, each with its attributes, and all its text."""

    def __init__(self, document: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.text = ""
        self.feed(document)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in ("meta",):
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag, f"</{tag}> closes another element"

    def handle_data(self, data: str) -> None:
        if "style" not in self.open:
            self.text += data

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.elements if name == tag]


def test_topics_add_up_over_hours_and_partitions(results: FolderResultStore) -> None:
    write_rows(
        results,
        [
            row("a", 0, FIRST_MS, records=10, size=100, partitions=2, keys=[(b"x", 6), (b"y", 4)]),
            row("a", 1, FIRST_MS, records=30, size=100, partitions=2, keys=[(b"z", 30)]),
            row("a", 0, FIRST_MS + 2 * HOUR_MS, records=5, size=100, partitions=2, keys=[(b"x", 3)], null_keys=2),
            row("b", 0, FIRST_MS + HOUR_MS, records=1_000, size=9),
            row("b", 0, FIRST_MS + 9 * HOUR_MS, records=7),  # after the hours of the report
        ],
    )
    found = summary_of(results, 4, {"a": 2, "b": 1, "c": 5})
    b, a = found.topics
    assert (b.name, b.records, b.bytes) == ("b", 1_000, 9_000)
    assert (a.records, a.bytes, a.null_keys, a.keyed_records) == (45, 4_500, 2, 43)
    assert a.bytes_by_hour.tolist() == [4_000, 0, 500]
    assert a.records_by_hour.tolist() == [40, 0, 5]
    assert a.heat.tolist() == pytest.approx([1_500 * 2 / 4_500, 3_000 * 2 / 4_500])
    assert a.top_keys(2) == [
        (Key(partition=1, prefix=b"z", length=1), 30),
        (Key(partition=0, prefix=b"x", length=1), 9),
    ]
    assert a.top_key_share == 30 / 43
    assert sum(a.sizes.values()) == sum(a.append_lags.values()) == 45
    assert a.keys_per_hour_max == 3
    assert found.empty_topics == ["c"]
    assert sum(sum(each.values()) for each in found.append_lags_by_hour.values()) == 1_045


def test_partition_is_hot_by_its_share_of_all_hours_or_of_the_last_day(results: FolderResultStore) -> None:
    rows = []
    for hour in range(96):
        for partition in range(8):
            is_hot = (partition == 2 and hour < 72) or (partition == 5 and hour >= 72)
            rows.append(row("a", partition, FIRST_MS + hour * HOUR_MS, records=400 if is_hot else 100, partitions=8))
    rows += [row("few", 0, FIRST_MS, records=9, partitions=4), row("even", 0, FIRST_MS, records=2_000)]
    write_rows(results, rows)
    hot = {topic.name: topic.hot_partitions for topic in summary_of(results, 96, {}).topics}
    assert hot == {"a": [5, 2], "few": [], "even": []}


def test_heat_maps_are_of_topics_with_hot_partitions_then_of_the_largest(results: FolderResultStore) -> None:
    rows = [row(f"small-{each}", 0, FIRST_MS, records=3, partitions=100) for each in range(9)]
    rows += [row(f"large-{each}", 0, FIRST_MS, records=900, size=5_000, partitions=2) for each in range(9)]
    rows += [row("hot", 0, FIRST_MS, records=5_000, size=9, partitions=50)]
    write_rows(results, rows)
    page = Page(report_of(summary_of(results, 1, {})))
    labels = [each["aria-label"] or "" for each in page.all("div") if each.get("role") == "img"]
    maps = [each.split()[3].rstrip(",") for each in labels if each.startswith("Heat map")]
    assert maps == ["hot", "large-0", "large-1", "large-2"]


def test_merged_hour_keeps_of_each_partition_the_row_with_more_records() -> None:
    def table(*counts: int) -> pa.Table:
        rows = [row("a", partition, FIRST_MS, records=count, partitions=3) for partition, count in enumerate(counts)]
        return merge_hour(pa.Table.from_pylist(rows, schema=HOURS_SCHEMA), None)

    merged = merge_hour(table(10, 30), table(20, 20, 5))
    assert merged.column("records").to_pylist() == [20, 30, 5]
    assert merged.column("heat").to_pylist() == pytest.approx([20 * 3 / 55, 30 * 3 / 55, 5 * 3 / 55])
    assert merge_hour(merged, merged).equals(merged)


def test_file_of_another_release_is_refused(tmp_path: Path, results: FolderResultStore) -> None:
    import pyarrow.parquet as pq

    path = tmp_path / hour_name(FIRST_MS)
    path.parent.mkdir(parents=True)
    pq.write_table(pa.table({"topic": ["a"]}), path)
    with pytest.raises(PenstockError, match="use another folder") as refused:
        read_hour(results, FIRST_MS)
    assert refused.value.code is ErrorCode.UNSUPPORTED_FORMAT


@pytest.mark.parametrize("values", [[1], [100] * 50 + [10_000] * 2, list(range(1, 5_000, 7)), [0, 0, 0, 8]])
def test_percentile_of_a_histogram_is_near_that_of_the_values(values: list[int]) -> None:
    histogram = Counter(buckets(np.array(values)).tolist())
    for percent in (50, 95, 99, 100):
        exact = sorted(values)[max(0, -(-len(values) * percent // 100) - 1)]
        found = percentile(histogram, percent)
        assert found is not None
        assert exact / 1.2 <= found <= exact * 1.2 or exact == found == 0


def test_buckets_begin_where_they_say() -> None:
    assert buckets(np.array([-5, 0, 1, 2, 4, 1024, 2**40])).tolist() == [-1, -1, 0, 4, 8, 40, 160]
    assert [bucket_start(each) for each in (-1, 0, 4, 40)] == [0, 1, 2, 1024]


def test_report_shows_what_stands_out(results: FolderResultStore) -> None:
    write_rows(
        results,
        [
            row("orders", each, FIRST_MS, records=10_000 if each == 3 else 500, partitions=6,
                keys=[(b"whale", 9_000)] if each == 3 else [(b"m", 3)])
            for each in range(6)
        ] + [row("slow", 0, FIRST_MS, records=2_000, size=10, lag_ms=600_000)],
    )  # fmt: skip
    lags = write_lag_rows(
        results,
        "1",
        [
            lag_row("left-alone", "orders", 0, FIRST_MS, members=0, owner=None, lag_records=77, lag_ms=86_400_000),
            lag_row("late", "orders", 1, FIRST_MS, lag_records=5, lag_ms=7_200_000, owner_name="worker-9"),
            lag_row("fine", "orders", 1, FIRST_MS, lag_records=5, lag_ms=20),
            lag_row("new", "orders", 1, FIRST_MS, committed_offset=None, lag_records=None, lag_ms=None),
        ],
    )
    text = Page(report_of(summary_of(results, 1, {"orders": 6, "idle": 1}, lags))).text
    assert "Group left-alone has no members and is 77 records behind, the oldest 1 d old" in text
    assert "Group late is 2 h behind in partition 1 of orders" in text
    assert "worker-9" in text
    assert "Group new has never committed for 1 of its 1 partitions" in text
    assert "Partition 3 of orders has 4.8 times its share of the bytes: 90% of its records have the key whale." in text
    assert "One in a hundred records is appended that late after its timestamp, or later: slow (" in text
    assert "Group fine" not in text
    assert "Without records: idle" in text


def test_report_says_so_when_nothing_stands_out(results: FolderResultStore) -> None:
    write_rows(results, [row("orders", 0, FIRST_MS, records=10)])
    page = Page(report_of(summary_of(results, 1, {"orders": 1})))
    assert ("p", {"class": "findings none"}) in page.elements
    assert "No group has committed an offset." in page.text
    assert "A partition is hot" not in page.text  # the topic has only one


def test_report_shows_what_users_named_as_text_only(results: FolderResultStore) -> None:
    hostile = HOSTILE.decode()
    keys = [(HOSTILE, 1_500), (b"\xff\x00\x1b[31m", 300), (("é" * 40).encode(), 200), (b"", 20)]
    write_rows(results, [row(hostile, each, FIRST_MS, records=2_100, partitions=2, keys=keys) for each in (0, 1)])
    lags = [
        lag_row(hostile, hostile, 0, FIRST_MS + each, owner_name=hostile, lag_records=9, lag_ms=10**8)
        for each in (0, 1)
    ]
    for index, each in enumerate(lags):
        write_lag_rows(results, str(index), [each])
    document = report_of(summary_of(results, 1, {hostile: 2, hostile + "2": 1}, lag_table(lags[1:])))
    page = Page(document)
    assert "<script" not in document
    assert not page.all("script")
    assert page.text.count("<script>alert(1)</script>") > 8
    assert "0xff001b5b33316d" in page.text
    assert "é" * 32 + " … (80 B)" in page.text
    assert "\x1b" not in document
    assert all(not name.startswith("on") for _, attributes in page.elements for name in attributes)


def test_report_needs_nothing_from_elsewhere(results: FolderResultStore) -> None:
    write_rows(results, [row("orders", each, FIRST_MS, records=50, partitions=3) for each in range(3)])
    lags = [write_lag_rows(results, str(each), [lag_row("g", "orders", 0, FIRST_MS + each)]) for each in (0, 1)]
    document = report_of(summary_of(results, 1, {"orders": 3}, lags[-1]))
    assert not re.search(r"https?:|//[a-z]|@import|url\((?!#)", document.replace("s3://results", ""))
    page = Page(document)
    for tag, attributes in page.elements:
        assert tag not in ("script", "link", "iframe", "object", "embed", "base")
        for name in ("src", "href", "xlink:href"):
            value = attributes.get(name) or "#"
            assert value.startswith(("#", "data:image/png;base64,")), f"{tag} {name}={value[:60]}"
    assert {"content": "default-src 'none'; style-src 'unsafe-inline'; img-src data:",
            "http-equiv": "Content-Security-Policy"} in page.all("meta")  # fmt: skip


def test_every_plot_has_a_description_and_every_table_a_caption(results: FolderResultStore) -> None:
    write_rows(results, [row("orders", each, FIRST_MS, records=50, partitions=3) for each in range(3)])
    page = Page(report_of(summary_of(results, 1, {"orders": 3})))
    plots = [each for each in page.all("svg") if each.get("class") == "plot"]
    labels = [each["aria-label"] for each in page.all("div") if each.get("role") == "img"]
    assert len(plots) == len(labels) == 4
    assert all(labels)
    assert len(page.all("caption")) == len(page.all("table"))
    assert page.all("html") == [{"lang": "en"}]


def test_report_of_many_topics_shows_the_largest_and_the_rest_as_one(results: FolderResultStore) -> None:
    rows = [
        row(f"topic-{topic:03d}", partition, FIRST_MS, records=1_000 - topic, partitions=200)
        for topic in range(100)
        for partition in range(0, 200, 40)
    ]
    write_rows(results, rows)
    found = summary_of(results, 1, {f"empty-{each}": 1 for each in range(300)})
    page = Page(report_of(found))
    assert f"{100 - TOPICS_SHOWN} others" in page.text
    assert "94 others" in page.text  # in the plot's legend
    assert f"topic-{TOPICS_SHOWN - 1:03d}" in page.text
    assert "and 280 more." in page.text
    assert len(page.all("tr")) < 130


def test_trend_shows_each_run_s_sum(results: FolderResultStore) -> None:
    for index, records in enumerate((5, 50, 500)):
        rows = [lag_row("g", "orders", each, FIRST_MS + index, lag_records=records, lag_ms=each) for each in (0, 1)]
        write_lag_rows(
            results, f"{index}", rows + ([lag_row("h", "orders", 0, FIRST_MS, lag_records=1)] * (index == 2))
        )
    trend = summary_of(results, 1, {}).trend
    assert trend.runs_ms == [FIRST_MS, FIRST_MS + 1, FIRST_MS + 2]
    assert trend.records == {"g": [10, 100, 1_000], "h": [None, None, 1]}
    assert trend.lag_ms == {"g": [1, 1, 1], "h": [None, None, 0]}


@pytest.mark.parametrize(
    ("prefix", "length", "expected"),
    [
        (b"plain", 5, "<code>plain</code>"),
        (b"", 0, "<em>empty</em>"),
        (b"a&b", 3, "<code>a&amp;b</code>"),
        (b"\x00\x01", 2, "<code>0x0001</code>"),
        ("ab€".encode()[:4], 5_000_000, "<code>ab</code> … (5 MB)"),
        ("ab€".encode()[:4], 4, "<code>0x6162e282</code>"),
        ("\u202eevil".encode(), 7, "<code>0xe280ae6576696c</code>"),
    ],
)
def test_key_is_shown_safely(prefix: bytes, length: int, expected: str) -> None:
    assert key_text(prefix, length) == expected


def test_numbers_are_written_short() -> None:
    assert [format_count(each) for each in (0, 999, 1_000, 12_345, 3.5e9)] == ["0", "999", "1k", "12.3k", "3.5G"]
    assert [format_bytes(each) for each in (0, 1_500, 2_000_000)] == ["0 B", "1.5 kB", "2 MB"]
    assert format_bytes(65_536, base=1024) == "64 KiB"
    assert [format_ms(each) for each in (None, 0, 999, 90_000, 172_800_000)] == [
        "–",
        "0 ms",
        "999 ms",
        "1.5 min",
        "2 d",
    ]
    assert [format_percent(each) for each in (0, 0.0004, 0.034, 0.5)] == ["0%", "<0.1%", "3.4%", "50%"]
