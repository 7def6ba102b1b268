"""The proof of a direct caller: its signature of a request that only AWS STS can check (docs/adr/0065).

The caller signs `GetCallerIdentity` of STS and sends the signature, not the request. The function builds the request
again from its own knowledge, and STS answers whose signature it is. Only four values come from the caller:

    key         the id of the access key
    time        the time of the signature: 20261128T130000Z
    token       the session token of temporary keys, "" without one
    signature   64 hexadecimal digits

Address, method, body, headers and their order are the function's. One signed header names the stage, account and region
included, so a proof for one stage is none for another. The method is that of Vault's and of Kubernetes' authenticators.
"""

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime

from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.limits import PROOF_AGE_MS_MAX, PROOF_AHEAD_MS_MAX, PROOF_TOKEN_LENGTH_MAX

PROOF_METHOD = "POST"
PROOF_BODY = b"Action=GetCallerIdentity&Version=2011-06-15"
STAGE_HEADER = "X-Penstock-Stage"
_CONTENT_TYPE = "application/x-www-form-urlencoded"
_FIELDS = frozenset({"key", "time", "token", "signature"})
_KEY = re.compile(r"[A-Z0-9]{16,128}", re.ASCII)
_TIME_TEXT = re.compile(r"\d{8}T\d{6}Z", re.ASCII)
_TOKEN = re.compile(r"[A-Za-z0-9+/=_.%-]*", re.ASCII)
_SIGNATURE = re.compile(r"[0-9a-f]{64}", re.ASCII)
_TIME = "%Y%m%dT%H%M%SZ"


@dataclass(frozen=True, slots=True, kw_only=True)
class CallerProof:
    """A caller's signature. It is a secret until it is too old: it is never in a log or in an error."""

    key: str
    time: str
    token: str = field(repr=False)
    signature: str = field(repr=False)

    @property
    def signed_at_ms(self) -> int:
        """The time of the signature. Raises ValueError for one that no calendar has."""
        return int(datetime.strptime(self.time, _TIME).replace(tzinfo=UTC).timestamp() * 1_000)

    def digest(self) -> bytes:
        """The hash by which an instance remembers the proof."""
        return hashlib.sha256("\n".join((self.key, self.time, self.token, self.signature)).encode()).digest()

    def headers(self, stage: str, region: str) -> dict[str, str]:
        """The headers of the request to STS of that region, but for Host, which is in the signature, too."""
        names = ["content-type", "host", "x-amz-date", *(["x-amz-security-token"] if self.token else [])]
        authorization = (
            f"AWS4-HMAC-SHA256 Credential={self.key}/{self.time[:8]}/{region}/sts/aws4_request, "
            f"SignedHeaders={';'.join([*names, STAGE_HEADER.lower()])}, Signature={self.signature}"
        )
        return {
            **unsigned_headers(stage),
            "X-Amz-Date": self.time,
            **({"X-Amz-Security-Token": self.token} if self.token else {}),
            "Authorization": authorization,
        }

    def to_json(self) -> dict[str, str]:
        """The proof as an event has it."""
        return {"key": self.key, "time": self.time, "token": self.token, "signature": self.signature}


def unsigned_headers(stage: str) -> dict[str, str]:
    """The headers that the caller signs, on top of those of every signature."""
    return {"Content-Type": _CONTENT_TYPE, STAGE_HEADER: stage}


def parse_proof(fields: object) -> CallerProof:
    """The proof of an event. Raises NOT_AUTHORIZED for anything else, and repeats none of it."""
    if not isinstance(fields, Mapping) or set(fields) != _FIELDS:
        raise refused_proof(f"it must have {', '.join(sorted(_FIELDS))} and nothing else")
    if not all(isinstance(each, str) for each in fields.values()):
        raise refused_proof("its fields must be texts")
    found = CallerProof(**{str(name): str(value) for name, value in fields.items()})
    _check("key", _KEY, found.key)
    _check("time", _TIME_TEXT, found.time)
    _check("token", _TOKEN, found.token)
    _check("signature", _SIGNATURE, found.signature)
    if len(found.token) > PROOF_TOKEN_LENGTH_MAX:
        raise refused_proof(f"its token has {len(found.token)} characters: {PROOF_TOKEN_LENGTH_MAX} are allowed")
    try:
        _ = found.signed_at_ms
    except ValueError:
        raise refused_proof("its time is no time") from None
    return found


def check_age(proof: CallerProof, now_ms: int) -> None:
    """Raises NOT_AUTHORIZED for a proof that is too old, or signed by a clock that is too far ahead."""
    age_ms = now_ms - proof.signed_at_ms
    if not -PROOF_AHEAD_MS_MAX <= age_ms <= PROOF_AGE_MS_MAX:
        way = "old" if age_ms > 0 else "ahead of the function's clock"
        raise refused_proof(f"it is {abs(age_ms) // 1_000} s {way}: set the caller's clock by NTP, and sign anew")


def refused_proof(why: str) -> PenstockError:
    """The error of a proof that proves nothing."""
    return PenstockError(ErrorCode.NOT_AUTHORIZED, f"the proof of the caller is refused: {why}")


def _check(name: str, form: re.Pattern[str], text: str) -> None:
    if not form.fullmatch(text):
        raise refused_proof(f"its {name} has a wrong form")


def account_of(arn: str) -> str:
    """The account in an ARN, "" for a text that is none."""
    parts = arn.split(":", 5)
    return parts[4] if len(parts) == 6 else ""
