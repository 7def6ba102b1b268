"""A call as an invocation of a function by Lambda's API: the request, and what each of Lambda's answers means.

`POST /2015-03-31/functions/<ARN with the alias>/invocations`, signed for `lambda`. Lambda answers 200 with the
function's result, or for the function with an error. The rules for a failed call are those of HTTP:

| Lambda's answer                                   | the call                                  |
|---------------------------------------------------|-------------------------------------------|
| 200                                               | has the answer that the function gave     |
| 200 with `X-Amz-Function-Error`: crash, timeout   | may have been applied                     |
| 429, 403, 404, 409, 413, other 4xx                | was not begun                             |
| 5xx, or none                                      | may have been applied                     |

Source: docs.aws.amazon.com/lambda/latest/api/API_Invoke.html.
"""

import json
from binascii import Error as Base64Error
from binascii import a2b_base64, b2a_base64
from collections.abc import Mapping
from typing import Any, NamedTuple
from urllib.parse import quote

from penstock.configuration import Configuration
from penstock.errors import NotConfiguredError, error_class
from penstock.http.http_message import JSON_TYPE, Response
from penstock.http.no_answer import NoAnswerError, no_answer
from penstock.http.signature import SignedRequest, event_headers, reader_of, shift_to_sign_again, signed_for
from penstock.http.sigv4 import Keys, Scope, signed_headers
from penstock.system import ProcessLock, wall_clock_ms
from penstock.transports.functions_place import FunctionsAccess
from penstock_core.direct.caller_proof import PROOF_BODY, PROOF_METHOD, CallerProof, unsigned_headers
from penstock_core.direct.function_arn import WAY_HEADER, WAY_REFUSED
from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.limits import SDK_PROOF_RENEW_MS, SDK_PROOFS_KEPT_MAX
from penstock_core.routes import aliases_of, match_route

_READS = ("GET", "HEAD")
_UNTRIED, _ALLOWED, _REFUSED = 1, 0, 2
SERVICE = "lambda"
EVENT_VERSION = 1
_OK = 200
_FUNCTION_ERROR = "x-amz-function-error"
_DENIED = "AccessDeniedException"
_MISSING = "ResourceNotFoundException"
_CODES = {
    403: ErrorCode.ACCESS_DENIED,
    409: ErrorCode.STORAGE_UNAVAILABLE,  # the function is being updated
    413: ErrorCode.REQUEST_TOO_LARGE,
    429: ErrorCode.THROTTLED,
}
_SAME_BY_HTTP = (409, 413, 429)
_FOREIGN = "foreign"  # in WAY_HEADER, which a function of another program does not send


def event_bytes(method: str, path: str, query: Mapping[str, str], body: bytes, proof: CallerProof) -> bytes:
    """The event of a call. The body is in it as base64, because Lambda takes JSON only."""
    head = {"penstock": EVENT_VERSION, "method": method, "path": path, "query": dict(query), "proof": proof.to_json()}
    text = json.dumps(head, separators=(",", ":")).encode()
    return b"".join((text[:-1], b',"body":"', b2a_base64(body, newline=False), b'"}'))  # escaped by its alphabet


def invocation(signer: Configuration, alias_arn: str, event: bytes, shift_ms: int = 0) -> SignedRequest:
    """The signed request that invokes an alias. It hashes the event, and may ask for fresh credentials.

    `shift_ms` is that of `sign`.
    """
    url = f"{signer.url}/2015-03-31/functions/{quote(alias_arn, safe='')}/invocations"
    headers = {"Content-Type": JSON_TYPE, "X-Amz-Invocation-Type": "RequestResponse"}
    return SignedRequest(url, signed_for(signer, SERVICE, "POST", url, headers, event, shift_ms))


def is_denied(answer: Response) -> bool:
    """True if IAM does not let the caller invoke this alias. Nothing was done."""
    return answer.status == 403 and _told(answer)[0] == _DENIED


def is_no_way(answer: Response) -> bool:
    """True if Lambda refused the call before the function began, for a reason that is none by another way.

    A throttled function, one that is being updated and a request that is too large are the same by HTTP.
    """
    return 400 <= answer.status < 500 and answer.status not in _SAME_BY_HTTP


