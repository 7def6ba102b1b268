"""The rules of transactions that processes with one transactional id make (G5), also when the id is forgotten."""

from typing import Any

from penstock_core.errors import PenstockError
from penstock_core.ids import TransactionalId
from penstock_core.limits import TRANSACTIONAL_ID_KEPT_MS
from penstock_core.storage.transaction_items import state_key
from penstock_core.transaction import Transaction
from penstock_service.adapters.dynamodb.driver_errors import AnsweredError
from penstock_service.groups.commit_offsets import committed_offsets
from tests.simulation.engine.time_and_chance import CLOCK_SKEW_MS, EPOCH_MS
from tests.simulation.oracle.violation import expect
from tests.simulation.service.simulation import Simulation

FORGOTTEN_MS = 120_000.0  # stands for the 90 days after which an id ends: no request travels so long


class TransactionChecks:
    """The checks of all transactions, at the effect of each call and at the end.

    A life is one run of a process: after a restart it is another instance of its producer. An id has a past for each
    time that it was forgotten: numbers go on above those of the past, and what was committed then counts.
    """

    def __init__(self, simulation: Simulation, partitions: int) -> None:
        self._simulation = simulation
        self._partitions = partitions  # that each transaction writes to
        self._epochs: dict[TransactionalId, int] = {}
        self._committed: dict[TransactionalId, list[str]] = {}  # their texts, in order
        self._begun: dict[TransactionalId, list[bytes]] = {}  # the nonces of the begins that took effect
        # The first number since an id was forgotten, and how many transactions were committed before that.
        self._firsts: dict[TransactionalId, list[tuple[int, int]]] = {}
        self._used_ms: dict[TransactionalId, float] = {}
        self.forgotten: set[str] = set()  # lives whose id was forgotten since they began
        self.told: set[str] = set()  # lives that have learnt an epoch
        self.lives: dict[bytes, str] = {}  # by nonce: the life that drew it
        self.outcomes: dict[str, bool] = {}  # by text, where its process knows: True if it is committed

    def observe(self, label: str, method: str, arguments: tuple[Any, ...], outcome: Any) -> None:
        if label != "transactions" or isinstance(outcome, PenstockError):
            return
        if method == "begin_epoch" and outcome.begins[0] in self.lives:  # else it is another workload's producer
            expect(outcome.epoch > self._epochs.get(arguments[0], -1), f"epoch {outcome.epoch} of {arguments[0]} again")
            if arguments[0] not in self._epochs:
                self._begin_first(arguments[0], outcome.number + 1)
            self._epochs[arguments[0]] = outcome.epoch
            self._begin(arguments[0], outcome.begins[0])
            self._use(arguments[0])
        elif method == "put_stage" and arguments[0].transactional_id in self._epochs:
            self._used_ms[arguments[0].transactional_id] = self._simulation.scheduler.now_ms
        elif method == "commit" and outcome and arguments[0].producer.transactional_id in self._epochs:
            self._commit(arguments[0])
            self._use(arguments[0].producer.transactional_id)

    def _use(self, transactional_id: TransactionalId) -> None:
        """Each begin and commit puts the id's end off."""
        self._used_ms[transactional_id] = now_ms = self._simulation.scheduler.now_ms
        stored = self._simulation.stores.transactions.get(transactional_id)
        kept_ms = ((stored and stored.expires_at_s) or 0) * 1_000 - EPOCH_MS - now_ms
        late_ms = TRANSACTIONAL_ID_KEPT_MS - kept_ms  # the write may be late, and the instance's clock wrong
        expect(-CLOCK_SKEW_MS <= late_ms < FORGOTTEN_MS, f"{transactional_id} ends {late_ms} ms too early")

    def forget_now_and_then(self) -> None:
        """As DynamoDB's TTL: an id that has ended goes sometime, and until then it counts."""
        scheduler, tables = self._simulation.scheduler, self._simulation.storage.tables.tables
        while not self._simulation.is_over:
            scheduler.pause(scheduler.random.uniform(1_000.0, 30_000.0))
            ended_ms = scheduler.now_ms - FORGOTTEN_MS
            for transactional_id in [each for each in self._epochs if self._used_ms[each] < ended_ms]:
                try:
                    tables.delete_item(TableName="log", Key=state_key(transactional_id))
                except AnsweredError:
                    continue  # a transaction holds it
                del self._epochs[transactional_id]
                self.forgotten.update(self.lives[nonce] for nonce in self._begun.pop(transactional_id))
                self._simulation.count("transactional id forgotten")

    def place_of(self, transactional_id: TransactionalId, number: int) -> int:
        """The place of that number among all transactions of the id."""
        firsts = self._firsts[transactional_id]
        first, before = next((each for each in reversed(firsts) if each[0] <= number), firsts[0])
        return before + number - first

    def _begin_first(self, transactional_id: TransactionalId, first: int) -> None:
        firsts, before = self._firsts.setdefault(transactional_id, []), len(self._committed.get(transactional_id, ()))
        last = firsts[-1][0] + before - firsts[-1][1] if firsts else 0
        expect(first > last, f"{transactional_id} begins again with {first}, and has reached {last}")
        firsts.append((first, before))

    def _begin(self, transactional_id: TransactionalId, nonce: bytes) -> None:
        begun = self._begun.setdefault(transactional_id, [])
        expect(nonce not in begun, f"one begin of {transactional_id} has raised its epoch twice")
        lives = [self.lives.get(each) for each in begun]
        life = self.lives.get(nonce)
        is_overtaken = life in lives and lives[-1] != life
        expect(not is_overtaken, f"{life} had lost {transactional_id} to {lives[-1:]}, and has fenced it")
        is_zombie = life in self.forgotten and life in self.told
        expect(not is_zombie, f"{life} goes on, and {transactional_id} was forgotten meanwhile")
        self.forgotten.discard(str(life))  # it repeats a begin that it never had an answer to
        begun.append(nonce)

    def is_overtaken(self, transactional_id: TransactionalId, life: str) -> bool:
        """True if another life has begun an epoch, or the id was forgotten since."""
        return life in self.forgotten or any(
            self.lives.get(nonce) != life for nonce in self._begun.get(transactional_id, ())
        )

    def _commit(self, transaction: Transaction) -> None:
        producer = transaction.producer
        newest = self._epochs[producer.transactional_id]
        expect(producer.epoch == newest, f"{producer} committed, and epoch {newest} has begun")
        texts = self._committed.setdefault(producer.transactional_id, [])
        place = self.place_of(producer.transactional_id, transaction.number)
        expect(place == len(texts), f"transaction {transaction.number}, {place} of {producer}, after {len(texts)}")
        values = {value.rpartition("/")[0] for value in self._simulation.oracle.log.newest_values(transaction)}
        expect(len(values) == 1 and len(transaction.refs) == self._partitions, f"{producer} committed {values}")
        texts += values

    def check_end(self) -> None:
        committed = [text for texts in self._committed.values() for text in texts]
        expect(len(committed) == len(set(committed)), f"a transaction was committed twice: {committed}")
        places = self._simulation.oracle.log.places
        for text, is_committed in self.outcomes.items():
            for partition in range(self._partitions):
                copies = len(places.get(f"{text}/{partition}", ()))
                expect(
                    copies == is_committed,
                    f"{text} is reported as committed: {is_committed}, and stands {copies} times",
                )
        for transactional_id, texts in self._committed.items():
            offsets = {each.offset for each in committed_offsets(self._simulation.bare, transactional_id, None)}
            expect(offsets == {len(texts)}, f"{transactional_id} has committed {len(texts)}, its offset is {offsets}")
