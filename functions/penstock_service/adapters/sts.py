"""AWS STS tells who has signed a proof: the function sends the request that the caller has signed.

The address is the function's own setting. Method, body and headers are those of caller_proof.py. STS needs no right for
GetCallerIdentity, and no answer of it leads anywhere else: redirects are not followed, and answers are bounded.
"""

import re
from collections.abc import Mapping

import urllib3
from urllib3.exceptions import HTTPError

from penstock_core.direct.caller_proof import PROOF_BODY, PROOF_METHOD, CallerProof, refused_proof
from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.limits import KIB
from penstock_service.adapters.aws_clock import IdleGuard

_CONNECT_TIMEOUT_S = 1
_READ_TIMEOUT_S = 2
_ANSWER_BYTES_MAX = 16 * KIB
_ARN = re.compile(r"<Arn>(arn:[!-;=?-~]{1,2000})</Arn>", re.ASCII)
_CODE = re.compile(r"<Code>([A-Za-z.]{1,64})</Code>", re.ASCII)
_BUSY = frozenset({"Throttling", "ThrottlingException", "RequestLimitExceeded", "TooManyRequestsException"})
_TRIES = 2  # GetCallerIdentity changes nothing


def sts_url(environ: Mapping[str, str]) -> str:
    """STS of the function's own region, by its own environment. Callers have no say in it."""
    region = environ["AWS_REGION"]
    domain = "amazonaws.com.cn" if region.startswith("cn-") else "amazonaws.com"
    return environ.get("AWS_ENDPOINT_URL_STS") or environ.get("AWS_ENDPOINT_URL") or f"https://sts.{region}.{domain}"


class StsIdentities:
    """STS at `url`, such as https://sts.us-east-1.amazonaws.com."""

    def __init__(self, url: str) -> None:
        self._url = url.rstrip("/") + "/"
        timeout = urllib3.Timeout(connect=_CONNECT_TIMEOUT_S, read=_READ_TIMEOUT_S)
        self._pool = urllib3.PoolManager(timeout=timeout, retries=False)
        self._idle = IdleGuard(self._pool.clear)

    def arn_of(self, proof: CallerProof, stage: str) -> str:
        """As Identities says. It asks again once if STS does not answer."""
        headers = {**proof.headers(stage, stage.split(":")[3]), "Accept": "text/xml"}
        for is_last in (*[False] * (_TRIES - 1), True):
            try:
                status, text = self._ask(headers)
            except HTTPError as error:
                self._pool.clear()  # the next try takes a new connection
                why = type(error).__name__  # its text may hold the URL only, but nothing of a proof may slip
            else:
                if status == 200:
                    return _arn_in(text)
                why = _why_unavailable(status, text)
            if is_last:
                raise _unavailable(why)
        raise AssertionError

    def _ask(self, headers: dict[str, str]) -> tuple[int, str]:
        self._idle.before_call()
        answer = self._pool.request(
            PROOF_METHOD, self._url, body=PROOF_BODY, headers=headers, redirect=False, preload_content=False
        )
        try:
            data = answer.read(_ANSWER_BYTES_MAX + 1)
            if len(data) > _ANSWER_BYTES_MAX:
                answer.close()
                raise _unavailable(f"it answered more than {_ANSWER_BYTES_MAX} bytes")
        finally:
            answer.release_conn()
        return answer.status, data.decode(errors="replace")


def _arn_in(text: str) -> str:
    found = _ARN.findall(text)
    if len(found) != 1:
        raise _unavailable("its answer names no caller")
    return str(found[0])


def _why_unavailable(status: int, text: str) -> str:
    """The reason why STS told nothing. Raises NOT_AUTHORIZED for a refusal, by its code: the text has the request."""
    found = _CODE.search(text)
    code = found[1] if found else ""
    if 400 <= status < 500 and status != 429 and code not in _BUSY:
        raise refused_proof(
            f"AWS STS answers {code or status}: check that the credentials are those of a user or a role that still "
            "exists, that they have not expired, that the clock is right, and that the client calls this stage"
        )
    return f"it answers HTTP {status} {code}".rstrip()


def _unavailable(why: str) -> PenstockError:
    return PenstockError(
        ErrorCode.IDENTITY_UNAVAILABLE,
        f"AWS STS does not tell who calls: {why}; nothing was done, so try again, or use transport='http'",
    )
