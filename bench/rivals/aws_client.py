"""The shared parts of the clients of Kinesis and SQS: boto3, threads that call it, and a count of the calls."""

from collections.abc import Callable, Iterable
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from typing import Any, TypeVar

import boto3

from localstack.clients import REGION, ROOT_KEY, endpoint_url

Answer = TypeVar("Answer")


def emulated(service: str, port: int) -> Any:
    """A client of the emulator at exactly that port, whatever AWS_ENDPOINT_URL says: a relay has a port of its own."""
    return boto3.client(
        service,
        endpoint_url=endpoint_url(port),
        region_name=REGION,
        aws_access_key_id=ROOT_KEY,
        aws_secret_access_key=ROOT_KEY,
    )


class CallingThreads:
    """Up to `threads` calls at once. `begin` waits while all threads have work."""

    def __init__(self, service: str, port: int, threads: int) -> None:
        self.boto = emulated(service, port)
        self.calls = 0
        self._threads = threads
        self._executor = ThreadPoolExecutor(threads)
        self._begun: set[Future[object]] = set()
        self.boto.meta.events.register("before-send", self._count)

    def begin(self, call: Callable[[], object]) -> None:
        """Starts a call. Raises what an earlier one raised."""
        while len(self._begun) >= self._threads:
            self._take(wait(self._begun, return_when=FIRST_COMPLETED).done)
        self._begun.add(self._executor.submit(call))

    def finish(self) -> None:
        """Returns when no call is under way."""
        self._take(wait(self._begun).done)

    def each(self, calls: Iterable[Callable[[], Answer]]) -> list[Answer]:
        """The answers of all calls."""
        return list(self._executor.map(lambda call: call(), calls))

    def close(self) -> None:
        self._executor.shutdown()
        self.boto.close()

    def _take(self, done: set[Future[object]]) -> None:
        self._begun -= done
        for each in done:
            each.result()

    def _count(self, **_: object) -> None:
        self.calls += 1
