"""Findings of a summary: a few sentences, the worst first. Each one names a remedy."""

from collections.abc import Iterator
from typing import Any

from penstock_spark.analysis.page import key_text, text
from penstock_spark.analysis.summary import (
    HOT_RECORDS_MIN,
    Summary,
    TopicSummary,
    format_count,
    format_ms,
    format_percent,
    percentile,
)

FINDINGS_MAX = 12  # as many as an operator reads
APPEND_LAG_MS_MAX = 60_000
CONSUMER_LAG_MS_MAX = 3_600_000
_ONE_KEY = 0.3
_NAMED = 3


def findings(summary: Summary) -> list[str]:
    """The findings as sentences of HTML, at most `FINDINGS_MAX`. Empty if the summary shows no trouble."""
    looks = (_idle_groups, _late_groups, _hot, _skewed, _slow, _silent_groups)
    found = [each for look in looks for each in look(summary)]
    return found[:FINDINGS_MAX]


def group_rows(summary: Summary) -> dict[str, list[Any]]:
    """The rows of this run's lag, by group."""
    groups: dict[str, list[Any]] = {}
    for row in summary.lags:
        groups.setdefault(row["group"], []).append(row)
    return groups


def _idle_groups(summary: Summary) -> Iterator[str]:
    for group, rows in group_rows(summary).items():
        behind = sum(row["lag_records"] or 0 for row in rows)
        if behind and not rows[0]["members"]:
            oldest = max(row["lag_ms"] or 0 for row in rows)
            yield (
                f"Group <b>{text(group)}</b> has no members and is {text(format_count(behind))} records behind, "
                f"the oldest {text(format_ms(oldest))} old: start its consumers, or delete it if it is unused."
            )


def _late_groups(summary: Summary) -> Iterator[str]:
    for group, rows in group_rows(summary).items():
        worst = max(rows, key=lambda row: row["lag_ms"] or 0)
        if rows[0]["members"] and (worst["lag_ms"] or 0) >= CONSUMER_LAG_MS_MAX:
            yield (
                f"Group <b>{text(group)}</b> is {text(format_ms(worst['lag_ms']))} behind in partition "
                f"{worst['partition']} of {text(worst['topic'])}: if only this partition is behind, look at its member "
                f"{text(worst['owner_name'] or 'none')}; else add consumers."
            )


def _silent_groups(summary: Summary) -> Iterator[str]:
    for group, rows in group_rows(summary).items():
        silent = sum(row["lag_records"] is None for row in rows)
        has_some = sum(row["high_watermark"] > row["log_start_offset"] for row in rows if row["lag_records"] is None)
        if has_some:
            yield (
                f"Group <b>{text(group)}</b> has never committed for {silent} of its {len(rows)} partitions: how far "
                "it is behind there is not known."
            )


def _hot(summary: Summary) -> Iterator[str]:
    for topic in summary.topics:
        for partition in topic.hot_partitions[:1]:
            yield (
                f"Partition <b>{partition}</b> of <b>{text(topic.name)}</b> has {topic.heat[partition]:.1f} times its "
                f"share of the bytes{_because(topic, partition)}."
            )


def _because(topic: TopicSummary, partition: int) -> str:
    top = topic.top_keys(1, partition)
    records = int(topic.partition_records[partition])
    if top and top[0][1] >= _ONE_KEY * records:
        key, count = top[0]
        share = format_percent(count / records)
        return f": {text(share)} of its records have the key {key_text(key.prefix, key.length)}"
    if topic.null_keys >= _ONE_KEY * topic.records:
        return ", and most records have no key: see how the producer chooses partitions"
    return ", of many keys: more partitions would spread them"


def _skewed(summary: Summary) -> Iterator[str]:
    for topic in summary.topics:
        is_skewed = topic.keyed_records >= HOT_RECORDS_MIN and topic.top_key_share >= _ONE_KEY
        if topic.partitions > 1 and is_skewed and not topic.hot_partitions:
            key, _ = topic.top_keys(1)[0]
            yield (
                f"{text(format_percent(topic.top_key_share))} of the records of <b>{text(topic.name)}</b> have the key "
                f"{key_text(key.prefix, key.length)}: one partition gets them all."
            )


def _slow(summary: Summary) -> Iterator[str]:
    waits = {topic.name: percentile(topic.append_lags, 99) or 0 for topic in summary.topics}
    slow = sorted((name for name in waits if waits[name] >= APPEND_LAG_MS_MAX), key=lambda name: -waits[name])
    if slow:
        named = ", ".join(f"<b>{text(name)}</b> ({text(format_ms(waits[name]))})" for name in slow[:_NAMED])
        more = f" and {len(slow) - _NAMED} more topics" if len(slow) > _NAMED else ""
        yield (
            f"One in a hundred records is appended that late after its timestamp, or later: {named}{more}. Producers "
            "linger, retry or replay, or a producer's clock is behind."
        )
