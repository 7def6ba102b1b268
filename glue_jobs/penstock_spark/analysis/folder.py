"""Where the results are kept: a folder of this machine, or `s3://bucket/prefix` where the storage is.

A file is replaced as a whole or not at all, so readers and a run that is killed never leave half of one.
"""

import os
import secrets
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Protocol

from penstock_broker.adapters.aws import Storage
from penstock_core.errors import ErrorCode, PenstockError

_SCHEME = "s3://"


class Folder(Protocol):
    """Files by names with `/` in them. Can be sent to other processes."""

    @property
    def place(self) -> str: ...

    def put(self, name: str, data: bytes) -> None:
        """Writes the file, or replaces it, at once."""

    def get(self, name: str) -> bytes | None:
        """None if there is no such file."""

    def names(self, prefix: str) -> Iterator[str]:
        """The files whose names begin with `prefix`, in order."""


def open_folder(place: str, storage: Storage) -> Folder:
    """Raises INVALID_CONFIG for another scheme than `s3://`, and where the bucket's name is missing."""
    if not place.startswith(_SCHEME):
        if not place or "://" in place:
            raise _invalid(f"{place!r}: results go to a folder of this machine, or to s3://bucket/prefix")
        return LocalFolder(place=os.path.abspath(place))
    bucket, _, prefix = place.removeprefix(_SCHEME).partition("/")
    if not bucket:
        raise _invalid(f"{place!r} names no bucket: use s3://bucket/prefix")
    return S3Folder(storage=storage, bucket=bucket, prefix=f"{prefix.strip('/')}/" if prefix.strip("/") else "")


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalFolder:
    """A folder of this machine; executors must share it with the driver, as in local mode."""

    place: str

    def put(self, name: str, data: bytes) -> None:
        path = Path(self.place, name)
        path.parent.mkdir(parents=True, exist_ok=True)
        work = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
        try:
            work.write_bytes(data)
            os.replace(work, path)
        finally:
            work.unlink(missing_ok=True)

    def get(self, name: str) -> bytes | None:
        try:
            return Path(self.place, name).read_bytes()
        except FileNotFoundError:
            return None

    def names(self, prefix: str) -> Iterator[str]:
        root = Path(self.place)
        below = root / prefix.rpartition("/")[0]
        paths = (path for path in below.rglob("*") if path.is_file() and not path.name.startswith("."))
        names = sorted(path.relative_to(root).as_posix() for path in paths)
        yield from (name for name in names if name.startswith(prefix))


@dataclass(frozen=True, slots=True, kw_only=True)
class S3Folder:
    """Objects of a bucket below a prefix, reached as the storage is. Raises STORAGE_UNAVAILABLE."""

    storage: Storage
    bucket: str
    prefix: str

    @property
    def place(self) -> str:
        return f"{_SCHEME}{self.bucket}/{self.prefix}".rstrip("/")

    def put(self, name: str, data: bytes) -> None:
        kind = {"ContentType": "text/html; charset=utf-8"} if name.endswith(".html") else {}
        self._call("put_object", name, Key=self.prefix + name, Body=data, **kind)

    def get(self, name: str) -> bytes | None:
        try:
            answer = self._call("get_object", name, Key=self.prefix + name)
        except PenstockError as error:
            # S3 refuses what is not there, too, to a role that may list some prefixes only.
            if error.code is ErrorCode.STORAGE_UNAVAILABLE and name not in self.names(name):
                return None
            raise
        return None if answer is None else bytes(answer["Body"].read())

    def names(self, prefix: str) -> Iterator[str]:
        more: dict[str, str] = {}
        while True:
            answer = self._call("list_objects_v2", prefix, Prefix=self.prefix + prefix, **more)
            yield from (each["Key"].removeprefix(self.prefix) for each in answer.get("Contents", ()))
            if not answer.get("IsTruncated"):
                return
            more = {"ContinuationToken": answer["NextContinuationToken"]}

    def _call(self, operation: str, name: str, **arguments: Any) -> Any:
        from botocore.exceptions import BotoCoreError, ClientError

        try:
            return getattr(_s3(self.storage), operation)(Bucket=self.bucket, **arguments)
        except ClientError as error:
            if error.response["Error"]["Code"] == "NoSuchKey":
                return None
            raise self._unavailable(name, error) from error
        except BotoCoreError as error:
            raise self._unavailable(name, error) from error

    def _unavailable(self, name: str, error: Exception) -> PenstockError:
        return PenstockError(ErrorCode.STORAGE_UNAVAILABLE, f"{self.place}/{name}: {error}")


@cache
def _s3(storage: Storage) -> Any:
    import boto3
    from botocore.config import Config

    return boto3.client(
        "s3",
        region_name=storage.region,
        endpoint_url=storage.endpoint_url,
        aws_access_key_id=storage.access_key,
        aws_secret_access_key=storage.secret_key,
        config=Config(retries={"mode": "standard", "total_max_attempts": 5}),
    )


def _invalid(message: str) -> PenstockError:
    return PenstockError(ErrorCode.INVALID_CONFIG, message)
