"""The quotas of a call that reads records: taken before the read, and settled by the bytes that it spends."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from penstock_core.errors import PenstockError
from penstock_core.quotas.quota import Subject
from penstock_service.instance.instance import Instance
from penstock_service.quotas.admit import Spender, admit_fetch, give_back_fetch, spend_fetched
from penstock_service.quotas.count_throttled import count_throttled
from penstock_service.quotas.spenders import principal_spender, topic_spenders


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchAllowance:
    """The bytes that a call may answer, the quotas that pay for it, and the errors of topics over their quotas."""

    max_bytes: int
    spenders: tuple[Spender, ...]
    refused: Mapping[str, PenstockError]

    def settle(self, instance: Instance, fetched: Mapping[str, int]) -> None:
        """Spends the bytes that were read for the call, by topic. Sends no call."""
        total = sum(fetched.values())
        for spender in self.spenders:
            size = total if spender.subject is Subject.PRINCIPAL else fetched.get(spender.name, 0)
            spend_fetched(instance, spender, size)


def allow_fetch(instance: Instance, principal: str, topics: Iterable[str], max_bytes: int) -> FetchAllowance:
    """Takes one call of the quotas of the principal and of each topic. A topic over its quota is refused alone.

    Costs what `take_share` costs for each quota, and nothing without quotas. Raises THROTTLED if the principal is over
    its quota, or all topics are: nothing is taken then.
    """
    asked = [*topics]
    names = list(dict.fromkeys(asked))
    caller = principal_spender(principal)
    try:
        max_bytes = admit_fetch(instance, caller, max_bytes)
    except PenstockError as error:
        count_throttled(instance, asked, error)
        raise
    spenders, refused = [caller], dict[str, PenstockError]()
    for spender in topic_spenders(instance, names):
        try:
            max_bytes = admit_fetch(instance, spender, max_bytes)
        except PenstockError as error:
            refused[spender.name] = error
            count_throttled(instance, [each for each in asked if each == spender.name], error)
        else:
            spenders.append(spender)
    if refused and len(refused) == len(names):
        give_back_fetch(instance, caller)
        raise next(iter(refused.values()))
    return FetchAllowance(max_bytes=max_bytes, spenders=tuple(spenders), refused=refused)
