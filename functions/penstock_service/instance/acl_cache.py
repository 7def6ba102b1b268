"""The access rules, remembered between requests, so that a warm request reads none.

The rules by which an instance decides are as they were `ACL_AGE_MS_MAX` ago at the earliest. Then one read of a small
item tells whether they have changed. If that read fails, the remembered rules hold for up to `ACL_OUTAGE_MS_MAX`. After
that, and on an instance that never read any, the error of the read refuses the request.
"""

from penstock_core.acls.access import Access
from penstock_core.acls.principal import Principal
from penstock_core.acls.rule_set import RuleBook, RuleSet
from penstock_core.acls.settings import AclSettings
from penstock_core.errors import PenstockError
from penstock_core.limits import ACL_AGE_MS_MAX, ACL_OUTAGE_MS_MAX
from penstock_service.instance.update_window import Moment
from penstock_service.ports.access import AclStore
from penstock_service.ports.runtime import Clock

_PAUSE_MS = 2_000  # after a read that failed: a request must not wait for the next one to fail, too


class AclCache:
    """A cache over an AclStore. Each function instance has one."""

    def __init__(self, acls: AclStore, clock: Clock, settings: AclSettings) -> None:
        self._acls = acls
        self._clock = clock
        self._settings = settings
        self._known: tuple[Moment, RuleBook, RuleSet] | None = None
        self._failed: Moment | None = None

    @property
    def settings(self) -> AclSettings:
        """The settings that decide without rules."""
        return self._settings

    def access_of(self, principal: Principal) -> Access:
        """The rights of the principal. One read if the rules are to be looked at again, and one more if they changed.

        Raises what the store raises.
        """
        return Access(principal=principal, rules=self._rules().of(principal.name))

    def newest_access_of(self, principal: Principal) -> Access:
        """As `access_of`, by the rules as they are now. One read. If it fails, the remembered rules stay."""
        return Access(principal=principal, rules=self._load().of(principal.name))

    def forget(self) -> None:
        """Makes the next `access_of` read the rules."""
        self._known = None

    def _rules(self) -> RuleSet:
        known = self._known
        if known is not None and known[0].age_ms(self._clock) < ACL_AGE_MS_MAX:
            return known[2]
        if known is None:
            return self._load()
        if self._failed is not None and self._failed.age_ms(self._clock) < _PAUSE_MS and self._may_go_on(known[0]):
            return known[2]
        try:
            return self._look(known[1], known[2])
        except PenstockError:
            if not self._may_go_on(known[0]):
                raise
            self._failed = Moment.now(self._clock)
            return known[2]

    def _may_go_on(self, asked: Moment) -> bool:
        return asked.age_ms(self._clock) < ACL_OUTAGE_MS_MAX

    def _look(self, book: RuleBook, rules: RuleSet) -> RuleSet:
        asked = Moment.now(self._clock)
        if self._acls.revision() != book.revision:
            return self._load()
        self._known = asked, book, rules
        return rules

    def _load(self) -> RuleSet:
        asked = Moment.now(self._clock)
        book = self._acls.get()
        rules = RuleSet(book.rules, self._settings)
        self._known = asked, book, rules
        return rules
