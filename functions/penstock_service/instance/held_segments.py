"""The segments that zones really hold, by the zones' own lists. A ref's bits only say what a zone once confirmed.

One list call shows 1,000 objects, so listing a zone costs far less than asking for each copy (docs/protocol/zones).

A list may lack a copy that the zone holds: the copy is newer than the list, or has a key of an earlier release. Or the
list is still to come or has failed, or memory is full. So each copy that no list has shown is asked for by a get of its
own. The result is safe whatever happens to the lists: a copy that counts as held was there at some moment since the
pass began.
"""

from collections.abc import Hashable, Mapping, Sequence

from penstock_core.errors import PenstockError
from penstock_core.ids import SegmentId
from penstock_core.limits import INSTANCE_SEGMENTS_MAX, LISTED_KEYS_MAX
from penstock_core.storage.keys import parse_segment_key, segment_folder
from penstock_service.ports.runtime import Executor
from penstock_service.ports.segments import SegmentStore

_LISTS_AT_ONCE = 8
_PARTS_AT_ONCE = 4  # of `LIST_KEYS_MAX` keys each

_Place = tuple[int, str]  # a zone, and a folder of keys


class HeldSegments:
    """The segments that this function instance has seen zones hold during one pass over the index. For one thread."""

    def __init__(self, listed_max: int = INSTANCE_SEGMENTS_MAX) -> None:
        self._listed_max = listed_max
        self.begin(None)

    def begin(self, current: Hashable) -> None:
        """Begins the pass `current`, and forgets the segments of the pass before."""
        self._pass = current
        self._seen: dict[int, set[SegmentId]] = {}
        self._tokens: dict[_Place, str | None] = {}  # the next parts of lists that have begun
        self._ended: set[_Place] = set()

    def go_on(self, current: Hashable) -> None:
        """Begins the pass `current`, unless it is under way."""
        if current != self._pass:
            self.begin(current)

    def lacking(
        self, zones: Sequence[SegmentStore], parallel: Executor, zones_of: Mapping[SegmentId, int]
    ) -> dict[SegmentId, int]:
        """For each segment, the bitmap of the zones that do not hold it or do not answer, among those that should.

        `zones_of` has the zones that should hold each segment, as a bitmap. Raises nothing. A whole pass costs one list
        call for each zone, folder and 1,000 objects, made when the folder first comes up. Each copy that no list
        has shown costs a get of one byte. One call of this method lists `LISTED_KEYS_MAX` keys and a few more.
        """
        copies = [
            (zone, segment_id)
            for segment_id, bitmap in zones_of.items()
            for zone in range(len(zones))
            if bitmap >> zone & 1
        ]
        self._list(
            zones, parallel, {(zone, segment_folder(segment_id, zones[zone].layout)) for zone, segment_id in copies}
        )
        unseen = [(zone, segment_id) for zone, segment_id in copies if segment_id not in self._seen.get(zone, ())]

        def ask(copy: tuple[int, SegmentId]) -> None:
            zones[copy[0]].get(copy[1], 0, 1)

        lacking = dict.fromkeys(zones_of, 0)
        for (zone, segment_id), answer in zip(unseen, parallel.map(ask, unseen), strict=True):
            if isinstance(answer, PenstockError):
                lacking[segment_id] |= 1 << zone
        return lacking

    def _list(self, zones: Sequence[SegmentStore], parallel: Executor, wanted: set[_Place]) -> None:
        places = sorted(wanted - self._ended)
        room = min(LISTED_KEYS_MAX, self._listed_max - sum(map(len, self._seen.values())))

        def list_place(place: _Place) -> tuple[list[str], str | None]:
            return _list_some(zones[place[0]], place[1], self._tokens.get(place))

        while places and room > 0:
            chunk, places = places[:_LISTS_AT_ONCE], places[_LISTS_AT_ONCE:]
            for place, found in zip(chunk, parallel.map(list_place, chunk), strict=True):
                keys, token = ([], None) if isinstance(found, PenstockError) else found
                self._seen.setdefault(place[0], set()).update(
                    segment_id
                    for key in keys
                    if (segment_id := parse_segment_key(key, zones[place[0]].layout)) is not None
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
