"""One transaction while it is open: its partitions, the batches that wait for a request, and its offsets. No I/O."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from penstock.http.http_message import BATCHES_TYPE, HttpRequest
from penstock.model import TopicPartition
from penstock_core.errors import PenstockError
from penstock_core.limits import BATCH_BYTES_MAX, KAFKA_TRANSACTION_METADATA_BYTES_MAX, TRANSACTION_PARTS_MAX
from penstock_core.records import frame
from penstock_kafka.errors import KafkaError, RequestRefused
from penstock_kafka.groups.members.member import KafkaMember
from penstock_kafka.transactions.epochs.sequences import Place, PlainBatch
from penstock_kafka.transactions.refusals import abortable

OffsetPlace = tuple[str, TopicPartition]  # a group and a partition


@dataclass(frozen=True, slots=True, kw_only=True)
class NotedOffset:
    """An offset that the commit carries, as the service takes it. `member` has the lease, None without one."""

    item: Mapping[str, Any]
    member: KafkaMember | None = None


@dataclass(slots=True, kw_only=True, eq=False)
class OpenTransaction:
    """Its parts carry `nonce`, `number` and the `epoch` of the service.

    `places` has each partition that was added, and the bytes that a batch for its topic may have. `is_sealed`: a stage
    of the batches that wait was sent, and may arrive late. So it takes no other batch before it is answered. `failure`
    is set once the transaction can only be aborted. `doubt` is the failure of a commit that may have been applied.
    """

    nonce: str
    number: int
    epoch: int
    started_at_ms: int
    deadline_ms: int
    places: dict[Place, int] = field(default_factory=dict)
    groups: set[str] = field(default_factory=set)
    offsets: dict[OffsetPlace, NotedOffset] = field(default_factory=dict)
    waiting: dict[Place, list[bytes]] = field(default_factory=dict)
    waiting_bytes: int = 0
    expiring: set[Place] = field(default_factory=set)  # of those that wait: a record has the header of an expiry
    is_sealed: bool = False
    stages: int = 0
    failure: RequestRefused | None = None
    doubt: PenstockError | None = None

    def add_places(self, places: Mapping[Place, int]) -> None:
        """Add partitions. Raises RequestRefused if there are too many, and adds none then."""
        self._check_parts({*self.places, *places}, {*self.offsets})
        self.places.update(places)

    def add_group(self, group: str) -> None:
        """Add a group. Raises RequestRefused if there are too many, and adds none then."""
        if group not in self.groups and len(self.groups) >= TRANSACTION_PARTS_MAX:
            raise abortable(f"a transaction over more than {TRANSACTION_PARTS_MAX} groups")
        self.groups.add(group)

    def add_offsets(self, offsets: Mapping[OffsetPlace, NotedOffset]) -> None:
        """Note offsets. Later ones take the place of earlier ones. Raises RequestRefused, and notes none then."""
        both = {**self.offsets, **offsets}
        self._check_parts({*self.places}, {*both})
        if sum(len(each.item.get("metadata", "").encode()) for each in both.values()) > (
            KAFKA_TRANSACTION_METADATA_BYTES_MAX
        ):
            raise RequestRefused(
                KafkaError.offset_metadata_too_large,
                f"more than {KAFKA_TRANSACTION_METADATA_BYTES_MAX:,} bytes of metadata in one transaction",
            )
        self.offsets = both

    def has_room(self, batch: PlainBatch) -> bool:
        """True if the batch may go with those that wait."""
        return not self.is_sealed and self.waiting_bytes + len(batch.data) <= BATCH_BYTES_MAX

    def add_batch(self, place: Place, batch: PlainBatch) -> None:
        """The batch waits for the next request."""
        self.waiting.setdefault(place, []).append(batch.data)
        if batch.may_expire:
            self.expiring.add(place)
        self.waiting_bytes += len(batch.data)

    def drop_data(self) -> None:
        """Let go the batches that wait."""
        self.waiting.clear()
        self.expiring.clear()
        self.waiting_bytes = 0
        self.is_sealed = False

    def stage_request(self, transactional_id: str) -> HttpRequest:
        """Puts the batches that wait. They stay until it is answered: the same stage again is the same batches.

        A stage that arrives late takes the place of its repeat.
        """
        self.is_sealed = True
        return self._request(transactional_id, {"stage": self.stages})

    def commit_request(self, transactional_id: str) -> HttpRequest:
        """Makes all of it visible."""
        offsets = [each.item for each in self.offsets.values()]
        return self._request(transactional_id, {"stages": self.stages, "offsets": offsets})

    @property
    def is_empty(self) -> bool:
        """True if a commit would change nothing."""
        return not (self.waiting or self.stages or self.offsets)

    def _check_parts(self, places: set[Place], offsets: set[OffsetPlace]) -> None:
        if len(places) + len(offsets) > TRANSACTION_PARTS_MAX:
            raise abortable(
                f"a transaction over {len(places)} partitions and {len(offsets)} offsets: {TRANSACTION_PARTS_MAX} "
                "together at most"
            )

    def _request(self, transactional_id: str, more: Mapping[str, object]) -> HttpRequest:
        header = {
            "transactional_id": transactional_id,
            "epoch": self.epoch,
            "transaction": self.number,
            "nonce": self.nonce,
            "acks": "quorum",
            "batches": [
                {
                    "topic": topic,
                    "partition": partition,
                    "length": sum(map(len, batches)),
                    **({"may_expire": True} if (topic, partition) in self.expiring else {}),
                }
                for (topic, partition), batches in self.waiting.items()
            ],
            **more,
        }
        body = frame.encode(header, [each for batches in self.waiting.values() for each in batches])
        headers = {"Content-Type": BATCHES_TYPE}
        return HttpRequest(method="POST", path="/v1/transactions", headers=headers, body=body, is_repeatable=True)
