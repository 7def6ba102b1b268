"""The inline segments of a stage, read by the port alone."""

from collections.abc import Mapping

from penstock_core.ids import SegmentId
from penstock_core.storage.keys import parse_segment_key
from penstock_service.ports.segments import InlineStore


def inline_segments(store: InlineStore) -> Mapping[SegmentId, bytes]:
    """All segments that are items, in the order of their keys."""
    keys = [key for folder in store.list_folders() for key in store.list_keys(folder, None).keys]
    return store.get_wholes([segment_id for key in keys if (segment_id := parse_segment_key(key)) is not None])
