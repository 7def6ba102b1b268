"""The functions of the stage, invoked by Lambda's API without API Gateway (docs/adr/0065).

```mermaid
flowchart LR
    C[client] -- signed Invoke, with a proof --> L[Lambda] --> F[function] --> S[(storage)]
    F -. a proof that it has not seen .-> T[AWS STS]
```

It needs no package beyond those of the SDK. The stage must take direct calls (docs/how-to/transports.md).
"""

import threading
from collections.abc import Mapping

from penstock.errors import error_class
from penstock.http.connections import Connections, NoAnswerError
from penstock.http.http_message import Response
from penstock.http.signature import SignedRequest, event_headers, shift_to_sign_again
from penstock.http.transport import ANSWER_TIMEOUT_S, no_answer
from penstock.transports.functions_place import FunctionsAccess, find_functions
from penstock.transports.invocation import answer_of, event_bytes, invocation, is_denied
from penstock.transports.own_proof import OwnProof
from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.routes import aliases_of, match_route

_READS = ("GET", "HEAD")
_UNTRIED, _ALLOWED, _DENIED = 1, 0, 2


class Invocations:
    """The parts of a call that wait for nothing: the ARNs to try, the event, and the meaning of an answer.

    A caller may invoke the aliases of its policies, which the client does not know. So it tries the aliases that serve
    the route one after the other, and begins with those that have let it in. Lambda refuses an alias before the
    function begins. Several threads may use one.
    """

    def __init__(self, access: FunctionsAccess) -> None:
        self._access = access
        self._proof = OwnProof(access.signer, access.sts_url, access.place.arn)
        self._ranks: dict[str, int] = {}
        self._lock = threading.Lock()

    def targets(self, method: str, path: str) -> list[str]:
        """The ARNs of the aliases that serve the route, the likeliest first. Raises UNKNOWN_ROUTE for no route."""
        match = match_route(method, path)
        if match is None:
            code = ErrorCode.UNKNOWN_ROUTE
            raise error_class(code)(code, f"{method} {path:.100} is no route of this API")
        place, route = self._access.place, match.route
        targets = [place.alias_arn(route.function, alias) for alias in aliases_of(route)]
        with self._lock:
            return sorted(targets, key=lambda target: self._ranks.get(target, _UNTRIED))

    def event(self, method: str, path: str, query: Mapping[str, str], body: bytes) -> bytes:
        """The event of a call, with the proof of now. Raises NotConfiguredError."""
        return event_bytes(method, path, query, body, self._proof.current())

    def signed(self, target: str, event: bytes, shift_ms: int = 0) -> SignedRequest:
        """The request that invokes the target. Raises NotConfiguredError."""
        return invocation(self._access.signer, target, event, shift_ms)

    def shift_to_sign_again(self, signed: SignedRequest, answer: Response) -> int | None:
        """As the function of that name, for a request that Lambda has refused. The function did not begin."""
        return shift_to_sign_again(self._access.signer, signed, answer.status, answer.headers)

    def is_denied(self, target: str, answer: Response) -> bool:
        """True if the caller may not invoke the target, and another one may do. It remembers either."""
        denied = is_denied(answer)
        with self._lock:
            self._ranks[target] = _DENIED if denied else _ALLOWED
        return denied

    def answer(self, method: str, target: str, answer: Response) -> Response:
        """The service's answer, as answer_of says."""
        return answer_of(answer, target, is_read=method in _READS)

    def no_answer(self, method: str, path: str, error: NoAnswerError) -> PenstockError:
        """The error of a call that nothing answered."""
        return no_answer(self._access.signer, f"{method} {path}: {error}", maybe_sent=error.maybe_sent)

    def event_headers(self, host: str, body: bytes) -> Mapping[str, str]:
        """As EventSigner says."""
        return event_headers(self._access.signer, host, body)


class LambdaTransport:
    """A Transport that invokes functions. No retries: each function is begun once at most for a call."""

    def __init__(self, access: FunctionsAccess, *, timeout_s: float = ANSWER_TIMEOUT_S) -> None:
        self._invocations = Invocations(access)
        self._connections = Connections(timeout_s)

    def call(
        self,
        method: str,
        path: str,
        query: Mapping[str, str],
        headers: Mapping[str, str],  # noqa: ARG002 - the service answers the same for any
        body: bytes,
    ) -> Response:
        """Invoke the function of the route, by the first alias that the caller may invoke."""
        targets = self._invocations.targets(method, path)
        event = self._invocations.event(method, path, query, body)
        for target in targets:
            try:
                answer = self._invoked(target, event)
            except NoAnswerError as error:
                raise self._invocations.no_answer(method, path, error) from error.__cause__
            if not self._invocations.is_denied(target, answer):
                break
        return self._invocations.answer(method, target, answer)

    def _invoked(self, target: str, event: bytes) -> Response:
        """Lambda's answer; the second one, if it refused the first request for its time."""
        signed = self._invocations.signed(target, event)
        answer = self._connections.send("POST", signed.url, signed.headers, event)
        shift_ms = self._invocations.shift_to_sign_again(signed, answer)
        if shift_ms is None:
            return answer
        signed = self._invocations.signed(target, event, shift_ms)
        return self._connections.send("POST", signed.url, signed.headers, event)

    def event_headers(self, host: str, body: bytes) -> Mapping[str, str]:
        """As EventSigner says, by the caller's credentials. Raises NotConfiguredError."""
        return self._invocations.event_headers(host, body)

    def close(self) -> None:
        """Close the connections. A later call opens them again."""
        self._connections.close()


def open_transport(region: str | None = None) -> LambdaTransport:
    """The functions that functions_place.py finds. Sends no call, unless a stack has to be read.

    Raises NotConfiguredError.
    """
    return LambdaTransport(find_functions(region))
