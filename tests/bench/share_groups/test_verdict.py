"""The judgement of the ledgers that workers of a share group leave, also of those that were killed."""

from dataclasses import replace

import pytest

from bench.share_groups.facts import Acknowledged, Fact, Handled, Ranges, Took
from bench.share_groups.verdict import Ending, Verdict, judge

SECOND_NS = 1_000_000_000
LOCK_S = 5


def took(worker: str, lock: str, ranges: Ranges, *, at_s: float, deliveries: int = 1) -> Took:
    at_ns = int(at_s * SECOND_NS)
    return Took(
        worker=worker,
        lock=lock,
        ranges=ranges,
        deliveries=deliveries,
        sent_ns=at_ns,
        answered_ns=at_ns + 1_000,
        ends_ns=at_ns + LOCK_S * SECOND_NS,
    )


def handled(worker: str, lock: str, *offsets: int, deliveries: int = 1) -> list[Fact]:
    return [Handled(worker=worker, lock=lock, offset=each, deliveries=deliveries) for each in offsets]


def told(worker: str, lock: str, ranges: Ranges, *, at_s: float, verb: str = "accept", result: str = "ok") -> Fact:
    at_ns = int(at_s * SECOND_NS)
    return Acknowledged(
        worker=worker,
        lock=lock,
        ranges=ranges,
        verb=verb,
        result=result,
        sent_ns=at_ns,
        answered_ns=at_ns + 1_000,
    )


FIRST: list[Fact] = [took("a", "l1", ((0, 2),), at_s=0), *handled("a", "l1", 0, 1)]
ACCEPTED = told("a", "l1", ((0, 2),), at_s=1)
AGAIN = took("b", "l2", ((1, 2),), at_s=LOCK_S + 1, deliveries=2)


def verdict(*facts: Fact, dead: tuple[int, ...] = (), killed: tuple[str, ...] = ()) -> Verdict:
    return judge(facts, Ending(records=2, dead=dead, killed=frozenset(killed)))


def test_verdict_is_right_when_each_record_was_accepted_once() -> None:
    found = verdict(*FIRST, ACCEPTED)
    assert found.is_right
    assert (found.handled, found.handled_again, found.accepted) == (2, 0, 2)


def test_record_is_lost_when_no_worker_had_it() -> None:
    found = verdict(took("a", "l1", ((0, 1),), at_s=0), *handled("a", "l1", 0), told("a", "l1", ((0, 1),), at_s=1))
    assert (found.lost, found.is_right) == (1, False)


def test_record_is_lost_when_it_was_accepted_and_no_handler_had_it() -> None:
    found = verdict(FIRST[0], *handled("a", "l1", 0), ACCEPTED)
    assert (found.lost, found.is_right) == (1, False)


def test_record_without_an_answer_counts_when_its_last_worker_was_killed() -> None:
    facts = [*FIRST, told("a", "l1", ((0, 1),), at_s=1)]
    found = verdict(*facts, killed=("a",))
    assert (found.accepted, found.accepted_unseen, found.is_right) == (1, 1, True)
    assert verdict(*facts).lost == 1
    assert verdict(*facts, killed=("b",)).lost == 1


def test_record_counts_when_a_repeat_of_its_acceptance_finds_it_done() -> None:
    found = verdict(*FIRST, told("a", "l1", ((0, 2),), at_s=1, result="done"))
    assert (found.accepted_unseen, found.is_right) == (2, True)
    assert verdict(*FIRST, told("a", "l1", ((0, 2),), at_s=1, result="LOCK_LOST")).lost == 2


def test_record_may_come_again_when_its_lock_has_ended() -> None:
    again = [AGAIN, *handled("b", "l2", 1, deliveries=2), told("b", "l2", ((1, 2),), at_s=LOCK_S + 2)]
    found = verdict(*FIRST, told("a", "l1", ((0, 1),), at_s=1), *again)
    assert (found.handled_again, found.accepted, found.is_right) == (1, 2, True)


@pytest.mark.parametrize("deliveries", [1, 2])
def test_record_must_not_come_again_after_the_answer_to_its_acceptance(deliveries: int) -> None:
    found = verdict(*FIRST, ACCEPTED, replace(AGAIN, deliveries=deliveries))
    assert (found.came_after_acceptance, found.is_right) == (1, False)


def test_record_must_not_be_accepted_under_two_locks() -> None:
    found = verdict(*FIRST, ACCEPTED, AGAIN, told("b", "l2", ((1, 2),), at_s=LOCK_S + 2))
    assert (found.accepted_twice, found.is_right) == (1, False)


def test_record_must_not_be_locked_while_another_lock_holds_it() -> None:
    early = took("b", "l2", ((1, 2),), at_s=LOCK_S - 1, deliveries=2)
    ends = [*handled("b", "l2", 1), told("b", "l2", ((1, 2),), at_s=LOCK_S)]
    facts = [*FIRST, told("a", "l1", ((0, 1),), at_s=1), early, *ends]
    found = verdict(*facts)
    assert (found.locked_by_two, found.is_right) == (1, False)
    assert verdict(*facts, told("a", "l1", ((1, 2),), at_s=1, verb="release", result="sent")).is_right


def test_dead_letter_stands_for_its_record_once() -> None:
    facts = [*FIRST, told("a", "l1", ((0, 1),), at_s=1)]
    assert verdict(*facts, dead=(1,)).is_right
    assert verdict(*facts, dead=(1, 1)).dead_lettered_twice == 1
    assert verdict(*facts, dead=(0, 1)).accepted_and_dead_lettered == 1
