"""Produce within the quotas of the caller and of the topics: what is over one is refused before anything is stored."""

from collections import Counter
from collections.abc import Sequence

from penstock_core.errors import PenstockError
from penstock_core.outcomes import Outcome, Outcomes
from penstock_core.quotas.quota import Rate, Subject
from penstock_core.zones.quorum import Acks
from penstock_service.instance.instance import Instance
from penstock_service.quotas.admit import admit
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

    Raises THROTTLED if the principal is over its quota.
    """
    total = sum(len(entry.data) for entry in entries)
    admit(instance, principal_spender(principal), {Rate.PRODUCE_REQUESTS: 1, Rate.PRODUCE_BYTES: total})
    if not instance.quota_cache.has_quotas(Subject.TOPIC):
        return {}
    sizes: Counter[str] = Counter()
    for entry in entries:
        sizes[entry.topic] += len(entry.data)
    refused = {name: error for name, size in sizes.items() if (error := _refusal(instance, name, size)) is not None}
    return {index: refused[entry.topic] for index, entry in enumerate(entries) if entry.topic in refused}


def _refusal(instance: Instance, topic: str, size: int) -> PenstockError | None:
    spender = topic_spender(instance, topic)
    if spender is None:
        return None
    try:
        admit(instance, spender, {Rate.PRODUCE_REQUESTS: 1, Rate.PRODUCE_BYTES: size})
    except PenstockError as error:
        return error
    return None
