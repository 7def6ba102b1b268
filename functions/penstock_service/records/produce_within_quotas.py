"""Produce within the quotas of the caller and of the topics: what is over one is refused before anything is stored."""

from collections import Counter
from collections.abc import Sequence

from penstock_core.errors import PenstockError
from penstock_core.outcomes import Outcome, Outcomes
from penstock_core.quotas.quota import Rate, Subject
from penstock_core.zones.quorum import Acks
from penstock_service.instance.instance import Instance
from penstock_service.quotas.admit import admit, give_back
from penstock_service.quotas.count_throttled import count_throttled
from penstock_service.quotas.spenders import principal_spender, topic_spender
from penstock_service.records.produce import ProduceEntry
from penstock_service.records.produce_or_schedule import Produced, produce_or_schedule


def produce_within_quotas(
    instance: Instance, principal: str, entries: Sequence[ProduceEntry], acks: Acks
) -> Outcomes[Produced]:
    """One result per entry, in order. Entries of a topic over its quota fail alone, with THROTTLED.

    Raises THROTTLED if the principal is over its quota, or all entries' topics are. Costs what `take_share` costs for
    each quota, and what `produce_or_schedule` costs.
    """
    refused = admit_produce(instance, principal, entries)
    if not refused:
        return produce_or_schedule(instance, entries, acks)
    if len(refused) == len(entries):
        raise refused[0]
    passed = [index for index in range(len(entries)) if index not in refused]
    results: dict[int, Outcome[Produced]] = {**refused}
    done = produce_or_schedule(instance, [entries[index] for index in passed], acks)
    results.update(zip(passed, done, strict=True))
    return Outcomes([results[index] for index in range(len(entries))])


def admit_produce(instance: Instance, principal: str, entries: Sequence[ProduceEntry]) -> dict[int, PenstockError]:
    """Takes the entries of the quotas. Gives the errors of those whose topics are over theirs, by their places.

    The principal gets back what refused entries would have spent. Raises THROTTLED if it is over its quota itself.
    """
    caller, sizes = principal_spender(principal), _sizes(entries)
    try:
        admit(instance, caller, _produce_of(sizes.total()))
    except PenstockError as spent:
        count_throttled(instance, [entry.topic for entry in entries], spent)
        raise
    if not instance.quota_cache.has_quotas(Subject.TOPIC):
        return {}
    refused = {name: error for name, size in sizes.items() if (error := _refusal(instance, name, size)) is not None}
    if refused:
        left_out = sum(sizes[name] for name in refused)
        is_all = len(refused) == len(sizes)
        give_back(instance, caller, {Rate.PRODUCE_REQUESTS: int(is_all), Rate.PRODUCE_BYTES: left_out})
    for name, refusal in refused.items():
        count_throttled(instance, [entry.topic for entry in entries if entry.topic == name], refusal)
    return {index: refused[entry.topic] for index, entry in enumerate(entries) if entry.topic in refused}


def admit_whole(instance: Instance, principal: str, entries: Sequence[ProduceEntry]) -> None:
    """Takes the entries of the quotas, all or none. Raises THROTTLED for the first that is spent."""
    sizes = _sizes(entries)
    demands = [(principal_spender(principal), sizes.total())]
    if instance.quota_cache.has_quotas(Subject.TOPIC):
        found = [(topic_spender(instance, name), size) for name, size in sizes.items()]
        demands += [(spender, size) for spender, size in found if spender is not None]
    for place, (spender, size) in enumerate(demands):
        try:
            admit(instance, spender, _produce_of(size))
        except PenstockError as error:
            for before, taken in demands[:place]:
                give_back(instance, before, _produce_of(taken))
            count_throttled(instance, [entry.topic for entry in entries], error)
            raise


def _sizes(entries: Sequence[ProduceEntry]) -> Counter[str]:
    sizes: Counter[str] = Counter()
    for entry in entries:
        sizes[entry.topic] += len(entry.data)
    return sizes


def _produce_of(size: int) -> dict[Rate, int]:
    return {Rate.PRODUCE_REQUESTS: 1, Rate.PRODUCE_BYTES: size}


def _refusal(instance: Instance, topic: str, size: int) -> PenstockError | None:
    spender = topic_spender(instance, topic)
    if spender is None:
        return None
    try:
        admit(instance, spender, _produce_of(size))
    except PenstockError as error:
        return error
    return None
