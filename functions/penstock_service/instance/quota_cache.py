"""The quotas of the stage, remembered between requests, so that a warm request reads none.

Remembered quotas may be up to `TTL_MS` old: a change takes so long until all instances go by it. If they cannot be
read, the instance goes by those that it remembers, and without any by none: a trouble of ours refuses no request. But
it refuses creations then, since nothing would ever take back one too many.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.quotas.quota import DEFAULT, Count, Quota, Rate, Subject, merged, merged_counts
from penstock_service.instance.telemetry import Telemetry
from penstock_service.instance.update_window import Moment
from penstock_service.ports.runtime import Clock

if TYPE_CHECKING:
    from penstock_service.ports.access import QuotaStore

TTL_MS = 30_000


class QuotaCache:
    """A cache over a QuotaStore, at most `QUOTAS_MAX` quotas. Each function instance has one."""

    def __init__(self, quotas: QuotaStore, clock: Clock, telemetry: Telemetry) -> None:
        self._store = quotas
        self._clock = clock
        self._telemetry = telemetry
        self._asked: Moment | None = None
        self._is_known = False  # they were read once
        self._quotas: Mapping[tuple[Subject, str], Quota] = {}
        self._subjects: frozenset[Subject] = frozenset()

    def rate_of(self, subject: Subject, name: str, rate: Rate) -> int | None:
        """The rate that holds for the principal or topic, None without one. One query if the memory is old."""
        if not self.has_quotas(subject):
            return None
        return merged(self._quotas.get((subject, DEFAULT)), self._quotas.get((subject, name)), rate)

    def counts_of(self, principal: str) -> Mapping[Count, int]:
        """The limits of what the principal may create, without those that are missing. One query as `rate_of`.

        Raises STORAGE_UNAVAILABLE if the instance does not know the quotas and cannot read them.
        """
        has_quotas = self.has_quotas(Subject.PRINCIPAL)
        if not self._is_known:
            self.forget()
            raise PenstockError(
                ErrorCode.STORAGE_UNAVAILABLE,
                "the quotas cannot be read now, so nothing is created: try again",
            )
        if not has_quotas:
            return {}
        default, own = ((Subject.PRINCIPAL, name) for name in (DEFAULT, principal))
        return merged_counts(self._quotas.get(default), self._quotas.get(own))

    def has_quotas(self, subject: Subject) -> bool:
        """True if some principal, or some topic, has a quota. One query if the memory is old."""
        if self._asked is None or self._asked.age_ms(self._clock) >= TTL_MS:
            self._read()
        return subject in self._subjects

    def forget(self) -> None:
        """Makes the next `rate_of` read."""
        self._asked = None

    def _read(self) -> None:
        # The time before the read: the quotas that it shows may be as old as that.
        asked = Moment.now(self._clock)
        try:
            found = self._store.list()
        except PenstockError as error:
            self._telemetry.log("quotas_unread", error=error.code.name)
        else:
            self._quotas = {(quota.subject, quota.name): quota for quota in found}
            self._subjects = frozenset(quota.subject for quota in found)
            self._is_known = True
        self._asked = asked
