"""Where archived topics lie: a prefix of a bucket, or a folder. The only module that knows which.

Objects are whole or not there, and never change: `put_new` is the one way to write, and the first who puts a path wins.
The archive's guarantee is built on that (archive_plan.py).
"""

import os
import secrets
import shutil
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import urlsplit

from penstock_broker.adapters.aws import Storage
from penstock_core.errors import ErrorCode, PenstockError

if TYPE_CHECKING:
    import pyarrow.fs

_UNFINISHED = ".unfinished-"  # readers of folders pass over names that begin with a dot


class LakeStore(Protocol):
    """Objects by path, relative to where the store begins."""

    def uri(self, path: str) -> str:
        """What others call the object."""

    def put_new(self, path: str, content: bytes | Path) -> bool:
        """Stores the bytes, or those of the file; False, and nothing changed, if the path is taken."""

    def get(self, path: str) -> bytes | None:
        """The object's bytes; None if there is none."""

    def size(self, path: str) -> int | None:
        """How many bytes the object has; None if there is none."""

    def names(self, folder: str) -> Iterator[str]:
        """The names of the objects right in a folder (which ends with a slash), in no order."""

    def filesystem(self) -> "tuple[pyarrow.fs.FileSystem, str]":
        """For Arrow: a file system, and the path in it where the store begins, with a slash."""


def lake_of(output: str | None, storage: Storage) -> str:
    """Where tables lie: `output` if it is given, else `lake/` in the bucket for results. Raises INVALID_CONFIG if
    nothing says it."""
    if output is not None:
        return output
    if storage.results is None:
        raise PenstockError(
            ErrorCode.INVALID_CONFIG,
            "it is not known where tables shall lie: give --output s3://bucket/prefix or a folder, or --results BUCKET",
        )
    return f"s3://{storage.results}/lake"


@cache
def open_lake(uri: str, storage: Storage) -> LakeStore:
    """The store at `s3://bucket/prefix`, or in a folder (a path, or `file://` and one). Raises INVALID_CONFIG."""
    parts = urlsplit(uri)
    if parts.scheme == "s3" and parts.netloc:
        return S3Lake(storage, parts.netloc, parts.path.strip("/"))
    if parts.scheme in ("", "file") and parts.netloc in ("", "localhost") and parts.path:
        return FolderLake(Path(parts.path))
    raise PenstockError(
        ErrorCode.INVALID_CONFIG, f"{uri!r} is no place for tables: give s3://bucket/prefix or the path of a folder"
    )


class FolderLake:
    """LakeStore in a folder of this machine, or one that all machines mount."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder.absolute()

    def uri(self, path: str) -> str:
        return f"file://{self._folder / path}"  # `=` as it is: Iceberg's readers take the rest for the path

    def put_new(self, path: str, content: bytes | Path) -> bool:
        target = self._folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        unfinished = target.parent / f"{_UNFINISHED}{secrets.token_hex(8)}"
        try:
            if isinstance(content, Path):
                shutil.copyfile(content, unfinished)
            else:
                unfinished.write_bytes(content)
            os.link(unfinished, target)  # refused where the name is taken, which a rename would not be
        except FileExistsError:
            return False
        finally:
            unfinished.unlink(missing_ok=True)
        return True

    def get(self, path: str) -> bytes | None:
        try:
            return (self._folder / path).read_bytes()
        except FileNotFoundError:
            return None

    def size(self, path: str) -> int | None:
        try:
            return (self._folder / path).stat().st_size
        except FileNotFoundError:
            return None

    def names(self, folder: str) -> Iterator[str]:
        at = self._folder / folder
        if at.is_dir():
            yield from (each.name for each in at.iterdir() if each.is_file() and not each.name.startswith("."))

    def filesystem(self) -> "tuple[pyarrow.fs.FileSystem, str]":
        from pyarrow import fs

        return fs.LocalFileSystem(), f"{self._folder}/"


class S3Lake:
    """LakeStore in a bucket. A put whose answer was lost may find its own object when the driver repeats it."""

    def __init__(self, storage: Storage, bucket: str, prefix: str) -> None:
        import boto3
        from botocore.config import Config

        self._storage = storage
        self._bucket = bucket
        self._prefix = f"{prefix}/" if prefix else ""
        self._client: Any = boto3.client(
            "s3",
            region_name=storage.region,
            endpoint_url=storage.endpoint_url,
            aws_access_key_id=storage.access_key,
            aws_secret_access_key=storage.secret_key,
            config=Config(retries={"mode": "standard", "total_max_attempts": 5}, max_pool_connections=32),
        )

    def uri(self, path: str) -> str:
        return f"s3://{self._bucket}/{self._prefix}{path}"

    def put_new(self, path: str, content: bytes | Path) -> bool:
        if isinstance(content, Path):
            with content.open("rb") as body:
                return self._put_new(path, body)
        return self._put_new(path, content)

    def get(self, path: str) -> bytes | None:
        found = self._call("get_object", path, nothing_if=("NoSuchKey", "404"))
        return None if found is None else bytes(found["Body"].read())

    def size(self, path: str) -> int | None:
        found = self._call("head_object", path, nothing_if=("NoSuchKey", "404"))
        return None if found is None else int(found["ContentLength"])

    def names(self, folder: str) -> Iterator[str]:
        from botocore.exceptions import BotoCoreError, ClientError

        prefix = self._prefix + folder
        pages = self._client.get_paginator("list_objects_v2").paginate(
            Bucket=self._bucket, Prefix=prefix, Delimiter="/"
        )
        try:
            for page in pages:
                yield from (each["Key"][len(prefix) :] for each in page.get("Contents", ()))
        except (ClientError, BotoCoreError) as error:
            raise self._unavailable("list", folder, error) from error

    def filesystem(self) -> "tuple[pyarrow.fs.FileSystem, str]":
        from pyarrow import fs

        given = {
            "region": self._storage.region,
            "endpoint_override": self._storage.endpoint_url,
            "access_key": self._storage.access_key,
            "secret_key": self._storage.secret_key,
        }
        options = {name: value for name, value in given.items() if value is not None}
        return fs.S3FileSystem(**options), f"{self._bucket}/{self._prefix}"

    def _put_new(self, path: str, body: Any) -> bool:
        # While another put of the path is under way, S3 answers ConditionalRequestConflict: that one may fail yet.
        taken = ("PreconditionFailed", "412")
        return self._call("put_object", path, nothing_if=taken, Body=body, IfNoneMatch="*") is not None

    def _call(self, operation: str, path: str, *, nothing_if: tuple[str, ...], **arguments: Any) -> Any:
        from botocore.exceptions import BotoCoreError, ClientError

        try:
            return getattr(self._client, operation)(Bucket=self._bucket, Key=self._prefix + path, **arguments)
        except ClientError as error:
            if error.response.get("Error", {}).get("Code") in nothing_if:
                return None
            raise self._unavailable(operation, path, error) from error
        except BotoCoreError as error:
            raise self._unavailable(operation, path, error) from error

    def _unavailable(self, operation: str, path: str, error: Exception) -> PenstockError:
        return PenstockError(ErrorCode.STORAGE_UNAVAILABLE, f"{operation} of {self.uri(path)}: {error}")
