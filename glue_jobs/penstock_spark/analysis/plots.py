"""The plots of a report, as SVG inside the page.

Colours are names of the page's style sheet, so a plot follows the reader's light or dark mode. matplotlib draws with
stand-in colours, which `_svg` replaces. Texts stay texts. matplotlib draws names that users gave: it escapes them, and
does not interpret them as TeX.
"""

import io
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import matplotlib
import numpy as np
from matplotlib.dates import AutoDateLocator, ConciseDateFormatter
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator, NullFormatter, NullLocator

from penstock_spark.analysis.measure import HOUR_MS, bucket_start
from penstock_spark.analysis.summary import (
    Histogram,
    LagTrend,
    TopicSummary,
    format_bytes,
    format_count,
    format_ms,
    percentile,
    shorten,
)

SERIES = 7  # --s0 to --s6 of the style sheet; the last one stands for the remaining topics
HEAT_MAX = 4.0  # the brightest cell; hotter ones look the same
_TICKS_MS = (1, 10, 100, 1_000, 10_000, 60_000, 600_000, 3_600_000, 86_400_000, 864_000_000, 8_640_000_000)
_DATES = ("UTC", "%Y UTC", "%Y-%b UTC", "%Y-%b-%d UTC", "%Y-%b-%d UTC", "%Y-%b-%d UTC")
_WIDTH = 9.6
_INK, _GRID = "#010101", "#020202"
_COLORS = [f"#03030{index}" for index in range(SERIES)]
_STYLES = {_INK: "var(--ink)", _GRID: "var(--grid)"} | {
    color: f"var(--s{index})" for index, color in enumerate(_COLORS)
}
_RC: dict[Any, Any] = {
    "svg.fonttype": "none",
    "text.parse_math": False,
    "font.size": 9.5,
    "font.family": "sans-serif",
    "text.color": _INK,
    "axes.edgecolor": _GRID,
    "axes.labelcolor": _INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.grid.axis": "y",
    "axes.axisbelow": True,
    "axes.titlesize": 10.5,
    "axes.titlelocation": "left",
    "grid.color": _GRID,
    "grid.linewidth": 0.6,
    "xtick.color": _INK,
    "ytick.color": _INK,
    "legend.frameon": False,
    "legend.fontsize": 9,
    "date.autoformatter.hour": "%H:%M",
}


def throughput(hours_ms: Sequence[int], topics: Sequence[TopicSummary]) -> str:
    """Bytes and records by hour: the largest topics stacked, and the other topics as one series."""
    shown, others = topics[: SERIES - 1], topics[SERIES - 1 :]
    labels = [shorten(each.name) for each in shown] + ([f"{len(others)} others"] if others else [])
    with matplotlib.rc_context(_RC):
        figure = Figure(figsize=(_WIDTH, 4.6), layout="constrained")
        size_axes, count_axes = figure.subplots(2, 1, sharex=True, height_ratios=(3, 2))
        for axes, title, unit, values in (
            (size_axes, "Bytes per hour", format_bytes, [each.bytes_by_hour for each in topics]),
            (count_axes, "Records per hour", format_count, [each.records_by_hour for each in topics]),
        ):
            total = np.sum(values, axis=0)
            most = int(total.argmax())
            rows = values[: len(shown)] + ([np.sum(values[len(shown) :], axis=0)] if others else [])
            _stack(axes, hours_ms, rows, _colors_of(len(shown), bool(others)))
            axes.set_title(
                f"{title}: {unit(total.mean())} on average, most in the hour of {_hour(hours_ms[most])}, "
                f"{unit(total[most])}"
            )
            axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _, unit=unit: unit(value)))
        figure.legend(size_axes.patches, labels, loc="outside lower left", ncols=4)
        return _svg(figure, "throughput")


