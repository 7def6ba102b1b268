"""The epochs of a transactional producer, without I/O: how it begins, and how it learns what happened to a commit.

A producer begins anew only from its own last epoch. If another instance has begun meanwhile, the service fences the
producer for good, and leaves the other instance alone (docs/protocol/transactions).
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from penstock.errors import ConflictError
from penstock.http.http_message import json_request
from penstock.http.steps import Calls
from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.records.record_batch import Compression


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionSettings:
    """`request_bytes` bounds one request, before compression. `acks` is "quorum" or "all"."""

    transactional_id: str
    acks: str
    batch_bytes: int
    request_bytes: int
    compression: Compression


class TransactionalState:
    """The epoch of the producer, and the number of its next transaction. `new_nonce` draws 32 hexadecimal digits.

    `last` is the producer id and epoch of an instance that began elsewhere and goes on here.

    `epoch` is None before the first begin, and after a request that the service may have carried out or not. `begin`
    then begins another epoch.
    """

    def __init__(
        self, settings: TransactionSettings, new_nonce: Callable[[], str], last: tuple[int, int] | None = None
    ) -> None:
        self.settings = settings
        self.new_nonce = new_nonce
        self.epoch: int | None = None
        self.number = 0
        self.is_open = False
        self._last: Mapping[str, int] = {} if last is None else {"producer_id": last[0], "epoch": last[1]}
        self._begin_nonce = ""  # of a begin that has no answer yet
        self._fenced: PenstockError | None = None

    @property
    def producer_id(self) -> int:
        """The producer id of the last epoch, -1 before the first."""
        return self._last.get("producer_id", -1)

    def begin(self) -> Calls[None]:
        """Make sure of an epoch, and open a transaction. One request, the first time and after a failure."""
        if self.is_open:
            raise ConflictError(
                ErrorCode.CONCURRENT_UPDATE,
                f"producer {self.settings.transactional_id!r} has a transaction open: end it before the next",
            )
        if self._fenced is not None:
            raise self._fenced
        self.is_open = True
        try:
            if self.epoch is None:
                yield from self.begin_epoch()
        except BaseException:
            self.is_open = False
            raise

    def failed(self, error: PenstockError) -> None:
        """A request of this epoch failed, and the producer does not know what the service stored of it."""
        self.epoch = None
        if error.code is ErrorCode.PRODUCER_FENCED:
            self._fenced = error  # for good: another instance has taken over

    def begin_epoch(self) -> Calls[str]:
        """Fence each earlier instance with this id, and return the nonce of the last committed transaction.

        A transaction that is not committed by now never will be. If the answer of an earlier begin is missing, this
        repeats that begin. Raises FencedError if another instance has begun since this one's last epoch.
        """
        self._begin_nonce = self._begin_nonce or self.new_nonce()
        body = {"transactional_id": self.settings.transactional_id, "nonce": self._begin_nonce, **self._last}
        try:
            answer = yield json_request("POST", "/v1/producers", body=body, is_repeatable=True)
        except PenstockError as error:
            self.failed(error)
            raise
        self._begin_nonce = ""
        self.epoch, self.number = int(answer["epoch"]), int(answer["transaction"])
        self._last = {"producer_id": int(answer["producer_id"]), "epoch": self.epoch}
        return str(answer["last_nonce"])


def learn_outcome(state: TransactionalState, nonce: str, number: int, failure: PenstockError) -> Calls[None]:
    """Return if the transaction was committed, although its commit has failed. Else raise why not.

    The error says `maybe_applied` if nobody knows: it is that of the commit then, or PRODUCER_FENCED. One begin, unless
    the commit was fenced.
    """
    if failure.code is not ErrorCode.PRODUCER_FENCED:
        try:
            last_nonce = yield from state.begin_epoch()
        except PenstockError as error:
            if error.code is not ErrorCode.PRODUCER_FENCED:
                raise failure from None
            error.maybe_applied = True
            error.__cause__ = failure
            failure = error
        else:
            if last_nonce != nonce:
                failure.maybe_applied = False  # and it never will be
                raise failure
            return
    # Another instance has begun. Transactions of this one's epochs are committed by now, or never will be.
    if failure.facts.get("last_nonce") == nonce:
        return
    last_number = failure.facts.get("last_transaction")
    if last_number is not None and int(last_number) <= number:
        failure.maybe_applied = False  # each number is committed once
    raise failure
