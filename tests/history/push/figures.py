"""How much each subscription of a history has delivered."""

from dataclasses import dataclass

from tests.history.push.facts import SubscriptionFacts


@dataclass(frozen=True, slots=True, kw_only=True)
class PushFigures:
    """Distinct records that were handled or copied, and that were buried.

    `repeats` counts the times that a record was handled again, and `failures` the invocations that failed, or had no
    answer.
    """

    records: int
    buried: int
    repeats: int
    failures: int


def figures_of(facts: SubscriptionFacts) -> PushFigures:
    """Count what the facts tell."""
    invocations = [(where, each) for where, found in facts.invocations.items() for each in found]
    handled = [(where, offset) for where, each in invocations if each.is_answered for offset, _ in each.records]
    copies = sum(len(found) for found in facts.copies.values())
    return PushFigures(
        records=len({*handled}) + copies,
        buried=len(facts.letters),
        repeats=len(handled) - len({*handled}),
        failures=len({each.line for _, each in invocations if not each.is_answered}),
    )