def sizes(topics: Sequence[TopicSummary]) -> str:
    """The distribution of record sizes in the largest topics."""
    shown = topics[: SERIES - 1]
    with matplotlib.rc_context(_RC):
        figure = Figure(figsize=(_WIDTH, 2.8), layout="constrained")
        axes = figure.subplots()
        for topic, color in zip(shown, _COLORS, strict=False):
            known = [bucket for bucket in topic.sizes if bucket >= 0]
            low, high = min(known, default=0), max(known, default=0)
            shares = np.array([topic.sizes[bucket] for bucket in range(low, high + 1)]) / max(1, topic.records) * 100
            edges = [bucket_start(bucket) for bucket in range(low, high + 2)]
            axes.stairs(shares, edges, color=color, linewidth=1.6, label=shorten(topic.name), baseline=0)
            axes.stairs(shares, edges, color=color, alpha=0.12, fill=True, baseline=0)
        axes.set_xscale("log", base=2)
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: format_bytes(value, base=1024)))
        axes.xaxis.set_minor_formatter(NullFormatter())
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}%"))
        axes.set_ylim(bottom=0)
        everything = sum((each.sizes for each in topics), Counter[int]())
        half, most = (format_bytes(percentile(everything, percent) or 0) for percent in (50, 99))
        axes.set_title(f"Sizes of key and value: half of all records are below {half}, one in a hundred above {most}")
        axes.legend(loc="upper left", bbox_to_anchor=(1, 1))
        return _svg(figure, "sizes")


def append_lag(by_hour: Mapping[int, Histogram]) -> str:
    """Percentiles of the time from timestamp to append over all records, hour by hour."""
    hours = [hour_ms for hour_ms in sorted(by_hour) if by_hour[hour_ms]]
    with matplotlib.rc_context(_RC):
        figure = Figure(figsize=(_WIDTH, 2.6), layout="constrained")
        axes = figure.subplots()
        for percent, color in ((99, _COLORS[1]), (95, _COLORS[4]), (50, _COLORS[0])):
            values = [max(1.0, percentile(by_hour[hour_ms], percent) or 0) for hour_ms in hours]
            axes.plot(
                _times(hours), values, color=color, linewidth=1.6, marker="o", markersize=2.6, label=f"p{percent}"
            )
        _log_durations(axes)
        _dates(axes)
        everything = sum(by_hour.values(), Counter[int]())
        said = ", ".join(f"p{percent} {format_ms(percentile(everything, percent))}" for percent in (50, 99))
        axes.set_title(f"From a record's timestamp to its append, by hour of the timestamp; over all hours {said}")
        axes.legend(loc="upper left", bbox_to_anchor=(1, 1))
        return _svg(figure, "append-lag")


def heat_map(hours_ms: Sequence[int], topic: TopicSummary) -> str:
    """A row per partition and a column per hour. A brighter cell has more of the topic's bytes."""
    rows = topic.partitions
    height = min(5.0, 1.1 + 0.16 * rows)
    with matplotlib.rc_context({**_RC, "axes.grid": False}):
        figure = Figure(figsize=(_WIDTH, height), layout="constrained")
        axes = figure.subplots()
        start, end = _times([hours_ms[0], hours_ms[-1] + HOUR_MS])
        image = axes.imshow(
            np.ma.masked_invalid(topic.hourly_heat),
            aspect="auto",
            interpolation="nearest",
            origin="upper",
            cmap="inferno",
            vmin=0,
            vmax=HEAT_MAX,
            extent=(matplotlib.dates.date2num(start), matplotlib.dates.date2num(end), rows - 0.5, -0.5),
        )
        _dates(axes)
        axes.yaxis.set_major_locator(MaxNLocator(integer=True))
        hottest = topic.hot_partitions[0] if topic.hot_partitions else int(topic.heat.argmax())
        most = f"{topic.heat[hottest]:.1f} times its share of the bytes"
        hot, even = f"partition {hottest} has {most}", f"no partition is hot; at most {most}, in {hottest}"
        axes.set_title(f"{shorten(topic.name)}: {hot if topic.hot_partitions else even}")
        axes.set_ylabel("partition")
        bar = figure.colorbar(image, ax=axes, extend="max", pad=0.01, aspect=max(3, (height - 0.8) / 0.14))
        bar.set_ticks([0, 1, 2, 3, HEAT_MAX], labels=["0", "even", "2x", "3x", "4x"])
        bar.outline.set_visible(False)
        return _svg(figure, f"heat-{topic.name}")


