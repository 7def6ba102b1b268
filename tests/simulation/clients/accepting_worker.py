"""A worker of a share group that accepts in transactions: its outputs, an offset, and its acceptances in one commit.

Another worker may have its transactional id, and fence it. Its locks may end before the commit. The commit is tried
again after a lost answer, and the network may bring a copy of it much later.
"""

from collections.abc import Callable, Sequence
from functools import partial

from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.ids import NONCE_BYTES, Nonce, TransactionalId
from penstock_core.share.acknowledge import AckType
from penstock_core.share.record_set import RecordSet
from penstock_core.transaction import Begin, TransactionalProducer, TransactionState
from penstock_core.zones.zone_state import Acks
from penstock_service.instance.instance import Instance
from penstock_service.records.produce import ProduceEntry
from penstock_service.share.acknowledge import AckEntry
from penstock_service.transactions.begin_transactions import TransactionPart, begin_transactions
from penstock_service.transactions.commit_transaction import OffsetEntry, commit_transaction, stage
from penstock_service.transactions.share_commits import Acceptance
from tests.simulation.clients.share_worker import Holding, ShareWorker
from tests.simulation.oracle.share_outputs import ShareOutputs
from tests.simulation.service.simulation import Simulation
from tests.support.service import batch

_TRIES_MAX = 6
_DOUBLED_RATE = 0.15


class AcceptingWorker:
    """Works with one transactional id. `worker` acquires for it, and `outputs` judges what it commits."""

    def __init__(
        self,
        simulation: Simulation,
        worker: ShareWorker,
        outputs: ShareOutputs,
        transactional_id: TransactionalId,
        output_topic: str,
    ) -> None:
        self._simulation = simulation
        self._random = simulation.scheduler.random
        self._worker = worker
        self._outputs = outputs
        self._id = transactional_id
        self._output_topic = output_topic
        self._work_ms = self._random.choice([(1.0, 20.0), (300.0, 6_000.0)])
        self._first = 0
        outputs.ids.add(transactional_id)

    def run(self, rounds: int) -> None:
        """Acquire and commit so many times, or until it is fenced."""
        state = self._begin()
        for _ in range(rounds):
            if state is None:
                return
            acquired = self._worker.acquire()
            held = [] if acquired is None else self._worker.told(acquired)
            self._simulation.scheduler.pause(self._random.choice(self._work_ms))
            if held:
                state = self._commit(state, held)

    def _begin(self) -> TransactionState | None:
        begin = Begin(nonce=self._nonce())

        def run(instance: Instance) -> TransactionState:
            return begin_transactions(instance, self._id, begin)

        for _ in range(_TRIES_MAX):
            try:
                state = self._simulation.call(run, is_read=False)
                self._first = self._outputs.first_numbers.setdefault(self._id, state.number + 1)
                return state
            except PenstockError as error:
                if error.code is ErrorCode.PRODUCER_FENCED:
                    return None
                self._simulation.scheduler.pause(100.0)
        return None

    def _commit(self, state: TransactionState, held: Sequence[Holding]) -> TransactionState | None:
        """Commit one transaction. Returns the state for the next one, None to end."""
        entries = [self._worker.entry(each, AckType.ACCEPT, None) for each in held]
        self._worker.sends(entries)
        commit, nonce = self._committing(state, held, entries)
        is_sure = not self._double(commit)
        for _ in range(_TRIES_MAX):
            try:
                self._simulation.call(commit, is_read=False)
            except PenstockError as error:
                is_sure &= not error.maybe_applied
                if error.code is ErrorCode.LOCK_LOST and is_sure:
                    self._outputs.check_answer(nonce, str(error))
                    self._simulation.count("share transaction lost its lock")
                    return state
                if error.code in (ErrorCode.LOCK_LOST, ErrorCode.OUT_OF_ORDER_SEQUENCE):
                    return self._begin()
                if error.code is ErrorCode.PRODUCER_FENCED:
                    self._simulation.count("share transaction fenced")
                    return self._begin() if self._random.random() < 0.5 else None
                self._simulation.scheduler.pause(self._random.choice([10.0, 500.0]))
                continue
            self._outputs.check_answer(nonce, None)
            self._simulation.count("share transaction committed")
            return TransactionState(producer_id=state.producer_id, epoch=state.epoch, number=state.number + 1)
        return self._begin()

    def _committing(
        self, state: TransactionState, held: Sequence[Holding], entries: Sequence[AckEntry]
    ) -> tuple[Callable[[Instance], object], Nonce]:
        """The calls that commit an output of each record, and the nonce. Some stage half of the outputs."""
        values = [f"{each.key.partition}/{offset}" for each in held for offset in RecordSet(each.ranges).offsets()]
        nonce, number = self._nonce(), state.number + 1
        producer = TransactionalProducer(transactional_id=self._id, epoch=state.epoch)

        def part(some: Sequence[str]) -> TransactionPart:
            entry = ProduceEntry(topic=self._output_topic, partition=0, data=batch(*some)) if some else None
            return TransactionPart(
                producer=producer,
                number=number,
                entries=[entry] if entry is not None else [],
                acks=Acks.QUORUM,
                nonce=nonce,
            )

        middle = len(values) // 2 if self._random.random() < 0.3 else 0
        staged, last = part(values[:middle]), part(values[middle:])
        offset = OffsetEntry(group=self._id, topic=self._output_topic, partition=0, offset=number - self._first + 1)
        acceptances = [Acceptance(group=self._worker.group, entry=each) for each in entries]

        def commit(instance: Instance) -> object:
            if middle:
                stage(instance, staged, 0)
            return commit_transaction(instance, last, [offset], 1 if middle else 0, acceptances)

        return commit, nonce

    def _double(self, commit: Callable[[Instance], object]) -> bool:
        """Perhaps let the network bring the commit once more, for nobody."""
        if self._random.random() >= _DOUBLED_RATE:
            return False
        delay_ms = self._random.choice([0.0, 100.0, 3_000.0, 30_000.0])
        self._simulation.scheduler.spawn(f"{self._id} again", partial(self._again, commit), delay_ms=delay_ms)
        return True

    def _again(self, commit: Callable[[Instance], object]) -> None:
        self._simulation.attempt("not committed again", commit)

    def _nonce(self) -> Nonce:
        return Nonce(self._random.randbytes(NONCE_BYTES))
