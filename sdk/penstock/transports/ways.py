"""The ways of the transport `auto`: by which of them a call goes, and what a client remembers of each.

HTTP carries every call, and the functions carry it for less. A client learns the functions from an answer of
`GET /v1/metadata`, or from the file of a local service. Then it invokes those that it may, function by function.

| what a call met                                        | it goes                      | so do later calls         |
|--------------------------------------------------------|------------------------------|---------------------------|
| Lambda refuses the alias, or there is none             | by HTTP, at once             | by another alias, or HTTP |
| the function refuses the proof, or knows no such route | by HTTP, at once             | by another alias, or HTTP |
| a function that is none of Penstock's                  | nowhere: it may have applied | by another alias, or HTTP |
| no connection to Lambda                                | by HTTP, at once             | all by HTTP               |
| a connection, and no answer                            | nowhere: it may have applied | by HTTP, if it comes twice |
| a throttle, a crash, any other answer of Penstock      | nowhere: this is the answer  | as before                 |

Changes that the audit trail notes go by HTTP: API Gateway tells the address of their caller, and policies of IAM see
the route. They are rare, so they save nothing by another way.

A way that is left is left for `SDK_DETOUR_MS`, by either clock. Then one call tries it, and the others wait for no
connection meanwhile: they go by HTTP. The logger `penstock.transport` warns when Lambda does not answer.
"""

import json
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from penstock.http.http_message import Response
from penstock.system import Instant, ProcessLock, fork_count, instant
from penstock.transports.functions_place import FunctionsAccess
from penstock.transports.invocation import Invocations
from penstock_core.direct.function_arn import LAMBDA
from penstock_core.limits import DIRECT_PATH_LENGTH_MAX, SDK_DETOUR_MS
from penstock_core.routes import aliases_of, match_route

_log = logging.getLogger("penstock.transport")

METADATA_PATH = "/v1/metadata"
_LOST_MAX = 2  # answers in a row
_MISSING = 404


class Trial(NamedTuple):
    """An alias to invoke, and the stage that has it. `is_probe` if Lambda has not answered this client yet."""

    target: str
    alias: str
    invocations: Invocations
    is_probe: bool


@dataclass(slots=True)
class _Memory:
    """What one process knows of the functions."""

    access: FunctionsAccess | None = None
    invocations: Invocations | None = None
    learned_at: Instant | None = None
    asked_at: Instant | None = None
    has_asked: bool = False
    http_calls: int = 0
    left: dict[str, Instant] = field(default_factory=dict)  # by the alias's ARN
    lambda_left_at: Instant | None = None
    is_proven: bool = False
    is_probing: bool = False
    lost: int = 0
    let_in: set[str] = field(default_factory=set)  # ARNs, and names of aliases