def is_way_refused(answer: Response) -> bool:
    """True if the service, whose answer this is, refused the way by which the call came. Nothing was done."""
    return _header(answer, WAY_HEADER.lower()) == WAY_REFUSED


def is_foreign(answer: Response) -> bool:
    """True if the function's result was none of Penstock's. The call may have applied: no client repeats it at once."""
    return _header(answer, WAY_HEADER.lower()) == _FOREIGN


def answer_of(answer: Response, alias_arn: str, *, is_read: bool) -> Response:
    """The service's answer to the call, or one in its form for what Lambda says.

    Raises NotConfiguredError if there is no such function or alias.
    """
    if _OK <= answer.status < 300:
        error = _header(answer, _FUNCTION_ERROR)
        if error:
            return _error(500, ErrorCode.INTERNAL, f"Lambda: {error} {_reason(answer)}", maybe_applied=not is_read)
        return _result_of(answer, is_read=is_read)
    name, message = _told(answer)
    if answer.status == 404 and name == _MISSING:
        raise NotConfiguredError(
            f"there is no {alias_arn}: deploy the stage with `-c direct=on` so that it takes direct calls, or use "
            "transport='http'"
        )
    text = f"Lambda answers {name or answer.status}: {message or 'no explanation'}"
    if answer.status == 403:
        text += (
            "; check that the policy allows lambda:InvokeFunction on this alias, that the credentials are those of the "
            "stage's account and have not expired, and that the clock is right"
        )
    is_server = answer.status >= 500
    code = ErrorCode.INTERNAL if is_server else _CODES.get(answer.status, ErrorCode.INVALID_REQUEST)
    return _error(
        answer.status, code, text, maybe_applied=is_server and not is_read, retry_after=_header(answer, "retry-after")
    )


def _result_of(answer: Response, *, is_read: bool) -> Response:
    """The answer that a function's result has."""
    try:
        result: Any = json.loads(answer.body)
        body = result.get("body") or ""
        data = a2b_base64(body, strict_mode=True) if result.get("isBase64Encoded") else body.encode()
        headers = {str(name): str(value) for name, value in result["headers"].items()}
        return Response(int(result["statusCode"]), headers, data)
    except (ValueError, KeyError, TypeError, AttributeError, Base64Error):
        text = "the function's result is none of Penstock's: check that it is one of the stage's functions"
        told = _error(500, ErrorCode.INTERNAL, text, maybe_applied=not is_read)
        return Response(told.status, {**told.headers, WAY_HEADER: _FOREIGN}, told.body)


def _error(status: int, code: ErrorCode, message: str, *, maybe_applied: bool, retry_after: str = "") -> Response:
    error = PenstockError(code, message, maybe_applied=maybe_applied)
    headers = {"Content-Type": JSON_TYPE, **({"Retry-After": retry_after} if retry_after else {})}
    return Response(status, headers, json.dumps({"error": error.to_json()}).encode())


def _told(answer: Response) -> tuple[str, str]:
    """The name and the text of an error of Lambda's API."""
    try:
        document = json.loads(answer.body)
    except ValueError:
        document = {}
    document = document if isinstance(document, dict) else {}
    name = _header(answer, "x-amzn-errortype") or str(document.get("__type") or document.get("Code") or "")
    text = document.get("message") or document.get("Message") or ""
    return name.partition(":")[0].rpartition("#")[2][:100], str(text)[:500]


def _reason(answer: Response) -> str:
    """The text of a function's error: type and message of an exception, or that it ran out of time."""
    try:
        document = json.loads(answer.body)
    except ValueError:
        return ""
    if not isinstance(document, dict):
        return ""
    return f"{document.get('errorType', '')}: {document.get('errorMessage', '')}"[:300]


def _header(answer: Response, name: str) -> str:
    return next((value for each, value in answer.headers.items() if each.lower() == name), "")


class Call(NamedTuple):
    """A request of the API, as `Transport.call` has it. The service answers the same for any headers."""

    method: str
    path: str
    query: Mapping[str, str]
    body: bytes


