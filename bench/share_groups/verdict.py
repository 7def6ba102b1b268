"""The judgement of a share group's ledgers (G11): what became of each record, and what must not have happened.

A record that was sent is in the dead-letter topic once, or its acceptance was answered once, or the worker that had it
last was killed before it could write the answer down. After an acceptance no acquire gets the record again. No lock
begins while another one holds the record.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from bench.share_groups.facts import LETS_GO, Acknowledged, Fact, Handled, Took

_OK, _ACCEPT = "ok", "accept"


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """The facts besides the ledgers. `dead` are the offsets in the dead-letter topic, one for each record there."""

    records: int
    dead: Sequence[int]
    killed: frozenset[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """Counts of records. All below `dead_lettered` must be 0.

    `accepted_unseen`: the worker was killed before it had the answer. `handled_again` counts what handlers got beyond
    each record's first time.
    """

    handled: int
    handled_again: int
    accepted: int
    accepted_unseen: int
    dead_lettered: int
    lost: int
    accepted_twice: int
    dead_lettered_twice: int
    accepted_and_dead_lettered: int
    came_after_acceptance: int
    locked_by_two: int

    @property
    def is_right(self) -> bool:
        """The group kept its promise."""
        wrong = (self.lost, self.accepted_twice, self.dead_lettered_twice, self.accepted_and_dead_lettered)
        return not (any(wrong) or self.came_after_acceptance or self.locked_by_two)


class _Record:
    """One record, with all that the ledgers tell of it."""

    __slots__ = ("accepts", "handled", "let_go", "may_be_accepted", "takes")

    def __init__(self) -> None:
        self.takes: list[Took] = []
        self.handled: list[Handled] = []
        self.accepts: list[Acknowledged] = []  # answered with "ok"
        self.let_go: list[Acknowledged] = []  # released or rejected, whatever was answered
        self.may_be_accepted = False  # an answer came that does not exclude it

    @property
    def came_after_acceptance(self) -> bool:
        """An acquire that was sent after the answer got the record."""
        return any(
            take.lock != accept.lock and (take.sent_ns > accept.answered_ns or take.deliveries > self._count(accept))
            for accept in self.accepts
            for take in self.takes
        )

    @property
    def is_locked_by_two(self) -> bool:
        """A lock began while the one before it had neither ended nor been given up."""
        takes = sorted(self.takes, key=lambda take: take.sent_ns)
        return any(
            after.lock != before.lock
            and after.answered_ns < before.ends_ns
            and not any(each.lock == before.lock and each.sent_ns < after.answered_ns for each in self.let_go)
            for before, after in pairwise(takes)
        )

    def was_last_with(self, workers: frozenset[str]) -> bool:
        """One of these workers handled the record under its last lock."""
        last = max(self.takes, key=lambda take: take.sent_ns, default=None)
        return last is not None and last.worker in workers and any(each.lock == last.lock for each in self.handled)

    def _count(self, accept: Acknowledged) -> int:
        return max((take.deliveries for take in self.takes if take.lock == accept.lock), default=0)


def judge(facts: Iterable[Fact], ending: Ending) -> Verdict:
    """The verdict on a group in which no record is left."""
    records = _by_offset(facts)
    found = [records[offset] for offset in range(ending.records)]
    dead = set(ending.dead)
    unseen = lost = 0
    for offset, record in enumerate(found):
        if record.accepts or offset in dead:
            continue
        if record.handled and (record.may_be_accepted or record.was_last_with(ending.killed)):
            unseen += 1
        else:
            lost += 1
    return Verdict(
        handled=sum(bool(record.handled) for record in found),
        handled_again=sum(max(0, len(record.handled) - 1) for record in found),
        accepted=sum(bool(record.accepts) for record in found),
        accepted_unseen=unseen,
        dead_lettered=len(dead),
        lost=lost + sum(not record.handled for record in found if record.accepts),
        accepted_twice=sum(len({each.lock for each in record.accepts}) > 1 for record in found),
        dead_lettered_twice=len(ending.dead) - len(dead),
        accepted_and_dead_lettered=sum(bool(records[offset].accepts) for offset in dead),
        came_after_acceptance=sum(record.came_after_acceptance for record in found),
        locked_by_two=sum(record.is_locked_by_two for record in found),
    )


def _by_offset(facts: Iterable[Fact]) -> dict[int, _Record]:
    records: dict[int, _Record] = defaultdict(_Record)
    for fact in facts:
        if isinstance(fact, Handled):
            records[fact.offset].handled.append(fact)
        elif isinstance(fact, Took | Acknowledged):
            for start, end in fact.ranges:
                for offset in range(start, end):
                    _note(records[offset], fact)
    return records


def _note(record: _Record, fact: Took | Acknowledged) -> None:
    if isinstance(fact, Took):
        record.takes.append(fact)
    elif fact.verb in LETS_GO:
        record.let_go.append(fact)
    elif fact.verb == _ACCEPT and fact.result == _OK:
        record.accepts.append(fact)
    elif fact.verb == _ACCEPT:
        record.may_be_accepted |= fact.result != "LOCK_LOST"
