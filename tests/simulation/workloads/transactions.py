"""Transactional producers write to the same partitions. Two processes with one id fence each other.

Each process runs the SDK's own core (producer/transaction_core.py) against the handlers. Its network loses requests and
answers, delivers requests late or twice, and cuts it off for seconds, so that it comes back as a zombie. Its tasks are
cancelled while a request is under way. Some of its sends are gathered.

Each transaction writes one value to each of three partitions, and the number of the next transaction as a group's
offset.
"""

import base64
from collections.abc import Callable
from functools import partial
from typing import TypeVar

from penstock.errors import ConnectionFailedError, FencedError
from penstock.http.http_message import Document, HttpRequest, Response, final_document, final_error, json_document
from penstock.http.steps import Steps, Wait, drive
from penstock.model import GroupOffset, TopicPartition
from penstock.producer.batching.producer_batch import TopicQueues
from penstock.producer.transaction_core import TransactionCore
from penstock.producer.transactional.transactional_state import TransactionalState, TransactionSettings
from penstock.retry import Attempts, RetryPolicy
from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.ids import NONCE_BYTES, TransactionalId
from penstock_core.records.record_batch import Compression
from penstock_handlers import transactions as handler
from penstock_handlers.edge.http import Result, error_result
from penstock_service.instance.instance import Instance
from tests.history import format as history
from tests.simulation.clients.reader import Observer, SimulatedReader
from tests.simulation.engine.time_and_chance import EPOCH_MS
from tests.simulation.oracle.transactions import FORGOTTEN_MS, TransactionChecks
from tests.simulation.oracle.violation import expect
from tests.simulation.service.simulation import Simulation

T = TypeVar("T")

_TOPIC = "moved"
_PARTITIONS = 3  # gathered, one send stages the first record while two wait
_BATCH_BYTES = 10_000
_CALL_MS = 8_000
_CUT_MS_MAX = 20_000.0


class Cancelled(BaseException):
    """The task of a process was cancelled. Its request may arrive all the same."""


def install(simulation: Simulation) -> None:
    _install(simulation, rests=False)


def install_forgetting(simulation: Simulation) -> None:
    """The same with ids that DynamoDB's TTL removes, sooner or later after they have ended."""
    simulation.lasts_ms = max(simulation.lasts_ms, FORGOTTEN_MS)
    _install(simulation, rests=True)


def _install(simulation: Simulation, *, rests: bool) -> None:
    random = simulation.scheduler.random
    simulation.topic(_TOPIC, partitions=_PARTITIONS)
    checks = TransactionChecks(simulation, _PARTITIONS)
    simulation.storage.observers.append(checks.observe)
    if rests:
        simulation.scheduler.spawn("time to live", checks.forget_now_and_then)
    simulation.final_checks.append(checks.check_end)
    for number in range(random.choice([1, 2])):
        for process in range(random.choice([1, 2, 2])):
            _Process(simulation, checks, TransactionalId(f"t{number}"), process, rests=rests).start()
    SimulatedReader(simulation, "tr", _TOPIC, is_topic_stable=True).start()
    Observer(simulation, "to", _TOPIC).start()


