"""Tokens of callers without IAM: the issuer that a stage trusts, and the principal that the claims of a token name.

API Gateway has checked a token's signature, issuer, audience and times before its claims come here. All that is left to
its holder is the value of the claim, and for some issuers its holder chooses that value. So a value counts only if one
rule can name it and nothing else: printable ASCII without spaces, and without the `*` of patterns. Letters that look
alike in two scripts never make two principals that an operator takes for one.

The settings of a stage that decide without rules, from the environment of its functions.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from penstock_core.acls.principal import JWT, Principal, jwt_principal
from penstock_core.acls.rule import ALLOW, DENY, EVERY, NamePattern, parse_principal_pattern
from penstock_core.errors import ErrorCode, PenstockError, shown
from penstock_core.limits import ACL_PRINCIPAL_LENGTH_MAX

ISSUER_VARIABLE = "PENSTOCK_JWT_ISSUER"
CLAIM_VARIABLE = "PENSTOCK_JWT_CLAIM"
CLAIM_DEFAULT = "sub"
_VALUE = re.compile(r"[!-)+-~]+", re.ASCII)  # printable, without a space and without `*`
_LIST = "["  # API Gateway writes a claim that is a list as [one two]
_ISSUER_LENGTH_MAX = 256
_URL_SCHEMES = ("http://", "https://")
DEFAULT_VARIABLE = "PENSTOCK_ACL_DEFAULT"
SUPER_VARIABLE = "PENSTOCK_SUPER_PRINCIPALS"


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenSettings:
    """The issuer whose tokens name callers, and the claim that has the caller's name."""

    issuer: str
    claim: str = CLAIM_DEFAULT


def token_settings_of(environ: Mapping[str, str]) -> TokenSettings | None:
    """The settings in `PENSTOCK_JWT_ISSUER` and `PENSTOCK_JWT_CLAIM`; None where no token is taken.

    Raises ValueError for an issuer that is no URL.
    """
    issuer = environ.get(ISSUER_VARIABLE)
    if not issuer:
        return None
    check_issuer(issuer)
    return TokenSettings(issuer=issuer, claim=environ.get(CLAIM_VARIABLE) or CLAIM_DEFAULT)


def check_issuer(issuer: str) -> None:
    """Raises ValueError for a text that is no URL, and for one whose principals could not be told apart."""
    url = urlsplit(issuer)
    is_url = issuer.startswith(_URL_SCHEMES) and bool(url.hostname) and not url.query and url.username is None
    if not is_url or not _VALUE.fullmatch(issuer) or "#" in issuer or len(issuer) > _ISSUER_LENGTH_MAX:
        raise ValueError(
            f"issuer {issuer!r:.300}: give the URL that tokens have as `iss`, without query and fragment, "
            f"{_ISSUER_LENGTH_MAX} characters at most"
        )


def token_principal(claims: Any, settings: TokenSettings | None) -> Principal:
    """The principal of a token with these claims. Raises NOT_AUTHORIZED for claims that name none."""
    if settings is None:
        raise _refused("this stage takes no tokens: sign the request by AWS Signature Version 4")
    if not isinstance(claims, Mapping) or claims.get("iss") != settings.issuer:
        raise _refused("the token is of another issuer than the stage trusts")
    if not claims.get("exp"):
        raise _refused("the token never expires: have it issued with exp")
    value = claims.get(settings.claim)
    if not isinstance(value, str) or not value:
        raise _refused(f"the token has no text in its claim {settings.claim}")
    if value.startswith(_LIST) or not _VALUE.fullmatch(value):
        raise _refused(
            f"the claim {settings.claim} is {shown(value)}: a principal has printable ASCII, no space, no {EVERY}, "
            f"and no {_LIST} at its beginning"
        )
    found = jwt_principal(settings.issuer, value)
    if len(found.name) > ACL_PRINCIPAL_LENGTH_MAX:
        raise _refused(f"the principal of the token has more than {ACL_PRINCIPAL_LENGTH_MAX} characters")
    return found


def full_principal(text: str, settings: TokenSettings | None) -> str:
    """The principal or pattern with its issuer: `jwt:alice` stands for `alice` of the issuer that the stage trusts.

    A text that names an issuer has its URL. Every other one is a subject, whatever `#` it has. Texts without `jwt:`
    stay as they are. Raises INVALID_REQUEST for `jwt:alice` where no token is taken, and for an issuer without a
    subject.
    """
    if not text.startswith(JWT):
        return text
    subject = text.removeprefix(JWT)
    has_issuer = subject.lower().startswith(_URL_SCHEMES)
    if has_issuer and "#" in subject:
        return text
    if settings is None or has_issuer:
        raise PenstockError(ErrorCode.INVALID_REQUEST, f"principal={shown(text)}: give jwt:ISSUER#SUBJECT")
    return f"{JWT}{settings.issuer}#{subject}"


def trusted_principal(text: str, settings: TokenSettings | None) -> str:
    """As `full_principal`, for a rule or a quota that is to be made: one for another issuer would match no caller.

    Raises INVALID_REQUEST for that, too.
    """
    full = full_principal(text, settings)
    if full.startswith(JWT) and (settings is None or not full.startswith(f"{JWT}{settings.issuer}#")):
        trusted = "no token" if settings is None else f"tokens of {settings.issuer} alone, give jwt:SUBJECT"
        raise PenstockError(ErrorCode.INVALID_REQUEST, f"principal={shown(text)}: this stage takes {trusted}")
    return full


def _refused(why: str) -> PenstockError:
    return PenstockError(ErrorCode.NOT_AUTHORIZED, why)


@dataclass(frozen=True, slots=True, kw_only=True)
class AclSettings:
    """`allows_by_default` gives each right that no rule is about. `super_principals` may do everything at all times.

    Neither is about subjects of tokens. With `tokens`, the stage takes those of that issuer.
    """

    allows_by_default: bool = True
    super_principals: tuple[NamePattern, ...] = ()
    tokens: TokenSettings | None = None


def acl_settings_of(environ: Mapping[str, str]) -> AclSettings:
    """The settings in `PENSTOCK_ACL_DEFAULT` (allow, deny) and `PENSTOCK_SUPER_PRINCIPALS` (a JSON array of patterns).

    `token_settings_of` reads those of tokens.
    The first one must be there: a stage that denies by default is not open to a program that does not know it. Raises
    ValueError and INVALID_REQUEST for values that mean nothing.
    """
    default = environ.get(DEFAULT_VARIABLE)
    if default not in (ALLOW, DENY):
        raise ValueError(f"{DEFAULT_VARIABLE}={default!r}: must be {ALLOW} or {DENY}, as the stage's functions have it")
    patterns = json.loads(environ.get(SUPER_VARIABLE, "[]"))
    return AclSettings(
        allows_by_default=default == ALLOW,
        super_principals=tuple(parse_principal_pattern(each) for each in patterns),
        tokens=token_settings_of(environ),
    )
