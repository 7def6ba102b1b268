"""The IAM user whose keys clients of the local stack sign with. The emulator checks users' keys, never its root key."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from botocore.exceptions import ClientError

USER = "penstock-local"


def ensure_user(iam: Any, policy_arns: Iterable[str], known: Mapping[str, str]) -> dict[str, str]:
    """Makes the user with the policies attached and answers its keys as environment variables.

    Keeps the key in `known` if it is the user's. A secret cannot be asked for later, so otherwise there is a new key.
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
    """KEY=value lines as they were written, empty if there is no file."""
    if not path.exists():
        return {}
    return dict(line.split("=", 1) for line in path.read_text().splitlines() if "=" in line)


def write_env_file(path: Path, values: Mapping[str, str]) -> None:
    """Writes KEY=value lines that only the owner can read."""
    path.unlink(missing_ok=True)
    path.touch(mode=0o600)
    path.write_text("".join(f"{name}={value}\n" for name, value in values.items()))
