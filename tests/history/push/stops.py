"""The check of pauses and deletions: handled-after-stop.

A delivery that has begun may go on until the lock of its lane ends. After that no invocation begins, until the begin of
a resumption.
"""

from bisect import bisect_right
from collections.abc import Iterator

from tests.history.model.anomaly import Anomaly, Kind
from tests.history.push.subscribed_partition import SubscribedPartition

_MS = 1_000_000


def check_stops(partition: SubscribedPartition) -> Iterator[Anomaly]:
    """Judge each invocation with records of the partition, whatever happened to it."""
    facts = partition.facts
    if facts.push.lock_ms is None or not facts.stopped_ns:
        return
    stopped_ns, resumed_ns = sorted(facts.stopped_ns), sorted(facts.resumed_ns)
    for each in facts.invocations.get(partition.where, ()):
        stops = bisect_right(stopped_ns, each.start_ns - facts.push.lock_ms * _MS)
        since_ns = _first_after_resumption(stopped_ns[:stops], resumed_ns, each.start_ns)
        if since_ns is not None:
            text = f"the target of subscription {partition.name} was invoked {(each.start_ns - since_ns) / 1e9:.1f} s "
            text += "after it was stopped"
            yield partition.anomaly(Kind.HANDLED_AFTER_STOP, text, *each.records[:1], lines=(each.line,))


def _first_after_resumption(stopped_ns: list[int], resumed_ns: list[int], at_ns: int) -> int | None:
    """The first of the stops since the last resumption that had begun by then."""
    resumed = bisect_right(resumed_ns, at_ns)
    last_ns = resumed_ns[resumed - 1] if resumed else -1
    return next((each for each in stopped_ns if each > last_ns), None)
