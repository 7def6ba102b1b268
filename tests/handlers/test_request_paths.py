"""How many files and functions of ours a warm request enters: what a reader has to open who follows it.

The stand-ins for AWS, which `penstock.testing` runs, do not count: a deployed function has none of them. Nor do
comprehensions and lambdas, which a reader reads in their function. Acquires have fixed nonces, because another one
decides on four functions more.

The bounds only go down. Their goals are 25 files and 110 functions for a produce, 30 and 180 for an acquire, 30 and 150
for a push delivery.
"""

import json
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType

import pytest

from penstock.testing import MemoryPenstock

FUNCTIONS = Path(__file__).parents[2] / "functions"
STAND_INS = ("penstock_service/adapters/tables/", "penstock_service/adapters/memory/")
_NONCES = ("cold-nonce", "warm-nonce")  # neither looks at what came back: one of eight does
TARGET = "arn:aws:lambda:eu-west-1:123456789012:function:orders"


class Tracer:
    """Notes what is entered while a request runs, on all threads that began after the tracer."""

    def __init__(self) -> None:
        self.functions: set[tuple[str, str]] = set()
        self._is_on = False

    def note(self, frame: FrameType, event: str, _: object) -> None:
        """Python calls this at each call and return."""
        code = frame.f_code
        if not self._is_on or event != "call" or code.co_name.startswith("<"):
            return
        path = Path(code.co_filename)
        if path.is_relative_to(FUNCTIONS):
            file = path.relative_to(FUNCTIONS).as_posix()
            if not file.startswith(STAND_INS):
                self.functions.add((file, code.co_qualname))

    def trace(self, request: Callable[[], object]) -> None:
        """Run the request, and note what it enters."""
        self._is_on = True
        sys.setprofile(self.note)
        try:
            request()
        finally:
            sys.setprofile(None)
            self._is_on = False

    @property
    def files(self) -> list[str]:
        """The files that the request entered."""
        return sorted({file for file, _ in self.functions})


@pytest.fixture
def tracer() -> Iterator[Tracer]:
    tracer = Tracer()
    threading.setprofile(tracer.note)
    yield tracer
    threading.setprofile(None)


@pytest.fixture
def service(tracer: Tracer) -> Iterator[MemoryPenstock]:
    with MemoryPenstock() as service:
        service.create_topic("orders", partitions=1)
        yield service


def _produce(service: MemoryPenstock, tracer: Tracer) -> None:
    producer = service.producer(linger_ms=0)
    producer.send("orders", b"cold").result()
    tracer.trace(lambda: producer.send("orders", b"warm").result())


def _acquire(service: MemoryPenstock, tracer: Tracer) -> None:
    nonces = iter(_NONCES)

    def acquire() -> object:
        body = json.dumps({"max_records": 1, "nonce": next(nonces)}).encode()
        headers = {"content-type": "application/json"}
        answer = service.transport.call("POST", "/v1/share-groups/packers/acquire", {}, headers, body)
        assert answer.status == 200
        assert b'"ranges":[[' in answer.body
        return answer

    service.create_share_group("packers", ["orders"])
    with service.producer(linger_ms=0) as producer:
        for value in (b"cold", b"warm"):
            producer.send("orders", value).result()
    acquire()
    tracer.trace(acquire)


def _push(service: MemoryPenstock, tracer: Tracer) -> None:
    seen: list[object] = []

    def deliver(event: object, _: object) -> object:
        seen.append(event)
        return {}

    service.add_function(TARGET, deliver)
    service.create_topic("dead", partitions=1)
    service.admin().put_subscription("pushed", "orders", {"lambda": TARGET}, {"dead_letter_topic": "dead"})
    with service.producer(linger_ms=0) as producer:
        producer.send("orders", b"cold").result()
        service.deliver_pushes()
        producer.send("orders", b"warm").result()
    assert len(seen) == 1
    tracer.trace(service.deliver_pushes)
    assert len(seen) == 2


@pytest.mark.parametrize(
    ("request_kind", "files_max", "functions_max"), [(_produce, 48, 175), (_acquire, 60, 300), (_push, 48, 235)]
)
def test_warm_request_enters_no_more_files_and_functions_than_agreed(
    service: MemoryPenstock,
    tracer: Tracer,
    request_kind: Callable[[MemoryPenstock, Tracer], None],
    files_max: int,
    functions_max: int,
) -> None:
    request_kind(service, tracer)
    listing = "\n".join(f"{file} {name}" for file, name in sorted(tracer.functions))
    assert len(tracer.files) <= files_max, listing
    assert len(tracer.functions) <= functions_max, listing


@pytest.mark.parametrize("request_kind", [_produce, _acquire, _push])
def test_tracer_sees_the_whole_of_a_request(
    service: MemoryPenstock, tracer: Tracer, request_kind: Callable[[MemoryPenstock, Tracer], None]
) -> None:
    request_kind(service, tracer)
    assert "penstock_service/adapters/dynamodb/client.py" in tracer.files
    assert any(file.startswith("penstock_service/segments/") for file in tracer.files), "it stops before the segments"
