"""When the index began: the creation of its first topic.

The sweep takes no object for its own that is older (sweep.py). The time is kept where cursors are, so that it outlives
the topic, and is noted before the topic can be written to; retention and sweep note it too, for topics that were there
before this was.
"""

from collections.abc import Sequence

from penstock_broker.broker import Broker
from penstock_core.topic import Topic

_NAME = "index-since"
_CLOCKS_APART_MS = 1_000  # a topic's first segment may be named by a clock behind the one that its creation went by


def note_index_age(broker: Broker, topics: Sequence[Topic]) -> int | None:
    """Since when segments may be this index's, by it and these topics; None if it has never had a topic.

    One read, and a write when the time goes down: of two at once, one may put what the other has lowered. Then the
    sweep leaves objects as old as that, until the next run that finds the older topic.
    """
    stored = broker.cursors.get(_NAME)
    known = [int(stored)] if stored is not None else []
    known += [topic.created_at_ms - _CLOCKS_APART_MS for topic in topics]
    since_ms = min(known, default=None)
    if since_ms is not None and str(since_ms) != stored:
        broker.cursors.put(_NAME, str(since_ms))
    return since_ms
