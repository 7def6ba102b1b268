"""The acknowledgements in a request, checked: ranges of offsets with one type, or with a type for each offset.

| type | Kafka's word | to the service                                                      |
|------|--------------|---------------------------------------------------------------------|
| 0    | GAP          | accept: the offset has no record, because compaction has removed it |
| 1    | ACCEPT       | accept                                                              |
| 2    | RELEASE      | release: the record comes again after the group's pause             |
| 3    | REJECT       | reject: the record goes to the dead-letter topic                    |
| 4    | RENEW        | renew: the lock lasts anew                                          |
"""

from collections.abc import Sequence

from penstock.share.acknowledgements import ACCEPT, RELEASE, Verb, Wish, reject
from penstock_kafka.dispatch.api import Request
from penstock_kafka.errors import KafkaError, RequestRefused
from penstock_kafka.share.clients import SharePlace
from penstock_kafka.share.held_locks import WishedRange

_WISHES = (ACCEPT, ACCEPT, RELEASE, reject("rejected by a share consumer of Kafka"), Wish(Verb.RENEW))
_RENEW = 4


def acknowledgements_of(request: Request) -> dict[SharePlace, list[WishedRange] | RequestRefused]:
    """The wishes by partition; a refusal for a partition whose batches are malformed."""
    renews = getattr(request, "is_renew_ack", False)
    found: dict[SharePlace, list[WishedRange] | RequestRefused] = {}
    for topic in request.topics:
        for partition in topic.partitions:
            if partition.acknowledgement_batches and topic.topic_id is not None:
                place = SharePlace(topic.topic_id, partition.partition_index)
                try:
                    found[place] = _ranges(partition.acknowledgement_batches, renews=renews)
                except RequestRefused as refused:
                    found[place] = refused
    return found


def _ranges(batches: Sequence[Request], *, renews: bool) -> list[WishedRange]:
    """Ranges of equal wishes, in order. Raises RequestRefused for what Kafka refuses, too."""
    ranges: list[WishedRange] = []
    previous = -1
    for each in batches:
        types, count = each.acknowledge_types, each.last_offset - each.first_offset + 1
        if count < 1 or each.first_offset <= previous:
            raise _malformed(f"offsets {each.first_offset} to {each.last_offset} behind {previous}: ranges must rise")
        if len(types) not in (1, count):
            raise _malformed(f"{len(types)} types for {count} offsets: give one, or one for each")
        if any(not 0 <= kind < len(_WISHES) or (kind == _RENEW and not renews) for kind in types):
            raise _malformed(f"types {sorted(set(types))}: use 0 to 3, and 4 in a request that renews")
        previous = each.last_offset
        if len(types) == 1:
            ranges.append(WishedRange(each.first_offset, each.last_offset + 1, _WISHES[types[0]]))
        else:
            ranges += _runs(each.first_offset, types)
    return ranges


def _runs(first: int, types: Sequence[int]) -> list[WishedRange]:
    runs: list[WishedRange] = []
    for offset, kind in enumerate(types, first):
        wish = _WISHES[kind]
        if runs and runs[-1].wish == wish:
            runs[-1] = runs[-1]._replace(end=offset + 1)
        else:
            runs.append(WishedRange(offset, offset + 1, wish))
    return runs


def _malformed(message: str) -> RequestRefused:
    return RequestRefused(KafkaError.invalid_request, message)
