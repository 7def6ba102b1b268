"""Renders a summary as one page for an operator: first the findings, then the figures behind them.

The constants bound the topics, partitions and groups on the page. The page counts the rest.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from penstock_spark.analysis import plots
from penstock_spark.analysis.findings import CONSUMER_LAG_MS_MAX, findings, group_rows
from penstock_spark.analysis.measure import HOUR_MS
from penstock_spark.analysis.page import bad, bar, figure, key_text, page, sparkline, table, text, tile
from penstock_spark.analysis.summary import (
    HOT_HEAT,
    HOT_RECORDS_MIN,
    Histogram,
    Summary,
    TopicSummary,
    format_bytes,
    format_count,
    format_ms,
    format_percent,
    percentile,
)

# Bounds of the page, so that a person can read it whole. The page counts the rest.
TOPICS_SHOWN = 25
HEAT_MAPS_SHOWN = 4
HOT_SHOWN = 15
SKEWED_SHOWN = 6
KEYS_SHOWN = 5
KEY_SHARE_MIN = 0.001
GROUPS_SHOWN = 25
LAGGING_SHOWN = 20
EMPTY_NAMED = 20


def render(summary: Summary, *, title: str, run_ms: int, place: str) -> str:
    """The whole document. `place` is the location of its Parquet files."""
    return page(
        title,
        [
            *_top(summary, title, run_ms),
            *_throughput(summary),
            *_records(summary),
            *_partitions(summary),
            *_keys(summary),
            *_consumers(summary),
            _how(place),
        ],
    )


def _top(summary: Summary, title: str, run_ms: int) -> Iterator[str]:
    yield f"<h1>{text(title)}</h1>"
    if summary.only:
        yield f"<p>Of {text(', '.join(summary.only))} only.</p>"
    if not summary.hours_ms:
        yield f'<p class="soft">As of {_time(run_ms)}. No records in these hours.</p>'
    else:
        end_ms = min(summary.hours_ms[-1] + HOUR_MS, max(run_ms, summary.hours_ms[-1]))
        yield f'<p class="soft">Records of {_time(summary.hours_ms[0])} to {_time(end_ms)}, as of {_time(run_ms)}.</p>'
    records, size = sum(each.records for each in summary.topics), sum(each.bytes for each in summary.topics)
    hot = sum(len(each.hot_partitions) for each in summary.topics)
    by_hour = [sum(each) for each in zip(*(topic.bytes_by_hour for topic in summary.topics), strict=True)]
    append = percentile(_all(summary.append_lags_by_hour.values()), 99)
    oldest = max((row["lag_ms"] or 0 for row in summary.lags), default=None)
    yield '<div class="tiles">'
    yield tile(format_count(records), "records")
    yield tile(format_bytes(size), "keys and values")
    yield tile(f"{format_bytes(max(by_hour, default=0) / 3600)}/s", "in the busiest hour")
    yield tile(str(len(summary.topics)), f"topics with records, {len(summary.empty_topics)} without")
    yield tile(format_ms(append), "timestamp to append, p99")
    yield tile(str(hot), "hot partition" if hot == 1 else "hot partitions", is_bad=hot > 0)
    yield tile(format_ms(oldest), "furthest behind", is_bad=(oldest or 0) >= CONSUMER_LAG_MS_MAX)
    yield "</div><h2>What stands out</h2>"
    found = findings(summary)
    items = "".join(f"<li>{each}</li>" for each in found)
    yield (
        f'<ul class="findings">{items}</ul>'
        if found
        else '<p class="findings none">Nothing: no partition is hot, and no group is far behind.</p>'
    )


def _throughput(summary: Summary) -> Iterator[str]:
    yield "<h2>Throughput</h2>"
    if summary.topics:
        names = ", ".join(f"{each.name} {format_bytes(each.bytes)}" for each in summary.topics[:3])
        yield figure(
            plots.throughput(summary.hours_ms, summary.topics),
            f"Bars of bytes and records per hour, by topic. Largest: {names}.",
        )
    shown, others = summary.topics[:TOPICS_SHOWN], summary.topics[TOPICS_SHOWN:]
    rows = [_topic_row(each) for each in shown]
    if others:
        rows.append(_others_row(others))
    yield table(
        "Topics, largest first",
        ("Topic", "By hour", "Partitions", "Records", "Bytes", "Size p50", "p95", "p99", "Largest", "No key",
         "Tombstones", "Keys/hour", "Append p50", "p99"),
        rows,
    )  # fmt: skip
    if summary.empty_topics:
        named = ", ".join(summary.empty_topics[:EMPTY_NAMED])
        rest = len(summary.empty_topics) - EMPTY_NAMED
        yield f'<p class="soft">Without records: {text(named)}{f" and {rest} more" if rest > 0 else ""}.</p>'


def _topic_row(topic: TopicSummary) -> Sequence[str]:
    return (
        text(topic.name),
        sparkline(list(topic.bytes_by_hour)),
        str(topic.partitions),
        format_count(topic.records),
        format_bytes(topic.bytes),
        *(_size(topic.sizes, percent, topic.size_max) for percent in (50, 95, 99)),
        format_bytes(topic.size_max),
        format_percent(topic.null_keys / max(1, topic.records)),
        format_count(topic.tombstones),
        format_count(topic.keys_per_hour_max),
        *(format_ms(percentile(topic.append_lags, percent)) for percent in (50, 99)),
    )


def _others_row(others: Sequence[TopicSummary]) -> Sequence[str]:
    sizes, lags = _all(each.sizes for each in others), _all(each.append_lags for each in others)
    records, size_max = sum(each.records for each in others), max(each.size_max for each in others)
    return (
        f"<em>{len(others)} others</em>",
        sparkline([sum(each) for each in zip(*(topic.bytes_by_hour for topic in others), strict=True)]),
        format_count(sum(each.partitions for each in others)),
        format_count(records),
        format_bytes(sum(each.bytes for each in others)),
        *(_size(sizes, percent, size_max) for percent in (50, 95, 99)),
        format_bytes(size_max),
        format_percent(sum(each.null_keys for each in others) / max(1, records)),
        format_count(sum(each.tombstones for each in others)),
        format_count(max(each.keys_per_hour_max for each in others)),
        *(format_ms(percentile(lags, percent)) for percent in (50, 99)),
    )


def _records(summary: Summary) -> Iterator[str]:
    if not summary.topics:
        return
    yield "<h2>Sizes and the time to append</h2>"
    sizes = "; ".join(
        f"{each.name}: half below {_size(each.sizes, 50, each.size_max)}" for each in summary.topics[: plots.SERIES - 1]
    )
    yield figure(plots.sizes(summary.topics), f"Distribution of record sizes by topic. {sizes}.")
    everything = _all(summary.append_lags_by_hour.values())
    if everything:
        said = ", ".join(f"p{percent} {format_ms(percentile(everything, percent))}" for percent in (50, 95, 99))
        yield figure(
            plots.append_lag(summary.append_lags_by_hour),
            f"Lines of the time from timestamp to append by hour. Over all hours: {said}.",
            "By the producers' clocks and the service's. Records merged before they were counted are left out.",
        )


def _partitions(summary: Summary) -> Iterator[str]:
    wide = [each for each in summary.topics if each.partitions > 1]
    if not wide:
        return
    yield "<h2>Partitions</h2>"
    yield (
        f"<p>1 is an even share of the topic's bytes. A partition is hot with {HOT_HEAT:g} times that or more, over "
        "all hours or over the last 24, and at least a thousand records.</p>"
    )
    # Chance alone makes the map of a small topic colourful: so first topics with hot partitions, then the largest.
    for topic in sorted(wide, key=lambda each: (not each.hot_partitions, -each.bytes))[:HEAT_MAPS_SHOWN]:
        hottest = int(topic.heat.argmax())
        yield figure(
            plots.heat_map(summary.hours_ms, topic),
            f"Heat map of {topic.name}, {topic.partitions} partitions by hour. Hottest: partition {hottest} with "
            f"{topic.heat[hottest]:.1f} times an even share.",
        )
    hot = sorted(
        ((float(topic.heat[each]), topic, each) for topic in wide for each in topic.hot_partitions),
        key=lambda found: (-found[0], found[1].name, found[2]),
    )
    rows = []
    for heat, topic, partition in hot[:HOT_SHOWN]:
        top = topic.top_keys(1, partition)
        share = top[0][1] / topic.partition_records[partition] if top else 0.0
        key = key_text(top[0][0].prefix, top[0][0].length) if top else "–"
        size = topic.partition_bytes[partition]
        rows.append(
            (text(topic.name), str(partition), bad(f"{heat:.1f}x"), format_bytes(float(size.sum())),
             f"{format_bytes(float(size.max()) / 3600)}/s", key,
             format_percent(share))
        )  # fmt: skip
    more = f" ({len(hot) - HOT_SHOWN} more not shown)" if len(hot) > HOT_SHOWN else ""
    heads = ("Topic", "Partition", "Heat", "Bytes", "Busiest hour", "Top key", "Its share here")
    yield table(f"Hot partitions{more}", heads, rows)


def _keys(summary: Summary) -> Iterator[str]:
    keyed = [each for each in summary.topics if each.key_records]
    if not keyed:
        return
    yield "<h2>Keys</h2>"
    yield (
        "<p>The most frequent keys of a topic, each with its share of the topic's records that have a key. One "
        "partition carries all records of a key. An hour counts only the ten most frequent keys of a partition, so "
        "shares may be larger.</p>"
    )
    # Topics with one partition come last: no other partition could carry their keys.
    skewed = sorted(
        keyed,
        key=lambda each: (each.keyed_records < HOT_RECORDS_MIN, each.partitions == 1, -each.top_key_share, each.name),
    )
    rows = []
    for topic in skewed[:SKEWED_SHOWN]:
        for index, (key, records) in enumerate(topic.top_keys(KEYS_SHOWN)):
            share = records / topic.keyed_records
            if index and share < KEY_SHARE_MIN:
                break
            rows.append(
                (text(topic.name) if not index else "", key_text(key.prefix, key.length), str(key.partition),
                 format_count(records), format_percent(share), f'<td class="n">{bar(share)}</td>')
            )  # fmt: skip
    more = f" ({len(skewed) - SKEWED_SHOWN} less skewed ones not shown)" if len(skewed) > SKEWED_SHOWN else ""
    yield table(f"Topics{more}", ("Topic", "Key", "Partition", "Records", "Share", ""), rows, numbers_from=2)


def _consumers(summary: Summary) -> Iterator[str]:
    yield "<h2>Consumer groups</h2>"
    groups = group_rows(summary)
    if not groups:
        yield "<p>No group has committed an offset.</p>"
        return
    if len(summary.trend.runs_ms) > 1:
        worst = max(summary.trend.records, key=lambda group: summary.trend.records[group][-1] or 0, default="none")
        yield figure(
            plots.lag_trend(summary.trend),
            f"Lines of how many records groups were behind at the last {len(summary.trend.runs_ms)} runs. Furthest "
            f"behind now: {worst}.",
        )
    rows = [_group_row(group, found) for group, found in groups.items()]
    rows.sort(key=lambda row: row[0])
    more = f" ({len(rows) - GROUPS_SHOWN} more not shown)" if len(rows) > GROUPS_SHOWN else ""
    yield table(
        f"Groups at the time of this run, furthest behind first{more}",
        ("Group", "Topics", "Members", "Partitions", "Never committed", "Records behind", "Oldest waits"),
        [row[1] for row in rows[:GROUPS_SHOWN]],
        numbers_from=2,
    )
    lagging = sorted(
        (row for row in summary.lags if row["lag_records"]),
        key=lambda row: (-(row["lag_ms"] or 0), row["group"], row["topic"], row["partition"]),
    )
    yield table(
        f"Partitions that wait longest{f' (of {len(lagging)})' if len(lagging) > LAGGING_SHOWN else ''}",
        ("Group", "Topic", "Owner", "Partition", "Committed", "End", "Records behind", "Oldest waits"),
        [
            (text(row["group"]), text(row["topic"]), text(row["owner_name"] or "none"), str(row["partition"]),
             f"{row['committed_offset']:,}", f"{row['high_watermark']:,}", format_count(row["lag_records"]),
             format_ms(row["lag_ms"]))
            for row in lagging[:LAGGING_SHOWN]
        ],
        numbers_from=3,
    )  # fmt: skip


def _group_row(group: str, rows: Sequence[Mapping[str, Any]]) -> tuple[tuple[int, int, str], Sequence[str]]:
    """The row's order in the table, and its cells."""
    behind, oldest = sum(row["lag_records"] or 0 for row in rows), max(row["lag_ms"] or 0 for row in rows)
    silent = sum(row["lag_records"] is None for row in rows)
    members, is_known = str(rows[0]["members"]), silent < len(rows)
    topics = sorted({row["topic"] for row in rows})
    cells = (
        text(group),
        text(", ".join(topics[:3]) + (f" and {len(topics) - 3} more" if len(topics) > 3 else "")),
        bad(members) if behind and members == "0" else members,
        str(len(rows)),
        format_count(silent),
        format_count(behind) if is_known else "–",
        bad(format_ms(oldest)) if oldest >= CONSUMER_LAG_MS_MAX else format_ms(oldest if is_known else None),
    )
    return (-oldest, -behind, group), cells


