"""Access rules in memory."""

import threading

from penstock_core.acls.rule_book import EMPTY_BOOK, RuleBook
from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.storage.acls_item import acl_rules_item


class MemoryAclStore:
    """AclStore: the port documents its methods."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._book = EMPTY_BOOK

    def revision(self) -> str:
        return self._book.revision

    def get(self) -> RuleBook:
        return self._book

    def change(self, seen: str, book: RuleBook) -> None:
        acl_rules_item(book)  # for its limit
        with self._lock:
            if self._book.revision != seen:
                raise PenstockError(ErrorCode.CONCURRENT_UPDATE, "another request changed the access rules: try again")
            self._book = book
