"""The way out of a refusal: IAM and access rules refuse, and each has its own."""

from penstock.errors import AccessDeniedError


def remedy_of(error: AccessDeniedError, by_iam: str) -> str:
    """The service's own words where an access rule is missing: they name the command. Otherwise `by_iam`."""
    return f"an access rule decides it: {error.message}" if "operation" in error.facts else by_iam
