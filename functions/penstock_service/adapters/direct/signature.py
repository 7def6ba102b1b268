"""AWS Signature Version 4 of a request that a service of AWS gets.

```
canonical request  method, path, query, the headers, their names, SHA-256 of the body or UNSIGNED-PAYLOAD
string to sign     "AWS4-HMAC-SHA256", the time, the scope, SHA-256 of the canonical request
scope              date/region/service/aws4_request
key                HMAC of date, region, service and "aws4_request" in turn, begun with "AWS4" + secret
```
Source: https://docs.aws.amazon.com/IAM/latest/UserGuide/create-signed-request.html
"""

import hmac
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from functools import lru_cache
from hashlib import sha256
from typing import NamedTuple

UNSIGNED = "UNSIGNED-PAYLOAD"
_ALGORITHM = "AWS4-HMAC-SHA256"


class Keys(NamedTuple):
    """An access key. `token` is the session token of temporary keys."""

    access_key: str
    secret_key: str
    token: str | None = None


KeySource = Callable[[], Keys]


class Signer:
    """Signs for one service in one region, with the time that `now_ms` tells."""

    def __init__(self, service: str, region: str, now_ms: Callable[[], int]) -> None:
        self._service = service
        self._region = region
        self._now_ms = now_ms

    def signed(
        self, keys: Keys, method: str, host: str, target: str, headers: Mapping[str, str], payload: str
    ) -> dict[str, str]:
        """The headers, and those of the signature, which covers all of them and the host.

        `target` is a path in S3's form, encoded once, with a query of at most one name and no value. `payload` is the
        SHA-256 of the body in hexadecimal, or `UNSIGNED`. Header names are in small letters, without Host.
        """
        moment = datetime.fromtimestamp(self._now_ms() / 1_000, UTC).strftime("%Y%m%dT%H%M%SZ")
        sent = {**headers, "x-amz-date": moment}
        covered = sorted([*sent.items(), ("host", host)])
        names = ";".join(name for name, _ in covered)
        path, _, query = target.partition("?")
        lines = "".join(f"{name}:{value}\n" for name, value in covered)
        canonical = f"{method}\n{path}\n{query}{'=' if query else ''}\n{lines}\n{names}\n{payload}"
        scope = f"{moment[:8]}/{self._region}/{self._service}/aws4_request"
        text = f"{_ALGORITHM}\n{moment}\n{scope}\n{sha256(canonical.encode()).hexdigest()}"
        key = _signing_key(keys.secret_key, moment[:8], self._region, self._service)
        signature = hmac.digest(key, text.encode(), "sha256").hex()
        sent["authorization"] = (
            f"{_ALGORITHM} Credential={keys.access_key}/{scope}, SignedHeaders={names}, Signature={signature}"
        )
        return sent


@lru_cache(maxsize=16)
def _signing_key(secret_key: str, *scope: str) -> bytes:
    """The key of one day, region and service: the same for all requests of a day."""
    key = b"AWS4" + secret_key.encode()
    for part in (*scope, "aws4_request"):
        key = hmac.digest(key, part.encode(), "sha256")
    return key
