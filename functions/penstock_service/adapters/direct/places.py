"""Where the services of AWS answer, and with which keys a function calls them.

AWS Signature Version 4 of a request that a service of AWS gets.

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
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from hashlib import sha256
from typing import NamedTuple

# The domain of a region by the first part of its name. botocore knows the isolated partitions, whose domains differ.
_DOMAINS = {"cn": "amazonaws.com.cn", "eusc": "amazonaws.eu"}
_DOMAIN = "amazonaws.com"
_PROXIES = ("HTTPS_PROXY", "HTTP_PROXY", "ALL_PROXY")
_ISOLATED = ("us-iso", "eu-iso")
SESSIONS_VARIABLE, READ_ONLY = "PENSTOCK_SESSIONS", "ReadOnly"
UNSIGNED = "UNSIGNED-PAYLOAD"
_ALGORITHM = "AWS4-HMAC-SHA256"


@dataclass(frozen=True, slots=True, kw_only=True)
class Places:
    """The origins of a region's services. `endpoints` has those that the environment sets, by service.

    With `reads_only`, the role may open sessions of directory buckets that read, and no other (`SESSIONS_VARIABLE`).
    """

    region: str
    endpoints: Mapping[str, str]
    reads_only: bool = False

    def endpoint(self, service: str) -> str | None:
        """The origin that the environment sets for the service, as on the local stack. None on AWS."""
        return self.endpoints.get(service)

    def origin(self, service: str) -> str:
        """The origin of the service, such as `https://dynamodb.eu-west-1.amazonaws.com`."""
        return self.endpoint(service) or f"https://{service}.{self.region}.{self._domain}"

    def bucket_origin(self, bucket: str, zone_id: str | None) -> str:
        """The origin of a bucket on AWS. A directory bucket answers in the zone with this id, such as `use1-az4`."""
        if zone_id is not None:
            return f"https://{bucket}.s3express-{zone_id}.{self.region}.{self._domain}"
        return f"https://{bucket}.s3.{self.region}.{self._domain}"

    @property
    def _domain(self) -> str:
        return _DOMAINS.get(self.region.partition("-")[0], _DOMAIN)


def places_of(environ: Mapping[str, str]) -> Places | None:
    """The places that a function's environment names by `AWS_REGION`.

    None where only botocore knows the way: isolated partitions, FIPS and dual-stack endpoints, and proxies.

    Reads botocore's variables `AWS_ENDPOINT_URL`, `AWS_ENDPOINT_URL_DYNAMODB` and `AWS_ENDPOINT_URL_S3`, too.
    """
    region = environ.get("AWS_REGION") or environ.get("AWS_DEFAULT_REGION")
    if not region or region.startswith(_ISOLATED) or _needs_botocore(environ):
        return None
    common = environ.get("AWS_ENDPOINT_URL")
    found = {service: environ.get(f"AWS_ENDPOINT_URL_{service.upper()}") or common for service in ("dynamodb", "s3")}
    return Places(
        region=region,
        endpoints={service: url.rstrip("/") for service, url in found.items() if url},
        reads_only=environ.get(SESSIONS_VARIABLE) == READ_ONLY,
    )


def _needs_botocore(environ: Mapping[str, str]) -> bool:
    asks = (environ.get(f"AWS_USE_{name}_ENDPOINT", "").lower() == "true" for name in ("FIPS", "DUALSTACK"))
    has_proxy = (environ.get(name) for each in _PROXIES for name in (each, each.lower()))
    return any(asks) or any(has_proxy)


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


def keys_of(environ: Mapping[str, str]) -> Keys | None:
    """The keys that Lambda gives a function in its environment, for as long as the instance lives. None without."""
    access_key, secret_key = environ.get("AWS_ACCESS_KEY_ID"), environ.get("AWS_SECRET_ACCESS_KEY")
    if not access_key or not secret_key:
        return None
    return Keys(access_key, secret_key, environ.get("AWS_SESSION_TOKEN") or None)
