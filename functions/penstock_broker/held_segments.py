"""Which segments zones really hold, by what they say themselves: a ref's bits say what a zone once confirmed.

A list call tells of 1,000 objects, so going over a zone costs little beside asking for each copy. What a list does
not show may still be there (it is newer than the list, or the list failed, or memory is full), and is asked for by
itself: so whatever becomes of the lists, a copy that is taken to be there was there since this was made.
"""

from collections.abc import Mapping

from penstock_broker.broker import Broker
from penstock_core.errors import PenstockError
from penstock_core.ids import SegmentId
from penstock_core.keys import parse_segment_key, prefix_number, segment_prefix

LISTED_MAX = 1_000_000  # segment ids in memory, about 110 bytes each
_LISTS_AT_ONCE = 8


class HeldSegments:
    """What the zones were seen to hold since this was made. For one run of a job, and one thread."""

    def __init__(self, broker: Broker, listed_max: int = LISTED_MAX) -> None:
        self._broker = broker
        self._room = listed_max
        self._listed: set[tuple[int, int]] = set()
        self._seen: list[set[SegmentId]] = [set() for _ in broker.zones]

    def lacking(self, zones_of: Mapping[SegmentId, int]) -> dict[SegmentId, int]:
        """By segment, the zones among its bitmap that do not hold it, or do not answer; 0 if all do.

        One list call per zone, key prefix and 1,000 objects, each prefix once and when it is first asked for; then a
        get of one byte per copy that was not listed. Raises nothing.
        """
        copies = [
            (zone, segment_id)
            for segment_id, zones in zones_of.items()
            for zone in range(len(self._broker.zones))
            if zones >> zone & 1
        ]
        self._list(sorted({(zone, prefix_number(segment_id)) for zone, segment_id in copies} - self._listed))
        unseen = [(zone, segment_id) for zone, segment_id in copies if segment_id not in self._seen[zone]]
        lacking = dict.fromkeys(zones_of, 0)
        for (zone, segment_id), answer in zip(unseen, self._broker.parallel.map(self._ask, unseen), strict=True):
            if isinstance(answer, PenstockError):
                lacking[segment_id] |= 1 << zone
        return lacking

    def _list(self, places: list[tuple[int, int]]) -> None:
        for start in range(0, len(places), _LISTS_AT_ONCE):
            chunk = places[start : start + _LISTS_AT_ONCE]
            self._listed.update(chunk)
            for (zone, _), found in zip(chunk, self._broker.parallel.map(self._list_prefix, chunk), strict=True):
                if not isinstance(found, PenstockError):
                    self._seen[zone].update(found)
                    self._room -= len(found)

    def _list_prefix(self, place: tuple[int, int]) -> list[SegmentId]:
        """What the zone holds under the prefix, as far as there is room for it."""
        zone, number = place
        room = self._room // _LISTS_AT_ONCE
        found: list[SegmentId] = []
        token = None
        while len(found) < room:
            part = self._broker.zones[zone].list_keys(segment_prefix(number), token)
            found += [segment_id for key in part.keys if (segment_id := parse_segment_key(key)) is not None]
            token = part.next_token
            if token is None:
                break
        return found

    def _ask(self, copy: tuple[int, SegmentId]) -> None:
        zone, segment_id = copy
        self._broker.zones[zone].get(segment_id, 0, 1)