class Prepared(NamedTuple):
    """A signed request, and its body."""

    signed: SignedRequest
    event: bytes


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
        self._shift_ms = 0  # of this machine's clock, as Lambda has told it last

    def reader(self) -> tuple[str, str]:
        """The caller and the service (abilities.py). It may be slow. Raises NotConfiguredError."""
        return self._access.place.arn, reader_of(self._access.signer)[1]

    def targets(self, method: str, path: str) -> list[str]:
        """The ARNs of the aliases that serve the route, the likeliest first. Raises UNKNOWN_ROUTE for no route."""
        match = match_route(method, path)
        if match is None:
            code = ErrorCode.UNKNOWN_ROUTE
            raise error_class(code)(code, f"{method} {path:.100} is no route of this API")
        targets = [self._access.place.alias_arn(match.route.function, alias) for alias in aliases_of(match.route)]
        return sorted(targets, key=lambda target: self._ranks.get(target, _UNTRIED))

    def prepared(self, target: str, call: Call) -> Prepared:
        """The request that invokes the target, with a proof and a signature of now. Raises NotConfiguredError."""
        shift_ms = self._shift_ms
        event = event_bytes(call.method, call.path, call.query, call.body, self._proof.current(shift_ms))
        return Prepared(invocation(self._access.signer, target, event, shift_ms), event)

    def is_to_send_again(self, sent: Prepared, answer: Response) -> bool:
        """True if Lambda refused the request for its time. The function did not begin.

        A request that is prepared after that, its proof included, goes by Lambda's clock.
        """
        shift_ms = shift_to_sign_again(self._access.signer, sent.signed, answer.status, answer.headers)
        if shift_ms is not None:
            self._shift_ms = shift_ms
        return shift_ms is not None

    def is_denied(self, target: str, answer: Response) -> bool:
        """True if the caller may not invoke the target, and another one may do. It remembers either."""
        denied = is_denied(answer)
        self._ranks[target] = _REFUSED if denied else _ALLOWED
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


class _Made(NamedTuple):
    made_at_ms: int
    proof: CallerProof

    def is_fresh(self, now_ms: int) -> bool:
        """The proof is young, by a clock that was not set back."""
        return 0 <= now_ms - self.made_at_ms < SDK_PROOF_RENEW_MS


_MADE: dict[tuple[str, str, str, Keys, int], _Made] = {}  # by STS's URL, region, stage, keys, shift; the oldest first
_MADE_LOCK = ProcessLock()


class OwnProof:
    """Signs a proof for one stage, and signs anew when it is `SDK_PROOF_RENEW_MS` old, or when the keys are others.

    A warm function knows a proof that it has seen. So all clients of a process that have the same keys send the same
    proof for minutes, and STS hears of it once for each function instance. Several threads may use one.
    """

    def __init__(self, signer: Configuration, sts_url: str, stage: str) -> None:
        self._signer = signer
        self._sts_url = sts_url
        self._stage = stage
        self._own: tuple[Keys, _Made] | None = None

    def current(self, shift_ms: int = 0) -> CallerProof:
        """The proof of now. `shift_ms` corrects the clock of this machine. It may ask for fresh credentials.

        Raises NotConfiguredError if there are none.
        """
        frozen = self._signer.credentials.get_frozen_credentials()
        keys = Keys(frozen.access_key, frozen.secret_key, frozen.token)
        now_ms = wall_clock_ms() + shift_ms
        own = self._own
        if own is not None and own[0] == keys and own[1].is_fresh(now_ms):
            return own[1].proof
        name = (self._sts_url, self._signer.region, self._stage, keys, shift_ms)
        with _MADE_LOCK:
            made = _MADE.get(name)
            if made is None or not made.is_fresh(now_ms):
                _MADE.pop(name, None)
                made = _MADE[name] = _Made(now_ms, self._sign(keys, now_ms))
                while len(_MADE) > SDK_PROOFS_KEPT_MAX:
                    del _MADE[next(iter(_MADE))]
        self._own = keys, made
        return made.proof

    def _sign(self, keys: Keys, now_ms: int) -> CallerProof:
        scope = Scope(region=self._signer.region, service="sts")
        signed = signed_headers(
            keys, scope, PROOF_METHOD, f"{self._sts_url}/", unsigned_headers(self._stage), PROOF_BODY, now_ms / 1_000
        )
        return CallerProof(
            key=keys.access_key,
            time=signed["X-Amz-Date"],
            token=keys.token or "",
            signature=signed["Authorization"].rpartition("Signature=")[2],
        )