class _Network:
    """The way of a process's requests to the service, and the retries of its client."""

    def __init__(self, simulation: Simulation, name: str, *, rests: bool) -> None:
        random = simulation.scheduler.random
        self._call_ms, self._cut_ms_max = _CALL_MS, _CUT_MS_MAX
        if rests:
            self._call_ms = random.choice([_CALL_MS, int(3 * FORGOTTEN_MS)])
            self._cut_ms_max = random.choice([_CUT_MS_MAX, 3 * FORGOTTEN_MS])
        self._simulation = simulation
        self._name = name
        self._cut_until_ms = 0.0
        self._cut_rate = random.choice([0.0, 0.02, 0.1])
        self._late_rate = random.choice([0.0, 0.05, 0.2])
        self._cancel_rate = random.choice([0.0, 0.1, 0.3])
        self._retry = RetryPolicy(backoff_ms=random.choice([10, 100]), backoff_max_ms=1_000)

    def do(self, effect: HttpRequest | Wait) -> Document:
        """Carry out what a procedure asks for, as penstock.http.client and the producer's driver do."""
        scheduler = self._simulation.scheduler
        if isinstance(effect, Wait):
            scheduler.pause(5.0)  # a wait may end for no reason
            return {}
        attempts = Attempts(
            self._retry, is_repeatable=effect.is_repeatable, deadline_ms=int(scheduler.now_ms) + self._call_ms
        )
        if scheduler.random.random() < self._cancel_rate:
            self._send_late(effect)
            scheduler.pause(scheduler.random.uniform(0.0, 100.0))
            self._simulation.count("task cancelled")
            raise Cancelled
        while True:
            try:
                document = json_document(effect, self._try_once(effect))
                return final_document(effect, document, maybe_applied=attempts.maybe_applied)
            except PenstockError as error:
                wait_ms = attempts.wait_ms(error, now_ms=int(scheduler.now_ms), chance=scheduler.random.random())
                if wait_ms is None:
                    raise final_error(effect, error, maybe_applied=attempts.maybe_applied) from None
            scheduler.pause(float(wait_ms))

    def _try_once(self, request: HttpRequest) -> Response:
        scheduler, random = self._simulation.scheduler, self._simulation.scheduler.random
        if scheduler.now_ms >= self._cut_until_ms and random.random() < self._cut_rate:
            self._cut_until_ms = scheduler.now_ms + random.uniform(1_000.0, self._cut_ms_max)
            self._simulation.count("process cut off")
        if scheduler.now_ms < self._cut_until_ms:
            scheduler.pause(random.uniform(1.0, 500.0))
            raise ConnectionFailedError("simulated: cut off", maybe_applied=random.random() < 0.5)
        if random.random() < self._late_rate:
            self._send_late(request)
            if self._cut_ms_max > _CUT_MS_MAX:  # for so long, perhaps, that the outcome is forgotten
                self._cut_until_ms = scheduler.now_ms + random.uniform(0.2, 1.0) * self._cut_ms_max
            scheduler.pause(random.uniform(1.0, 500.0))
            raise ConnectionFailedError("simulated: the request is slow", maybe_applied=True)
        return self._send(request)

    def _send_late(self, request: HttpRequest) -> None:
        """The request arrives in some seconds. Its sender does not wait for it."""

        def send() -> None:
            try:
                self._send(request)
            except PenstockError:
                self._simulation.count("late request unanswered")

        delay_ms = self._simulation.scheduler.random.choice([50.0, 500.0, 5_000.0])
        self._simulation.scheduler.spawn(f"{self._name} late", send, delay_ms=delay_ms)

    def _send(self, request: HttpRequest) -> Response:
        event = {
            "routeKey": f"{request.method} {request.path}",
            "requestContext": {"authorizer": {"iam": {"userArn": "arn:aws:iam::111122223333:user/ledger"}}},
            "body": base64.b64encode(request.body).decode(),
            "isBase64Encoded": True,
        }

        def serve(instance: Instance) -> Result:
            try:
                return handler.serve(event, instance)
            except PenstockError as error:
                return error_result(error)

        answer = self._simulation.call(serve, is_read=False)
        return Response(answer["statusCode"], answer["headers"], answer["body"].encode())


