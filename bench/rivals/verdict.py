"""The rates as rows, and the bars that Penstock must reach beside Kinesis and SQS."""

from collections.abc import Mapping, Sequence
from itertools import product

from bench.harness.turns import spread
from bench.report.result import Row
from bench.rivals.race import Load, Turn

MB = 1_000_000
BARS = (("Kinesis", 100, 8.0), ("SQS", 100, 30.0), ("Kinesis", 1_000, 2.5))
"""Penstock must reach so many times the other's records a second, each way, at that size of a record."""
EMBEDDED = "Penstock embedded"
_OURS = ("Penstock", EMBEDDED)

Rates = Mapping[tuple[int, int], Mapping[str, Sequence[Turn]]]
"""The turns by size, clients and system."""


def rate_rows(load: Load, turns: Mapping[str, Sequence[Turn]]) -> list[Row]:
    """A row for each system: medians over its turns, and their span."""
    rows: list[Row] = []
    for name, mine in turns.items():
        sent = spread(turn.sent_per_s for turn in mine)
        received = spread(turn.received_per_s for turn in mine)
        rows.append(
            {
                "system": name,
                "sent_records_per_s": round(sent.median),
                "sent_span": sent.words(),
                "sent_mb_per_s": _mb(sent.median, load),
                "received_records_per_s": round(received.median),
                "received_span": received.words(),
                "received_mb_per_s": _mb(received.median, load),
            }
        )
    return rows


def bar_rows(rates: Rates) -> list[Row]:
    """Penstock's rate by the other's, by clients, beside the bar. A system that did not run has no row."""
    rows: list[Row] = []
    for (other, size, bar), mine in product(BARS, _OURS):
        for (record_bytes, clients), turns in rates.items():
            if record_bytes != size or other not in turns or mine not in turns:
                continue
            ours, theirs = turns[mine], turns[other]
            sent = _times([each.sent_per_s for each in ours], [each.sent_per_s for each in theirs])
            received = _times([each.received_per_s for each in ours], [each.received_per_s for each in theirs])
            rows.append(
                {
                    "system": mine,
                    "beside": other,
                    "record": f"{size} B",
                    "clients": clients,
                    "bar_times": bar,
                    "sent_times": sent,
                    "received_times": received,
                    "holds": "yes" if min(sent, received) >= bar else "no",
                }
            )
    return rows


def _times(ours: Sequence[float], theirs: Sequence[float]) -> float:
    """The median of ours by the median of theirs, 0 if they did nothing."""
    median = spread(theirs).median
    return round(spread(ours).median / median, 1) if median else 0.0


def _mb(records_per_s: float, load: Load) -> float:
    return round(records_per_s * load.record_bytes / MB, 2)
