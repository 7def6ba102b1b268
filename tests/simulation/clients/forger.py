"""A client that writes under the numbers of other producers. It reads those from batch headers, as any reader can.

It forges each producer once. If it wrote twice, and the first append was merged, the service could not compare the
victim's batch with it (docs/protocol/log).
"""

from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.ids import Partition, PartitionKey
from penstock_core.limits import FETCH_BYTES_MAX
from penstock_core.records.codec import BatchBuilder
from penstock_core.records.record_batch import BatchHeader, walk
from penstock_service.records.append import AppendedRange
from penstock_service.records.fetch import FetchEntry, FetchResult, fetch
from penstock_service.records.produce import ProduceEntry, produce
from tests.history import format as history
from tests.simulation.engine.claims import SentValue
from tests.simulation.engine.time_and_chance import EPOCH_MS
from tests.simulation.oracle.violation import expect
from tests.simulation.service.simulation import Simulation

_PARTITION = Partition(0)
_NEXT_SHARE = 0.8  # of the forgeries take the sequence that the victim uses next, the others its newest one
_LATEST = 3  # producers of the newest batches, of which one is the victim


class SimulatedForger:
    """Sends `records` records to the only partition of one topic, each under the numbers of another producer."""

    def __init__(self, simulation: Simulation, name: str, topic: str, *, records: int, pace_ms: float) -> None:
        self._simulation = simulation
        self._scheduler = simulation.scheduler
        self._name = name
        self._topic = topic
        self._acks = simulation.acks_allowed[0]
        self._records = records
        self._pace_ms = pace_ms
        self._position = 0
        self._newest: dict[tuple[int, int], BatchHeader] = {}  # by producer and epoch, in the order of the log
        self._forged: set[tuple[int, int]] = set()

    def start(self) -> None:
        self._simulation.work(self._name, self._run)

    def _run(self) -> None:
        for number in range(self._records):
            self._scheduler.pause(self._scheduler.random.random() * self._pace_ms)
            self._read()
            victims = [header for who, header in self._newest.items() if who not in self._forged]
            if victims:
                self._forge(f"{self._name}-{number}", self._scheduler.random.choice(victims[-_LATEST:]))

    def _read(self) -> None:
        entry = FetchEntry(topic=self._topic, partition=_PARTITION, offset=self._position, max_bytes=FETCH_BYTES_MAX)
        try:
            [fetched] = self._simulation.call(
                lambda instance: fetch(instance, [entry], max_bytes=FETCH_BYTES_MAX, min_bytes=1, wait_ms=0),
                is_read=True,
            )
        except PenstockError:
            return
        if isinstance(fetched, FetchResult):
            self._position = fetched.next_offset
            for _, header in walk(fetched.data):
                self._newest.pop(who := (header.producer_id, header.producer_epoch), None)
                if header.producer_id >= 0:
                    self._newest[who] = header
        elif fetched.code is ErrorCode.OFFSET_OUT_OF_RANGE:
            self._position = fetched.facts["log_start_offset"]

    def _forge(self, value: str, victim: BatchHeader) -> None:
        self._forged.add((victim.producer_id, victim.producer_epoch))
        is_next = self._scheduler.random.random() < _NEXT_SHARE
        builder = BatchBuilder()
        builder.append(EPOCH_MS + int(self._scheduler.now_ms), None, value.encode())
        data = builder.build(
            producer_id=victim.producer_id,
            producer_epoch=victim.producer_epoch,
            base_sequence=victim.base_sequence + (victim.record_count if is_next else 0),
        )
        sent = SentValue(self._topic, _PARTITION, self._acks, is_idempotent=True)
        self._simulation.claims.sent[value] = sent
        recorder = self._simulation.recorder
        where = (self._topic, int(_PARTITION))
        operation = recorder.invoke(
            self._name, history.Function.SEND, [history.Send(where, value)], acks=history.Acks(self._acks.value)
        )
        began_ms = self._scheduler.now_ms
        answer = self._produce(data)
        self._scheduler.note("forged", value, answer)
        if isinstance(answer, PenstockError):
            if answer.maybe_applied or answer.code is ErrorCode.DUPLICATE_SEQUENCE:
                sent.maybe += 1
                recorder.maybe(operation)
            else:
                self._simulation.count("forgery refused")
                recorder.fail(operation)
        elif self._is_own(value, answer.base_offset):
            self._simulation.count("forgery appended")
            self._simulation.claims.acknowledge(value, answer.base_offset, began_ms)
            recorder.ok(operation, [history.Send(where, value, answer.base_offset)])
        else:
            recorder.fail(operation)

    def _produce(self, data: bytes) -> AppendedRange | PenstockError:
        entry = ProduceEntry(topic=self._topic, partition=_PARTITION, data=data)
        try:
            [answer] = self._simulation.call(lambda instance: produce(instance, [entry], self._acks), is_read=False)
        except PenstockError as error:
            return error
        return answer

    def _is_own(self, value: str, offset: int) -> bool:
        """Check that the record is at its offset, unless the victim's append there is merged or has expired."""
        log = self._simulation.oracle.log
        if log.value_at(self._topic, _PARTITION, offset, value):
            return True
        [topic_id] = [topic_id for topic_id, name in log.names.items() if name == self._topic]
        is_comparable = any(
            each.base_offset <= offset < each.end_offset and each.ref.sequence is not None
            for each in log.check_index(PartitionKey(topic_id, _PARTITION))
        )
        expect(not is_comparable, f"{value} was acknowledged at offset {offset}, which holds the record of another")
        return False
