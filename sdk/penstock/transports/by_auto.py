# Generated from async_by_auto.py by `python -m tools.unasync`: change that file.
"""The cheapest way that a caller may take, call by call: the functions by Lambda's API, else HTTP (docs/adr/0065).

```mermaid
flowchart LR
    C[client] -- Invoke --> L[Lambda] --> F[function]
    C -. refused, or no connection .-> A[API Gateway] --> F
```

`ways.py` says when it is which. A call that goes on by HTTP was certainly not begun by the other way.
"""

import os
from collections.abc import Hashable, Mapping
from contextlib import suppress
from functools import partial

from penstock.configuration import Configuration, is_api_of_aws
from penstock.http.abilities import event_signer, reader_of
from penstock.http.connections import Connections
from penstock.http.http_message import JSON_TYPE, Response
from penstock.http.no_answer import ANSWER_TIMEOUT_S, DIRECT_CONNECT_TIMEOUT_S, NoAnswerError
from penstock.http.signature import is_refusal
from penstock.http.transport import Transport
from penstock.transports.by_lambda import invoked
from penstock.transports.functions_place import access_by, functions_of_local_env, hinted_functions
from penstock.transports.invocation import Call, is_foreign, is_no_way, is_way_refused
from penstock.transports.ways import METADATA_PATH, Trial, Ways
from penstock.workers.workers import Errand
from penstock_core.errors import PenstockError


class AutoTransport:
    """A Transport that invokes functions where it may, and goes by HTTP else. No retries, as both."""

    def __init__(self, http: Transport, ways: Ways, *, timeout_s: float = ANSWER_TIMEOUT_S) -> None:
        self._http = http
        self._ways = ways
        self._timeout_s = timeout_s
        self._connections = Connections(timeout_s, connect_timeout_s=DIRECT_CONNECT_TIMEOUT_S)
        self._question = Errand("penstock-question", self._ask)

    @property
    def url(self) -> str:
        """The service's URL, "" if the transport below tells none."""
        return str(getattr(self._http, "url", ""))

    def call(
        self, method: str, path: str, query: Mapping[str, str], headers: Mapping[str, str], body: bytes
    ) -> Response:
        """Send one request, and wait for its answer of any status, by the way that is open to it."""
        if self._ways.must_know(path):
            self._question.begin()
            self._question.wait(DIRECT_CONNECT_TIMEOUT_S)
            self._ways.asked()
        elif self._ways.asks_beside(path):
            self._question.begin()
            return self._by_http(method, path, query, headers, body)
        call = Call(method, path, query, body)
        trial = self._ways.trial(method, path)
        answer = None if trial is None else self._tried(trial, call)
        if answer is not None:
            return answer
        answer = self._by_http(method, path, query, headers, body)
        if trial is not None or not (is_refusal(answer.status) and self._ways.may_invoke_alone(path)):
            return answer
        self._question.wait(self._timeout_s)  # the call was refused by HTTP while the question may still run
        trial = self._ways.trial(method, path)
        invoked_answer = None if trial is None else self._tried(trial, call)
        return answer if invoked_answer is None else invoked_answer

    def _ask(self) -> None:
        try:
            with suppress(PenstockError):  # of the question: the call has its own
                self._by_http("GET", METADATA_PATH, {}, {"Accept": JSON_TYPE}, b"")
        finally:
            self._ways.asked()

    def _by_http(
        self, method: str, path: str, query: Mapping[str, str], headers: Mapping[str, str], body: bytes
    ) -> Response:
        answer = self._http.call(method, path, query, headers, body)
        self._ways.note_http(method, path, answer)
        return answer

    def _tried(self, trial: Trial, call: Call) -> Response | None:
        """The service's answer. None if the function was not begun, so that the call can go by HTTP."""
        try:
            answer = invoked(self._connections, trial.invocations, trial.target, call)
            if is_no_way(answer):
                self._ways.note_answer(trial, answer.status, is_refused=True)
                return None
            told = trial.invocations.answer(call.method, trial.target, answer)
            is_refused = is_way_refused(told)
            self._ways.note_answer(trial, answer.status, is_refused=is_refused or is_foreign(told))
            return None if is_refused else told
        except NoAnswerError as error:
            self._ways.note_no_answer(maybe_sent=error.maybe_sent)
            if not error.maybe_sent:
                return None
            raise trial.invocations.no_answer(call.method, call.path, error) from error.__cause__
        finally:
            self._ways.ended(trial)

    def event_headers(self, host: str, body: bytes) -> Mapping[str, str]:
        """As EventSigner says, as by HTTP. Raises NotConfiguredError if the credentials cannot be refreshed."""
        return event_signer(self._http).event_headers(host, body)

    def reader(self) -> Hashable:
        """The caller and the service, as by HTTP. It may be slow."""
        return reader_of(self._http)

    def close(self) -> None:
        """Close the connections. A later call opens them again."""
        self._question.end()
        self._connections.close()
        self._http.close()


def around(http: Transport, configuration: Configuration) -> Transport:
    """`auto` on top of `http`, which has this configuration. It sends no call.

    It is `http` itself for a local service without functions, as `penstock dev` is. Raises NotConfiguredError for
    functions in the environment that are none.
    """
    given = functions_of_local_env(configuration)
    if given is None and configuration.is_local:
        return http
    access_of = partial(access_by, configuration, os.environ)
    ways = Ways(given, access_of, lasts=is_api_of_aws(configuration.url), hint=hinted_functions(configuration))
    return AutoTransport(http, ways)
