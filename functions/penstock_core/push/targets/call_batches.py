"""Cuts entries into calls that take a few of them, and a few bytes, each. Pure."""

from collections.abc import Sequence

from penstock_core.limits import PUSH_ENTRIES_MAX


def call_batches(sizes: Sequence[int], bytes_max: int) -> list[Sequence[int]]:
    """The entries of each call by their indices, in order, from the entries' sizes in bytes.

    A call has `PUSH_ENTRIES_MAX` entries and `bytes_max` bytes at most. An entry that is larger alone is in no call.
    """
    batches: list[list[int]] = []
    room = 0
    for index, size in enumerate(sizes):
        if size > bytes_max:
            continue
        if not batches or len(batches[-1]) == PUSH_ENTRIES_MAX or size > room:
            batches.append([])
            room = bytes_max
        batches[-1].append(index)
        room -= size
    return [*batches]
