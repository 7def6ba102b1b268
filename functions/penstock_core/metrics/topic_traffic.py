"""The traffic of a topic in some time: records and bytes, in and out, and failures."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, fields

OTHER = "(other)"
"""Stands for all topics or consumers without a series of their own. No name has a parenthesis."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicTraffic:
    """Counts of one topic. Bytes are those of batches as they are stored, and each copy to a reader counts.

    `requests_failed` counts the answers to a partition with an error, and `requests_throttled` those of them that told
    the caller to come again later.
    """

    records_received: int = 0
    bytes_received: int = 0
    records_sent: int = 0
    bytes_sent: int = 0
    requests_failed: int = 0
    requests_throttled: int = 0

    def plus(self, other: "TopicTraffic") -> "TopicTraffic":
        """The sum of both."""
        return TopicTraffic(**{each.name: getattr(self, each.name) + getattr(other, each.name) for each in _COUNTS})

    def counts(self) -> dict[str, int]:
        """The counts that are not 0, by name."""
        return {each.name: value for each in _COUNTS if (value := getattr(self, each.name))}


_COUNTS = fields(TopicTraffic)
NO_TRAFFIC = TopicTraffic()


def by_series(traffic: Mapping[str, TopicTraffic], own: Collection[str]) -> dict[str, TopicTraffic]:
    """The traffic of each topic of `own` under its name, and the sum of all other topics under `OTHER`."""
    found: dict[str, TopicTraffic] = {}
    for topic, counts in traffic.items():
        name = topic if topic in own else OTHER
        found[name] = found.get(name, NO_TRAFFIC).plus(counts)
    return found
