"""One append of an idempotent producer to one partition (docs/adr/0010).

In the usual case one update, whose condition is the head's entry for the producer. It fails for a repeat, for what is
out of order, and for producers that the head does not know, or no more: those are looked up, and the update is tried
again on condition that no producer has left the head meanwhile.

```
 head knows the producer ──▶ its entry precedes ──▶ appended
                             it does not        ──▶ repeat: where it is · gap · fenced
 it does not             ──▶ evictions = 0 and first sequence 0 ──▶ appended
                             else: read producer#<id>, then append while evictions = as seen
```
"""

from dataclasses import dataclass

from penstock_broker.broker import Broker
from penstock_broker.find_ref import find_ref
from penstock_broker.maybe_applied import said_to_be_maybe_applied
from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.ids import Offset
from penstock_core.index import NEVER, Head
from penstock_core.keys import PartitionKey
from penstock_core.producer_state import ProducerSequence, Verdict, judge
from penstock_core.ref import Ref

_ATTEMPTS_MAX = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Taken:
    """Where the records are; `head` as this append left it, None if they had been appended before."""

    base_offset: Offset
    head: Head | None


def append_in_sequence(
    broker: Broker, key: PartitionKey, ref: Ref, unconfirmed_zones: int, sequence: ProducerSequence
) -> Taken:
    """Appends the ref, whose sequence this is, or finds where it was appended before.

    One update; for a producer that is new to a head which others have left, or has left it itself, two and a read; for
    a repeat, one, and a query for each 100 pages down to where it is. Raises OUT_OF_ORDER_SEQUENCE, PRODUCER_FENCED,
    DUPLICATE_SEQUENCE for a repeat that cannot be found, and what the log raises.
    """
    unlisted_since = 0 if sequence.first_sequence == 0 else NEVER
    for _ in range(_ATTEMPTS_MAX):
        is_appended, head = broker.log.append_in_sequence(key, ref, unconfirmed_zones, sequence, unlisted_since)
        if is_appended:
            return Taken(base_offset=Offset(head.next_offset - ref.offset_span), head=head)
        with said_to_be_maybe_applied():
            state = head.producers.get(sequence.producer_id)
            if state is None:
                state = broker.log.evicted_producer(key, sequence.producer_id)
            if judge(state, sequence) is Verdict.REPEATS:
                return Taken(base_offset=_find(broker, key, head, sequence), head=None)
        unlisted_since = head.evictions
    raise PenstockError(
        ErrorCode.THROTTLED,
        f"partition {key} has had so many new producers meanwhile that {_ATTEMPTS_MAX} attempts at an append failed: "
        "nothing was appended, try again",
    )


def _find(broker: Broker, key: PartitionKey, head: Head, sequence: ProducerSequence) -> Offset:
    """The offset of the sequence's first record."""
    found = find_ref(broker, key, head, lambda ref: _holds(ref, sequence))
    if found is None or found.ref.sequence is None:
        merged = broker.compaction.find_merged(key, sequence)  # looked for last: refs go there from the pages
        if merged is not None:
            return merged
        raise PenstockError(
            ErrorCode.DUPLICATE_SEQUENCE,
            f"sequences {sequence.first_sequence} to {sequence.last_sequence} of producer {sequence.producer_id} were "
            "appended before, and not again; where, is not known: they have expired, were merged long ago, or were not "
            "sent together then",
        )
    return Offset(found.base_offset + sequence.first_sequence - found.ref.sequence.first_sequence)


def _holds(ref: Ref, sequence: ProducerSequence) -> bool:
    stored = ref.sequence
    return (
        stored is not None
        and (stored.producer_id, stored.epoch) == (sequence.producer_id, sequence.epoch)
        and stored.first_sequence <= sequence.first_sequence
        and sequence.last_sequence <= stored.last_sequence
    )
