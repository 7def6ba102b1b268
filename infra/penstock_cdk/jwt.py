"""The setting of the second API, for callers who have tokens (JWT) in place of IAM's keys (docs/adr/0054)."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from penstock_cdk.walls import RequestRate
from penstock_core.acls.tokens import CLAIM_DEFAULT, check_issuer

TOKEN_RATE = RequestRate(per_second=250, burst=250)  # of each route: strangers share the account's 10,000 with it
_CLAIM = re.compile(r"[A-Za-z0-9_:./-]{1,100}", re.ASCII)
_LOCAL = ("http://127.0.0.1:", "http://localhost:")
_AUDIENCES_MAX = 50  # API Gateway takes as many of one authorizer


@dataclass(frozen=True, slots=True, kw_only=True)
class Jwt:
    """The tokens that a stage takes: those of one `issuer`, for one of `audiences`.

    API Gateway reads the issuer's keys from `<issuer>/.well-known/openid-configuration`. The caller is
    `jwt:<issuer>#<claim>`. Choose a claim that no caller may choose: `sub`, unless you know better. With `scopes`, a
    token needs one of them, which keeps out ID tokens. `request_rate` applies to each route, for all tokens together;
    a route whose rate on the stage is lower has that.
    """

    issuer: str
    audiences: Sequence[str]
    claim: str = CLAIM_DEFAULT
    scopes: Sequence[str] = ()
    request_rate: RequestRate = TOKEN_RATE

    def __post_init__(self) -> None:
        """Raises ValueError for what would let in tokens that are not for this stage."""
        check_issuer(self.issuer)
        if not self.issuer.startswith(("https://", *_LOCAL)):
            raise ValueError(f"issuer {self.issuer!r}: API Gateway takes https:// only, as the keys come from there")
        if isinstance(self.audiences, str) or isinstance(self.scopes, str):
            raise ValueError("audiences and scopes are sequences of texts, not a text")
        if not 1 <= len(self.audiences) <= _AUDIENCES_MAX or not all(self.audiences):
            raise ValueError(f"audiences {[*self.audiences]}: give 1 to {_AUDIENCES_MAX}; a token of any would do else")
        if not all(self.scopes):
            raise ValueError(f"scopes {[*self.scopes]}: give each scope a name, or none")
        if not _CLAIM.fullmatch(self.claim):
            raise ValueError(f"claim {self.claim!r:.100}: give the name of a claim, such as sub")
