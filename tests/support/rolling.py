"""Rolls and evictions by their single writes, as an append does them, and heads after moves of their tails."""

from dataclasses import replace

from penstock_core.compaction.tail_move import TailMove
from penstock_core.ids import PartitionKey
from penstock_core.log.index import Head, Page
from penstock_core.log.roll import is_roll_due, next_page
from penstock_service.ports.log import LogIndex


def roll(log: LogIndex, key: PartitionKey) -> Page:
    """Roll the first refs of the tail, which has enough of them, and return their page."""
    page = next_page(log.heads([key])[key])
    assert page is not None
    stored = log.put_page(key, page)
    assert stored is not None
    is_done, _ = log.shorten_tail(key, stored)
    assert is_done
    return stored


def roll_if_due(log: LogIndex, key: PartitionKey, head: Head) -> None:
    """Roll if the append that left `head` behind should."""
    if is_roll_due(head):
        roll(log, key)


def moved(head: Head, move: TailMove) -> Head:
    """The head after the move."""
    return replace(head, tail=tuple(move.new.get(place, ref) for place, ref in enumerate(head.tail)))