def lag_trend(trend: LagTrend) -> str:
    """The records that each group had not read at each run, for the groups that are furthest behind."""
    behind = sorted(trend.records, key=lambda group: (-(trend.records[group][-1] or 0), group))[: SERIES - 1]
    with matplotlib.rc_context(_RC):
        figure = Figure(figsize=(_WIDTH, 2.6), layout="constrained")
        axes = figure.subplots()
        for group, color in zip(behind, _COLORS, strict=False):
            values = [np.nan if each is None else each for each in trend.records[group]]
            axes.plot(
                _times(trend.runs_ms),
                values,
                color=color,
                linewidth=1.6,
                marker="o",
                markersize=3.4,
                label=shorten(group),
            )
        axes.set_yscale("symlog", linthresh=10)
        axes.set_ylim(bottom=0)
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: format_count(value)))
        _dates(axes)
        last = format_count(trend.records[behind[0]][-1] or 0) if behind else "0"
        axes.set_title(f"Records behind, at each run; furthest now: {shorten(behind[0]) if behind else 'none'}, {last}")
        axes.legend(loc="upper left", bbox_to_anchor=(1, 1))
        return _svg(figure, "lag-trend")


def _colors_of(shown: int, has_others: bool) -> list[str]:
    return _COLORS[:shown] + ([_COLORS[-1]] if has_others else [])


def _stack(axes: Any, hours_ms: Sequence[int], rows: Sequence[Any], colors: Sequence[str]) -> None:
    bottom = np.zeros(len(hours_ms))
    edges = matplotlib.dates.date2num(_times([*hours_ms, hours_ms[-1] + HOUR_MS]))
    for values, color in zip(rows, colors, strict=True):
        axes.stairs(bottom + values, edges, baseline=bottom, fill=True, color=color, linewidth=0)
        bottom = bottom + values
    axes.set_ylim(bottom=0)
    axes.xaxis_date(UTC)
    _dates(axes)


def _times(times_ms: Sequence[int]) -> Any:
    """The hours in the form that matplotlib takes."""
    return np.array([datetime.fromtimestamp(each / 1000, UTC) for each in times_ms])


def _hour(time_ms: int) -> str:
    return datetime.fromtimestamp(time_ms / 1000, UTC).strftime("%Y-%m-%d %H:00 UTC")


def _dates(axes: Any) -> None:
    locator = AutoDateLocator(minticks=3, maxticks=10)
    axes.xaxis.set_major_locator(locator)
    axes.xaxis.set_major_formatter(ConciseDateFormatter(locator, offset_formats=[*_DATES]))


def _log_durations(axes: Any) -> None:
    axes.set_yscale("log")
    axes.yaxis.set_major_locator(FixedLocator(_TICKS_MS))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: format_ms(value)))
    axes.yaxis.set_minor_locator(NullLocator())


def _svg(figure: Figure, salt: str) -> str:
    """The figure as an element of a page. It refers to no place outside the page."""
    sink = io.BytesIO()
    with matplotlib.rc_context({"svg.hashsalt": salt}):
        nothing = dict.fromkeys(("Date", "Creator", "Format", "Type"))
        figure.savefig(sink, format="svg", transparent=True, metadata=nothing)
    text = sink.getvalue().decode()
    text = text[text.index("<svg") :]
    text = re.sub(r'\s(?:xmlns(?::xlink)?|version|width|height)="[^"]*"', "", text, count=5)
    text = text.replace("<svg", '<svg class="plot" aria-hidden="true" focusable="false"', 1)
    for color, style in _STYLES.items():
        text = text.replace(color, style)
    return text
