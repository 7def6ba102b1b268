"""One request of a transaction."""

from collections.abc import Sequence
from dataclasses import dataclass

from penstock_core.ids import NO_NONCE, Nonce
from penstock_core.transaction import TransactionalProducer
from penstock_core.zones.quorum import Acks
from penstock_service.records.produce import ProduceEntry


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionPart:
    """One request of transaction `number` of the producer: its entries, to be put as `acks` asks for.

    All requests of one transaction carry its `nonce`. Groups that its commit makes count as those of `principal`.
    """

    producer: TransactionalProducer
    number: int
    entries: Sequence[ProduceEntry]
    acks: Acks
    nonce: Nonce = NO_NONCE
    principal: str = ""