def _how(place: str) -> str:
    return (
        "<h2>How this is measured</h2><dl>"
        "<dt>Hour</dt><dd>Of the record's timestamp, in UTC. Records stamped later than the run are counted when their "
        "hour has come.</dd>"
        "<dt>Bytes, sizes</dt><dd>Key and value, uncompressed, without headers. Percentiles here are read off "
        "histograms, to within 19%; the Parquet files have closer ones for each partition and hour.</dd>"
        "<dt>Timestamp to append</dt><dd>From the record's timestamp to the time at which the service began to write "
        "its segment; the commit follows within the append's own latency. A negative time, from a producer's fast "
        "clock, counts as zero.</dd>"
        "<dt>Oldest waits</dt><dd>The time from the timestamp of the first record that the group has not committed to "
        "this run.</dd>"
        f"<dt>Data</dt><dd>Parquet files, <code>{text(place)}</code>.</dd></dl>"
    )


def _size(sizes: Histogram, percent: int, size_max: int) -> str:
    found = percentile(sizes, percent)
    return "–" if found is None else format_bytes(min(found, size_max))


def _all(histograms: Iterable[Histogram]) -> Histogram:
    total: Histogram = Counter()
    for each in histograms:
        total.update(each)
    return total


def _time(time_ms: float) -> str:
    return datetime.fromtimestamp(time_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M UTC")
