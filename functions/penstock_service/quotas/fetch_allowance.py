"""The quotas of a call that reads records: taken before the read, and settled by the bytes that it answers."""

from collections.abc import Iterable
from dataclasses import dataclass

from penstock_core.quotas.quota import Subject
from penstock_service.instance.instance import Instance
from penstock_service.quotas.admit import Spender, admit_fetch, spend_fetched
from penstock_service.quotas.spenders import principal_spender, topic_spenders


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchAllowance:
    """What a call may answer, and the quotas that pay for it."""

    max_bytes: int
    spenders: tuple[Spender, ...]

    def settle(self, instance: Instance, fetched: dict[str, int]) -> None:
        """Spends the bytes that were answered, by topic. Sends no call."""
        total = sum(fetched.values())
        for spender in self.spenders:
            size = total if spender.subject is Subject.PRINCIPAL else fetched.get(spender.name, 0)
            spend_fetched(instance, spender, size)


def allow_fetch(instance: Instance, principal: str, topics: Iterable[str], max_bytes: int) -> FetchAllowance:
    """Takes one call of the quotas of the principal and of each topic. Raises THROTTLED if one of them is spent.

    Costs what `take_share` costs for each quota, and nothing without quotas.
    """
    spenders = (principal_spender(principal), *topic_spenders(instance, topics))
    for spender in spenders:
        max_bytes = admit_fetch(instance, spender, max_bytes)
    return FetchAllowance(max_bytes=max_bytes, spenders=spenders)
