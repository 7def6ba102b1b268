"""The port of access rules. `penstock_service.ports` says what all methods raise."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from penstock_core.acls.rule_book import RuleBook


class AclStore(Protocol):
    """All access rules of a stage, as one value. Reads are consistent."""

    def revision(self) -> str:
        """The revision of the rules; NO_REVISION if there were never any. One read of a small item."""

    def get(self) -> RuleBook:
        """All rules, of one revision. One read."""

    def change(self, seen: str, book: RuleBook) -> None:
        """Stores `book` in place of the rules of the revision `seen`.

        Raises CONCURRENT_UPDATE if the stored rules have another one, and TOO_MANY_ACLS if the rules do not fit into an
        item. One transaction, sent once.
        """
