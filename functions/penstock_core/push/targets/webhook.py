"""The signature of an HTTPS delivery, by the scheme of Standard Webhooks 1.0.0 (standardwebhooks.com). Pure.

```
 webhook-id         msg_4f0c…          names the records: the same in each attempt
 webhook-timestamp  1790000000         seconds since 1970, of this attempt
 webhook-signature  v1,<base64> …      HMAC-SHA256 of "<id>.<timestamp>.<body>", once for each secret
```

A secret is `whsec_` and the base64 of its random bytes. A text may hold two secrets, separated by a space. The sender
then signs with both, and the receiver takes either, so that you can change a secret without a pause. No error shows a
secret or the signature that would have been right.
"""

import base64
import binascii
import hashlib
import hmac
import re
from collections.abc import Iterable
from typing import Protocol

from penstock_core import limits
from penstock_core.errors import ErrorCode, PenstockError, shown

ID_HEADER, TIMESTAMP_HEADER, SIGNATURE_HEADER = "webhook-id", "webhook-timestamp", "webhook-signature"
SECRET_PREFIX = "whsec_"  # noqa: S105 - what each secret begins with
_VERSION = "v1,"
_ID = re.compile(r"[\w-]{1,256}", re.ASCII)  # without the full stop, which separates the signed parts
_TIMESTAMP = re.compile(r"[0-9]{1,12}")


class HeaderItems(Protocol):
    """The headers of a request: a mapping, or another object with its `items`."""

    def items(self) -> Iterable[tuple[str, str]]:
        """Names, in any case, with their values."""


def sign(secret: str, message_id: str, timestamp_s: int, body: bytes) -> dict[str, str]:
    """The three headers of an attempt at `timestamp_s`. Raises INVALID_CONFIG for a bad secret."""
    parts = _signed_parts(message_id, str(timestamp_s), body)
    signatures = [f"{_VERSION}{_signature(key, parts)}" for key in parse_secret(secret)]
    return {
        ID_HEADER: message_id,
        TIMESTAMP_HEADER: str(timestamp_s),
        SIGNATURE_HEADER: " ".join(signatures),
    }


def verify(
    secret: str, headers: HeaderItems, body: bytes, now_s: int, tolerance_s: int = limits.WEBHOOK_TOLERANCE_S
) -> str:
    """The message id of a request whose signature is right and whose time is within `tolerance_s` of `now_s`.

    Raises ACCESS_DENIED naming what is wrong, and INVALID_CONFIG for a bad secret. Signatures of other versions than v1
    are passed over. Someone who has seen a request can send it again for `tolerance_s`: the message id tells.
    """
    keys = parse_secret(secret)
    message_id, timestamp, signatures = _headers(headers)
    if not _ID.fullmatch(message_id):
        raise _denied(f"{ID_HEADER}={shown(message_id)}: it must be 1 to 256 letters, digits, _ and -")
    if not _TIMESTAMP.fullmatch(timestamp):
        raise _denied(f"{TIMESTAMP_HEADER}={shown(timestamp)}: it must be seconds since 1970")
    age_s = now_s - int(timestamp)
    if abs(age_s) > tolerance_s:
        raise _denied(
            f"{TIMESTAMP_HEADER}={timestamp} is {abs(age_s)} s {'before' if age_s > 0 else 'after'} this machine's "
            f"clock, which allows {tolerance_s} s: it is a replay, or a clock is wrong"
        )
    given = [each.removeprefix(_VERSION) for each in signatures.split(" ") if each.startswith(_VERSION)]
    if not given:
        raise _denied(f"{SIGNATURE_HEADER} has no signature of version v1")
    parts = _signed_parts(message_id, timestamp, body)
    expected = [_signature(key, parts).encode() for key in keys]
    if not any(hmac.compare_digest(ours, theirs.encode(errors="replace")) for ours in expected for theirs in given):
        raise _denied(
            f"{SIGNATURE_HEADER} is not that of this body: pass the body's bytes as they came, and the subscription's "
            "secret"
        )
    return message_id


def parse_secret(text: str) -> tuple[bytes, ...]:
    """The keys of the secret, or of two separated by a space. Raises INVALID_CONFIG, without the text."""
    keys = tuple(_key(each) for each in text.split(" ", limits.WEBHOOK_SECRETS_MAX))
    low, high = limits.WEBHOOK_SECRET_BYTES_MIN, limits.WEBHOOK_SECRET_BYTES_MAX
    if len(keys) > limits.WEBHOOK_SECRETS_MAX or not all(low <= len(key) <= high for key in keys):
        raise PenstockError(
            ErrorCode.INVALID_CONFIG,
            f"secret: give {SECRET_PREFIX} and the base64 of {low} to {high} random bytes, or two such texts separated "
            "by a space; it is not shown here",
        )
    return keys


def _key(text: str) -> bytes:
    """The bytes of one secret; none for a text of another form. The padding of base64 may be left out."""
    if not text.startswith(SECRET_PREFIX):
        return b""
    encoded = text.removeprefix(SECRET_PREFIX).rstrip("=")
    try:
        return base64.b64decode(encoded + "=" * (-len(encoded) % 4), validate=True)
    except (binascii.Error, ValueError):
        return b""


def _headers(headers: HeaderItems) -> tuple[str, str, str]:
    """Id, timestamp and signatures. Raises ACCESS_DENIED if one of them is missing or comes twice."""
    found: dict[str, str] = {}
    for name, value in headers.items():
        known = name.lower()
        if known in (ID_HEADER, TIMESTAMP_HEADER, SIGNATURE_HEADER):
            if known in found:
                raise _denied(f"the header {known} comes twice")
            found[known] = value
    for name in (ID_HEADER, TIMESTAMP_HEADER, SIGNATURE_HEADER):
        if name not in found:
            raise _denied(f"the header {name} is missing")
    return found[ID_HEADER], found[TIMESTAMP_HEADER], found[SIGNATURE_HEADER]


def _signed_parts(message_id: str, timestamp: str, body: bytes) -> bytes:
    return f"{message_id}.{timestamp}.".encode() + body


def _signature(key: bytes, signed: bytes) -> str:
    return base64.b64encode(hmac.digest(key, signed, hashlib.sha256)).decode()


def _denied(why: str) -> PenstockError:
    return PenstockError(ErrorCode.ACCESS_DENIED, f"a webhook was refused: {why}")
