"""All rules of a stage as they are stored, and changes to them.

A revision is random, not a count: a table that was restored from a backup never has the revision of other rules.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from penstock_core.acls.rule import Rule
from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.limits import ACL_RULES_MAX

REVISION_BYTES = 8
NO_REVISION = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleBook:
    """The rules, and the revision that tells whether they have changed; NO_REVISION before the first change."""

    revision: str = NO_REVISION
    rules: frozenset[Rule] = frozenset()


EMPTY_BOOK = RuleBook()


def changed(book: RuleBook, added: Iterable[Rule], removed: Iterable[Rule], entropy: bytes) -> RuleBook:
    """The book with some rules added and others removed; the same book if that changes nothing.

    `entropy` are `REVISION_BYTES` random bytes. Raises TOO_MANY_ACLS.
    """
    rules = (book.rules - frozenset(removed)) | frozenset(added)
    if rules == book.rules:
        return book
    if len(rules) > ACL_RULES_MAX and len(rules) > len(book.rules):
        raise PenstockError(
            ErrorCode.TOO_MANY_ACLS,
            f"{len(rules)} rules: {ACL_RULES_MAX} at most. Remove some, or name resources by their beginning and a *",
            limit=ACL_RULES_MAX,
        )
    return RuleBook(revision=entropy.hex(), rules=rules)
