"""The principal of a request: an IAM user, the role of a session, or the subject of a token.

Rules name a principal. A session of an assumed role counts as its role, because a session's name is anybody's choice:

    arn:aws:sts::111122223333:assumed-role/ledger/i-0abc     a session, as API Gateway tells it
    arn:aws:iam::111122223333:role/ledger                    the principal
    jwt:https://login.example#ada                            the subject `ada` of that issuer's tokens

    arn:aws:sts::111122223333:federated-user/any             a session of GetFederationToken: its name is a choice, too,
    arn:aws:sts::111122223333:federated-user                 so all of an account are one principal, a stranger to rules

A session's ARN does not tell the path of its role. The names of roles are unique in an account whatever their paths, so
the principal has none.
"""

import hashlib
from dataclasses import dataclass
from functools import lru_cache

_DIGEST_DIGITS = 32  # 128 bits
_REMEMBERED = 1_024
JWT = "jwt:"
FEDERATED = ":federated-user"


@dataclass(frozen=True, slots=True, kw_only=True)
class Principal:
    """A caller whose identity API Gateway has checked. Both are "" where a request names no caller.

    `name` is what rules match. `digest` stands for it in items and metrics, which hold no names. A role keeps both over
    restarts, hosts and renewals of its credentials.
    """

    name: str
    digest: str

    @property
    def is_token(self) -> bool:
        """True for the subject of a token."""
        return is_token(self.name)


ANONYMOUS = Principal(name="", digest="")


@lru_cache(_REMEMBERED)
def iam_principal(arn: str) -> Principal:
    """The principal of a user's ARN, of a session's or a role's; ANONYMOUS for ""."""
    if not arn:
        return ANONYMOUS
    name = role_of_session(arn)
    return Principal(name=name, digest=_digest(_as_session(name)))


@lru_cache(_REMEMBERED)
def jwt_principal(issuer: str, subject: str) -> Principal:
    """The principal of a token. An issuer's URL has no `#`, so no subject looks like that of another issuer."""
    name = f"{JWT}{issuer}#{subject}"
    return Principal(name=name, digest=_digest(name))


def named_principal(name: str) -> Principal:
    """The principal of a name as rules write it."""
    return Principal(name=name, digest=_digest(name)) if name.startswith(JWT) else iam_principal(name)


def is_stranger(name: str) -> bool:
    """True for principals that only rules about their kind allow something: subjects of tokens, and federated users."""
    return is_token(name) or name.endswith(FEDERATED)


def is_token(name: str) -> bool:
    """True if the name of a principal is that of a token's subject."""
    return name.startswith(JWT)


def role_of_session(arn: str) -> str:
    """The ARN of the role, without a path, of a session or a role. A federated user loses its name.

    Other ARNs stay as they are.
    """
    parts = arn.split(":", 5)
    if len(parts) < 6:
        return arn
    _, partition, service, _, account, resource = parts
    kind, _, rest = resource.partition("/")
    if service == "sts" and kind == "assumed-role":
        return f"arn:{partition}:iam::{account}:role/{rest.partition('/')[0]}"
    if service == "sts" and kind == "federated-user":
        return f"arn:{partition}:sts::{account}{FEDERATED}"
    if service == "iam" and kind == "role":
        return f"arn:{partition}:iam::{account}:role/{rest.rpartition('/')[2]}"
    return arn


def _as_session(name: str) -> str:
    """The text that is hashed: what transactional ids were bound to before there were rules."""
    prefix, kind, role = name.partition(":role/")
    if not kind:
        return name
    return f"{prefix.replace(':iam:', ':sts:')}:assumed-role/{role}"


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:_DIGEST_DIGITS]
