# Generated from async_by_lambda.py by `python -m tools.unasync`: change that file.
"""The functions of the stage, invoked by Lambda's API without API Gateway (docs/adr/0065).

```mermaid
flowchart LR
    C[client] -- signed Invoke, with a proof --> L[Lambda] --> F[function] --> S[(storage)]
    F -. a proof that it has not seen .-> T[AWS STS]
```

The stage must take direct calls (docs/how-to/transports.md).
"""

from collections.abc import Hashable, Mapping

from penstock.http.connections import Connections
from penstock.http.http_message import Response
from penstock.http.no_answer import ANSWER_TIMEOUT_S, NoAnswerError
from penstock.transports.functions_place import FunctionsAccess, find_functions
from penstock.transports.invocation import Call, Invocations


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
        call = Call(method, path, query, body)
        for target in self._invocations.targets(method, path):
            try:
                answer = invoked(self._connections, self._invocations, target, call)
            except NoAnswerError as error:
                raise self._invocations.no_answer(method, path, error) from error.__cause__
            if not self._invocations.is_denied(target, answer):
                break
        return self._invocations.answer(method, target, answer)

    def event_headers(self, host: str, body: bytes) -> Mapping[str, str]:
        """As EventSigner says, by the caller's credentials. Raises NotConfiguredError."""
        return self._invocations.event_headers(host, body)

    def reader(self) -> Hashable:
        """The caller and the service (abilities.py). It may be slow."""
        return self._invocations.reader()

    def close(self) -> None:
        """Close the connections. A later call opens them again."""
        self._connections.close()


def invoked(connections: Connections, invocations: Invocations, target: str, call: Call) -> Response:
    """Lambda's answer; the second one, if it refused the first request for its time. Raises NoAnswerError."""
    sent = invocations.prepared(target, call)
    answer = connections.send("POST", sent.signed.url, sent.signed.headers, sent.event)
    if not invocations.is_to_send_again(sent, answer):
        return answer
    sent = invocations.prepared(target, call)
    return connections.send("POST", sent.signed.url, sent.signed.headers, sent.event)


def open_transport(region: str | None = None) -> LambdaTransport:
    """The functions that functions_place.py finds. Sends no call, unless a stack has to be read.

    Raises NotConfiguredError.
    """
    return LambdaTransport(find_functions(region))