class Ways:
    """Chooses the way of each call of a client. Several threads may use one, and a child by fork() learns anew.

    `given` are functions that need no question. `access_of` makes an address that the service has told into functions,
    and raises ValueError for one that names none. `lasts` says that an address never leads to another stage, as long
    as the client's URL leads to the same one. Else the client asks anew after `SDK_DETOUR_MS`. A `hint` is an ARN next
    to the URL. It may be of another stage, so it is not invoked: it says that the stage has functions to ask for.
    """

    def __init__(
        self,
        given: FunctionsAccess | None,
        access_of: Callable[[str], FunctionsAccess],
        *,
        lasts: bool,
        hint: str | None = None,
        now: Callable[[], Instant] = instant,
    ) -> None:
        self._given = given
        self._access_of = access_of
        self._lasts = lasts
        self._hint = hint
        self._now = now
        self._lock = ProcessLock()
        self._forks = fork_count()
        self._memory_of_process = self._new_memory()

    def must_know(self, path: str) -> bool:
        """True if the caller is to ask before this call because of the hint, and to tell `asked` once it has.

        A caller may have the right to invoke alone, so its calls wait for the answer, as long as for a connection.
        Then they go by HTTP, and wait on if that refuses them (`may_invoke_alone`).
        """
        with self._lock:
            memory = self._memory(self._now())
            return self._hint is not None and not memory.has_asked and path != METADATA_PATH

    def may_invoke_alone(self, path: str) -> bool:
        """True if a refusal by HTTP may hide a right to invoke: the hint says that there are functions."""
        return self._hint is not None and path != METADATA_PATH

    def asked(self) -> None:
        """The question is over, whatever came of it."""
        now = self._now()
        with self._lock:
            memory = self._memory(now)
            memory.has_asked, memory.asked_at = True, now

    def asks_beside(self, path: str) -> bool:
        """True if the caller is to ask for the stage's metadata next to this call, and to tell `note_http` the answer.

        A client asks with its second call, so that a command of one call has no more of them. A call for metadata
        brings the answer itself. No call waits for the question: until it is answered, calls go by HTTP.
        """
        now = self._now()
        with self._lock:
            memory = self._memory(now)
            if memory.access is not None or path == METADATA_PATH or not memory.http_calls:
                return False
            if memory.asked_at is not None and memory.asked_at.age_ms(now) < SDK_DETOUR_MS:
                return False
            memory.asked_at = now
            return True

    def note_http(self, method: str, path: str, answer: Response) -> None:
        """Learn the functions from an answer that came by HTTP, if it tells any."""
        now = self._now()
        tells = method == "GET" and path == METADATA_PATH and answer.status == 200
        access = self._told(answer) if tells else None
        with self._lock:
            memory = self._memory(now)
            memory.http_calls += 1
            if tells:
                memory.has_asked, memory.asked_at = True, now
            if access is not None and memory.access is None:
                memory.access, memory.invocations, memory.learned_at = access, Invocations(access), now

    def trial(self, method: str, path: str) -> Trial | None:
        """The alias that the call is to try, None for HTTP. The caller tells `ended` once it is over.

        It is None for an audited change, and for a path that a function refuses for its length. A call tries one alias
        at most, so that a client without rights has one more round trip in a call, not four.
        """
        match = match_route(method, path)
        now = self._now()
        with self._lock:
            memory = self._memory(now)
            if match is None or match.route.audit or len(path) > DIRECT_PATH_LENGTH_MAX:
                return None
            if memory.access is None or memory.invocations is None or _is_left(memory, now):
                return None
            if memory.is_probing:
                return None
            place, function = memory.access.place, match.route.function
            targets = {alias: place.alias_arn(function, alias) for alias in aliases_of(match.route)}
            open_to = [alias for alias, target in targets.items() if not _was_left(memory.left.get(target), now)]
            if not open_to:
                return None
            alias = min(open_to, key=lambda each: (targets[each] not in memory.let_in, each not in memory.let_in))
            memory.is_probing = is_probe = not memory.is_proven
            return Trial(targets[alias], alias, memory.invocations, is_probe)

    def ended(self, trial: Trial) -> None:
        """The trial is over, whatever came of it."""
        if trial.is_probe:
            with self._lock:
                self._memory(self._now()).is_probing = False

    def note_answer(self, trial: Trial, status: int, *, is_refused: bool) -> None:
        """Lambda answered. With `is_refused` the alias is left, and a stage without it is forgotten."""
        now = self._now()
        with self._lock:
            memory = self._memory(now)
            memory.is_proven, memory.lost = True, 0
            if not is_refused:
                memory.let_in |= {trial.target, trial.alias}
                return
            _log.warning(
                "%s answers %d and refuses the call: calls go another way for ten minutes", trial.target, status
            )
            memory.left[trial.target] = now
            memory.let_in.discard(trial.target)
            if status == _MISSING and memory.access is not self._given:
                memory.access, memory.asked_at = None, now

    def note_no_answer(self, *, maybe_sent: bool) -> None:
        """Lambda did not answer: it is left if it never did, if there is no connection, or for the second time."""
        now = self._now()
        with self._lock:
            memory = self._memory(now)
            memory.lost += 1
            if not maybe_sent or not memory.is_proven or memory.lost >= _LOST_MAX:
                _log.warning("Lambda does not answer: calls go by HTTP for %d s", SDK_DETOUR_MS // 1_000)
                memory.lambda_left_at, memory.is_proven, memory.lost = now, False, 0

    def _memory(self, now: Instant) -> _Memory:
        """The memory of this process, without an address that is too old."""
        if self._forks != fork_count():
            self._memory_of_process, self._forks = self._new_memory(), fork_count()
        memory = self._memory_of_process
        if not self._lasts and memory.learned_at is not None and memory.learned_at.age_ms(now) >= SDK_DETOUR_MS:
            memory.access = memory.learned_at = memory.asked_at = None
            memory.has_asked = False
        return memory

    def _new_memory(self) -> _Memory:
        return _Memory(self._given, None if self._given is None else Invocations(self._given))

    def _told(self, answer: Response) -> FunctionsAccess | None:
        """The first address that this client may use. The client knows no other transport, and trusts no other host."""
        for address in _addresses_in(answer.body):
            try:
                found = self._access_of(address)
            except ValueError as error:
                _log.warning("calls go by HTTP: %s", error)
                continue
            if self._hint not in (None, found.place.arn):
                _log.warning("PENSTOCK_FUNCTIONS is %s, and the service at the URL has %s", self._hint, address)
            return found
        return None


def _addresses_in(body: bytes) -> list[str]:
    try:
        told: Any = json.loads(body)
    except ValueError:
        return []
    listed = told.get("addresses") if isinstance(told, Mapping) else None
    return [
        str(each.get("address", ""))
        for each in (listed if isinstance(listed, list) else ())
        if isinstance(each, Mapping) and each.get("transport") == LAMBDA
    ]


def _is_left(memory: _Memory, now: Instant) -> bool:
    return _was_left(memory.lambda_left_at, now)


def _was_left(at: Instant | None, now: Instant) -> bool:
    return at is not None and at.age_ms(now) < SDK_DETOUR_MS
