"""The principal that calls: the IAM role or user whose signature API Gateway has checked.

A hash of its ARN stands for it, so that items and logs hold no names. A session of an assumed role counts as its role:

    arn:aws:sts::111122223333:assumed-role/ledger/i-0abc     a session of role ledger
    arn:aws:sts::111122223333:assumed-role/ledger            what is hashed

So a role keeps what belongs to it over restarts, hosts and renewals of its credentials.
"""

import hashlib

from penstock_handlers.edge.http import Event

_HASH_DIGITS = 32  # 128 bits


def principal_of(event: Event) -> str:
    """A hash of the caller's role or user; "" if the event names no caller."""
    iam = event["requestContext"].get("authorizer", {}).get("iam", {})
    return principal_hash(iam.get("userArn") or "")


def principal_hash(arn: str) -> str:
    """The hash that stands for the ARN of a user, a role's session, or another principal; "" for ""."""
    if not arn:
        return ""
    prefix, _, resource = arn.rpartition(":")
    kind, _, rest = resource.partition("/")
    if kind == "assumed-role":
        resource = f"{kind}/{rest.partition('/')[0]}"
    return hashlib.sha256(f"{prefix}:{resource}".encode()).hexdigest()[:_HASH_DIGITS]
