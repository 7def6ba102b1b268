"""The proof of who this client is, for functions that it invokes (docs/adr/0065)."""

import threading
from typing import NamedTuple

from penstock.configuration import Configuration
from penstock.http.sigv4 import Keys, Scope, signed_headers
from penstock.system import wall_clock_ms
from penstock_core.direct.caller_proof import PROOF_BODY, PROOF_METHOD, CallerProof, unsigned_headers
from penstock_core.limits import SDK_PROOF_RENEW_MS


class _Made(NamedTuple):
    keys: Keys
    made_at_ms: int
    proof: CallerProof


class OwnProof:
    """Signs a proof for one stage, and signs anew when it is `SDK_PROOF_RENEW_MS` old, or when the keys are others.

    A warm function knows a proof that it has seen. So a client sends the same one for minutes, and STS hears of it once
    for each function instance. Several threads may use one.
    """

    def __init__(self, signer: Configuration, sts_url: str, stage: str) -> None:
        self._signer = signer
        self._sts_url = sts_url
        self._stage = stage
        self._lock = threading.Lock()
        self._made: _Made | None = None

    def current(self) -> CallerProof:
        """The proof of now. It may ask for fresh credentials. Raises NotConfiguredError if there are none."""
        frozen = self._signer.credentials.get_frozen_credentials()
        keys = Keys(frozen.access_key, frozen.secret_key, frozen.token)
        now_ms = wall_clock_ms()
        with self._lock:
            made = self._made
            if made is None or made.keys != keys or not 0 <= now_ms - made.made_at_ms < SDK_PROOF_RENEW_MS:
                made = self._made = _Made(keys, now_ms, self._sign(keys, now_ms))
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