class _Process:
    """A process that begins, transacts, and restarts when it is fenced."""

    def __init__(
        self,
        simulation: Simulation,
        checks: TransactionChecks,
        transactional_id: TransactionalId,
        process: int,
        *,
        rests: bool,
    ) -> None:
        self._simulation = simulation
        self._random = simulation.scheduler.random
        self._checks = checks
        self._id = transactional_id
        self._name = f"{transactional_id}.{process}"
        self._rests = rests
        self._network = _Network(simulation, self._name, rests=rests)
        self._lives = 0
        # A request takes one record, or all of them: with the smaller one, each record is staged but the last.
        self._request_bytes = _BATCH_BYTES + self._random.choice([1, 100_000])
        self._topic = TopicQueues(_TOPIC)
        self._topic.update(_PARTITIONS, _BATCH_BYTES, _BATCH_BYTES)
        self._state = self._new_life()

    def start(self) -> None:
        self._simulation.work(self._name, self._run)

    @property
    def _life(self) -> str:
        return f"{self._name} life {self._lives}"

    def _new_life(self) -> TransactionalState:
        self._lives += 1
        settings = TransactionSettings(
            transactional_id=self._id,
            acks="quorum",
            batch_bytes=_BATCH_BYTES,
            request_bytes=self._request_bytes,
            compression=Compression.NONE,
        )
        return TransactionalState(settings, self._nonce_of(self._life))

    def _nonce_of(self, life: str) -> Callable[[], str]:
        def draw() -> str:
            nonce = self._random.randbytes(NONCE_BYTES)
            self._checks.lives[nonce] = life
            return nonce.hex()

        return draw

    def _run(self) -> None:
        for count in range(self._random.choice([3, 8])):
            self._rest()
            self._simulation.scheduler.pause(self._random.uniform(0.0, 400.0))
            try:
                self._transact(f"{self._name}-{count}")
            except FencedError:
                self._fenced()
            except (PenstockError, Cancelled):
                self._simulation.count("transaction failed")
            if self._random.random() < 0.1:
                self._state = self._new_life()

    def _rest(self) -> None:
        """Perhaps do nothing for so long that the id may end."""
        if self._rests and self._random.random() < 0.3:
            scheduler, rest_ms = self._simulation.scheduler, self._random.uniform(0.8, 2.0) * FORGOTTEN_MS
            scheduler.sleeps_until_ms = max(scheduler.sleeps_until_ms, scheduler.now_ms + rest_ms)
            scheduler.pause(rest_ms)

    def _fenced(self) -> None:
        """Fenced for good. Its supervisor may start it anew, which takes over."""
        self._simulation.count("transaction fenced")
        is_overtaken = self._checks.is_overtaken(self._id, self._life)
        expect(is_overtaken, f"{self._life} is fenced, and nobody else has begun")
        if self._random.random() < 0.5:
            self._state = self._new_life()

    def _drive(self, steps: Steps[T]) -> T:
        return drive(steps, self._network.do)

    def _transact(self, text: str) -> None:
        core = TransactionCore(self._state, lambda _: 0)
        self._drive(core.begin())
        self._checks.told.add(self._life)
        number = self._checks.place_of(self._id, self._state.number)
        self._rest()
        # For the history, each transaction of one id comes from the next record of one partition.
        sends = [
            history.Send((_TOPIC, partition), f"{text}/{partition}", None, (self._id, 0, number, f"to {partition}"))
            for partition in range(_PARTITIONS)
        ]
        recorder = self._simulation.recorder
        ops: list[history.MicroOp] = [*sends, history.Commit((_TOPIC, 0), number + 1)]
        operation = recorder.invoke(self._name, history.Function.TXN, ops, group=self._id)
        failure: BaseException | None = None
        try:
            self._send_all(core, text)
            self._rest()
            core.add_offsets([GroupOffset(group=self._id, partition=TopicPartition(_TOPIC, 0), offset=number + 1)])
            batches = self._drive(core.commit())
        except (PenstockError, Cancelled) as error:
            failure = error
            batches = core.abort(error)
        outcomes = [each.outcome for each in batches]
        if any(isinstance(outcome, PenstockError) and outcome.maybe_applied for outcome in outcomes):
            self._simulation.count("outcome unknown")
            recorder.maybe(operation, attempts=1)
        else:
            is_committed = failure is None
            expect(all(isinstance(each, int) is is_committed for each in outcomes), f"{text}: {failure}, {outcomes}")
            self._checks.outcomes[text] = is_committed
            (recorder.ok if is_committed else recorder.fail)(operation)
            self._simulation.count("transaction committed" if is_committed else "transaction refused")
        if failure is not None:
            is_disordered = isinstance(failure, PenstockError) and failure.code is ErrorCode.OUT_OF_ORDER_SEQUENCE
            # A stage of a zombie has the epoch of the id's next life, perhaps, and a number from before.
            expect(not is_disordered or self._life in self._checks.forgotten, f"{text} of {self._life}: {failure}")
            raise failure

    def _send_all(self, core: TransactionCore, text: str) -> None:
        """Send to all partitions, one after the other or gathered. A send that is cancelled may be tried again."""
        if self._random.random() < 0.5:
            for partition in range(_PARTITIONS):
                try:
                    self._send(core, text, partition)
                except Cancelled:
                    if self._random.random() < 0.5:
                        raise
                    self._send(core, text, partition)
            return
        failures: list[BaseException | None] = []

        def gathered(partition: int) -> None:
            try:
                self._send(core, text, partition)
            except (PenstockError, Cancelled) as error:
                failures.append(error)
            else:
                failures.append(None)

        scheduler = self._simulation.scheduler
        for partition in range(_PARTITIONS):
            scheduler.spawn(f"{self._name} send {partition}", partial(gathered, partition))
        while len(failures) < _PARTITIONS:
            scheduler.pause(5.0)
        for failure in failures:
            if failure is not None:
                raise failure

    def _send(self, core: TransactionCore, text: str, partition: int) -> None:
        self._drive(core.make_room())
        now_ms = EPOCH_MS + int(self._simulation.scheduler.now_ms)
        core.append(self._topic, partition, None, f"{text}/{partition}".encode(), (), now_ms, now_ms)
