"""Which segments zones really hold, by what they say themselves: a ref's bits say what a zone once confirmed.

A list call tells of 1,000 objects, so going over a zone costs little beside asking for each copy (docs/adr/0008). What
the lists have not shown may still be there (it is newer than its list, or not listed yet, or a list failed, or memory
is full), and is asked for by itself: so whatever becomes of the lists, a copy that is taken to be there was there since
the pass began.
"""

from collections.abc import Hashable, Mapping, Sequence

from penstock_broker.ports import Parallel, SegmentStore
from penstock_core.errors import PenstockError
from penstock_core.ids import SegmentId
from penstock_core.keys import parse_segment_key, prefix_number, segment_prefix

LISTED_MAX = 2_000_000  # segment ids in memory, about 110 bytes each
_KEYS_PER_CALL = 32_000  # so that a call of `lacking` takes seconds however many objects there are
_LISTS_AT_ONCE = 8
_PARTS_AT_ONCE = 4  # of 1,000 keys

_Place = tuple[int, int]  # a zone, and a prefix of keys


class HeldSegments:
    """What a function instance has seen the zones hold during one pass over the index. For one thread."""

    def __init__(self, listed_max: int = LISTED_MAX) -> None:
        self._listed_max = listed_max
        self.begin(None)

    def begin(self, current: Hashable) -> None:
        """Forgets what was seen in another pass."""
        self._pass = current
        self._seen: dict[int, set[SegmentId]] = {}
        self._tokens: dict[_Place, str | None] = {}  # where lists that have begun go on
        self._ended: set[_Place] = set()

    def go_on(self, current: Hashable) -> None:
        """`begin`, unless it is the same pass."""
        if current != self._pass:
            self.begin(current)

    def lacking(
        self, zones: Sequence[SegmentStore], parallel: Parallel, zones_of: Mapping[SegmentId, int]
    ) -> dict[SegmentId, int]:
        """By segment, the zones among its bitmap that do not hold it, or do not answer; 0 if all do.

        One list call per zone, key prefix and 1,000 objects, in all calls together, each prefix when it is first asked
        for; and a get of one byte per copy that was not listed. Raises nothing.
        """
        copies = [
            (zone, segment_id)
            for segment_id, bitmap in zones_of.items()
            for zone in range(len(zones))
            if bitmap >> zone & 1
        ]
        self._list(zones, parallel, {(zone, prefix_number(segment_id)) for zone, segment_id in copies})
        unseen = [(zone, segment_id) for zone, segment_id in copies if segment_id not in self._seen.get(zone, ())]

        def ask(copy: tuple[int, SegmentId]) -> None:
            zones[copy[0]].get(copy[1], 0, 1)

        lacking = dict.fromkeys(zones_of, 0)
        for (zone, segment_id), answer in zip(unseen, parallel.map(ask, unseen), strict=True):
            if isinstance(answer, PenstockError):
                lacking[segment_id] |= 1 << zone
        return lacking

    def _list(self, zones: Sequence[SegmentStore], parallel: Parallel, wanted: set[_Place]) -> None:
        places = sorted(wanted - self._ended)
        room = min(_KEYS_PER_CALL, self._listed_max - sum(map(len, self._seen.values())))

        def list_place(place: _Place) -> tuple[list[str], str | None]:
            return _list_some(zones[place[0]], segment_prefix(place[1]), self._tokens.get(place))

        while places and room > 0:
            chunk, places = places[:_LISTS_AT_ONCE], places[_LISTS_AT_ONCE:]
            for place, found in zip(chunk, parallel.map(list_place, chunk), strict=True):
                keys, token = ([], None) if isinstance(found, PenstockError) else found
                self._seen.setdefault(place[0], set()).update(
                    segment_id for key in keys if (segment_id := parse_segment_key(key)) is not None
                )
                room -= len(keys)
                if token is None:
                    self._ended.add(place)
                else:
                    self._tokens[place] = token


def _list_some(store: SegmentStore, prefix: str, token: str | None) -> tuple[list[str], str | None]:
    keys: list[str] = []
    for _ in range(_PARTS_AT_ONCE):
        part = store.list_keys(prefix, token)
        keys += part.keys
        token = part.next_token
        if token is None:
            break
    return keys, token
