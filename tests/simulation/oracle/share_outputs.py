"""The rules of acceptances in transactions: records and their outputs are there at once, or not at all (G5, G11).

The outputs are values like `0/17`, for the record at offset 17 of partition 0.
"""

from collections import Counter

from penstock_core.ids import Nonce, TransactionalId
from penstock_core.share.share_state import ShareKey
from penstock_core.transaction import Transaction
from penstock_service.groups.commit_offsets import committed_offsets
from tests.simulation.oracle.shares import ShareOracle
from tests.simulation.oracle.violation import expect
from tests.simulation.service.simulation import Simulation


class ShareOutputs:
    """The outputs of the workers of one share group, which has no resets."""

    def __init__(self, simulation: Simulation, oracle: ShareOracle) -> None:
        self._simulation = simulation
        self.ids: set[TransactionalId] = set()  # of the workers
        self.first_numbers: dict[TransactionalId, int] = {}  # of the ids, as their first begin told
        self.committed: dict[Nonce, Transaction] = {}
        self.refused: dict[Nonce, str] = {}  # why, where the answer says that nothing was committed
        self._outputs: Counter[str] = Counter()
        self._offsets: Counter[TransactionalId] = Counter()
        oracle.on_commit = self._committed

    def check_answer(self, nonce: Nonce, refusal: str | None) -> None:
        """Check that a transaction was committed as its worker is told: `refusal` None says that it was."""
        is_committed = nonce in self.committed
        expect(is_committed is (refusal is None), f"{nonce.hex()} is committed: {is_committed}, and told {refusal}")
        if refusal is not None:
            self.refused[nonce] = refusal

    def check_end(self) -> None:
        """Check that no record has two outputs, and that the offsets were committed with them."""
        doubled = {value for value, count in self._outputs.items() if count > 1}
        expect(not doubled, f"records have several outputs: {doubled}")
        for transactional_id, count in self._offsets.items():
            offsets = {each.offset for each in committed_offsets(self._simulation.bare, transactional_id, None)}
            expect(offsets == {count}, f"{transactional_id} has committed {count}, its offset is {offsets}")

    def _committed(self, transaction: Transaction, finished: dict[ShareKey, set[int]]) -> None:
        producer = transaction.producer
        if producer.transactional_id not in self.ids:
            return
        expect(transaction.nonce not in self.committed, f"{producer} has committed a transaction twice")
        refusal = self.refused.get(transaction.nonce)
        expect(refusal is None, f"{producer} has committed what it was refused: {refusal}")
        self.committed[transaction.nonce] = transaction
        outputs = Counter(self._simulation.oracle.log.newest_values(transaction))
        wanted = Counter(f"{key.partition}/{offset}" for key, offsets in finished.items() for offset in offsets)
        expect(outputs == wanted, f"{producer} has finished {sorted(wanted)} with the outputs {sorted(outputs)}")
        self._outputs += outputs
        self._offsets[producer.transactional_id] += 1
