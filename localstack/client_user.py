"""The IAM user of the local stack's clients, which sign with its keys. The emulator checks no root key, only users'."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from botocore.exceptions import ClientError

USER = "penstock-local"


def ensure_user(iam: Any, policy_arns: Iterable[str], known: Mapping[str, str]) -> dict[str, str]:
    """Makes the user, attaches the policies, and returns its keys as environment variables.

    Keeps the key in `known` if it belongs to the user. Otherwise makes a new key, because IAM tells a secret only once.
    """
    try:
        iam.create_user(UserName=USER)
    except ClientError as error:
        if error.response["Error"]["Code"] != "EntityAlreadyExists":
            raise
    for arn in policy_arns:
        iam.attach_user_policy(UserName=USER, PolicyArn=arn)
    keys = [key["AccessKeyId"] for key in iam.list_access_keys(UserName=USER)["AccessKeyMetadata"]]
    if known.get("AWS_ACCESS_KEY_ID") in keys and known.get("AWS_SECRET_ACCESS_KEY"):
        return {name: known[name] for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")}
    for key in keys:
        iam.delete_access_key(UserName=USER, AccessKeyId=key)
    made = iam.create_access_key(UserName=USER)["AccessKey"]
    return {"AWS_ACCESS_KEY_ID": made["AccessKeyId"], "AWS_SECRET_ACCESS_KEY": made["SecretAccessKey"]}


def read_env_file(path: Path) -> dict[str, str]:
    """Reads the KEY=value lines of a file. Empty if there is no file."""
    if not path.exists():
        return {}
    return dict(line.split("=", 1) for line in path.read_text().splitlines() if "=" in line)


def write_env_file(path: Path, values: Mapping[str, str]) -> None:
    """Writes KEY=value lines to a file that only its owner can read."""
    path.unlink(missing_ok=True)
    path.touch(mode=0o600)
    path.write_text("".join(f"{name}={value}\n" for name, value in values.items()))
