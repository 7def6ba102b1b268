"""The store for the results of jobs: a prefix of a bucket, or a folder. Only this module knows which.

An object is complete or absent. `put_new` is for objects that never change: the first writer of a path wins, and the
archive's guarantee relies on that (archive_plan.py). `put` replaces an object at once.
"""

import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import urlsplit

from penstock_core.errors import ErrorCode, PenstockError
from penstock_service.adapters.aws import Storage

if TYPE_CHECKING:
    import pyarrow.fs

_STORES_MAX = 16  # a job writes to one store; a process of Spark may run several jobs
_UNFINISHED = ".unfinished-"  # readers of folders skip names that begin with a dot


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredObject:
    """An object, by its path in the store, and when it was put, by the store's clock."""

    path: str
    size: int
    put_ms: int


class ResultStore(Protocol):
    """Objects by path, relative to the store's root.

    All methods raise STORAGE_UNAVAILABLE, which names the object and the reason.
    """

    def uri(self, path: str) -> str:
        """The object's URI, as other programs name it."""

    def put(self, path: str, content: bytes) -> None:
        """Store the bytes, and replace an object of that path."""

    def put_new(self, path: str, content: bytes | Path) -> bool:
        """Store the bytes, or the file's bytes. Returns False and changes nothing if the path exists."""

    def get(self, path: str) -> bytes | None:
        """The object's bytes; None if it does not exist."""

    def size(self, path: str) -> int | None:
        """The object's size in bytes; None if it does not exist."""

    def names(self, folder: str) -> Iterator[str]:
        """The names of the objects directly in a folder (which ends with a slash), in no order."""

    def objects(self, folder: str) -> "Iterator[StoredObject]":
        """The objects below a folder (which ends with a slash), in no order."""

    def remove(self, path: str) -> None:
        """Remove the object, if it exists."""

    def filesystem(self) -> "tuple[pyarrow.fs.FileSystem, str]":
        """For Arrow: a file system, and the path of the store's root in it, with a slash at the end."""


def results_uri(output: str | None, storage: Storage, folder: str) -> str:
    """The place of a job's results: `output`, or else a folder in the bucket for results.

    Raises INVALID_CONFIG if both are missing.
    """
    if output is not None:
        return output
    if storage.results is None:
        raise PenstockError(
            ErrorCode.INVALID_CONFIG,
            "no place for the results: give --output s3://bucket/prefix or a folder, or --results BUCKET",
        )
    return f"s3://{storage.results}/{folder}"


@lru_cache(_STORES_MAX)
def open_results(uri: str, storage: Storage) -> ResultStore:
    """The store at `s3://bucket/prefix`, or in a folder (a path, or a `file://` URI). Makes no call.

    Raises INVALID_CONFIG.
    """
    parts = urlsplit(uri, allow_fragments=False)
    if parts.scheme == "s3" and parts.netloc and not parts.query:
        return S3ResultStore(storage, parts.netloc, parts.path.strip("/"))
    if parts.scheme in ("", "file") and parts.netloc in ("", "localhost") and parts.path and not parts.query:
        return FolderResultStore(Path(parts.path))
    raise PenstockError(
        ErrorCode.INVALID_CONFIG, f"{uri!r} is no place for results: give s3://bucket/prefix or the path of a folder"
    )


class FolderResultStore:
    """ResultStore in a folder of this machine, or in a folder that all machines mount."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder.absolute()

    def uri(self, path: str) -> str:
        return f"file://{self._folder / path}"  # no %-escape for `=`: Iceberg's readers use the text as the path

    def put(self, path: str, content: bytes) -> None:
        with self._unfinished_file(path, content) as unfinished:
            os.replace(unfinished, self._folder / path)

    def put_new(self, path: str, content: bytes | Path) -> bool:
        with self._unfinished_file(path, content) as unfinished:
            try:
                os.link(unfinished, self._folder / path)  # fails if the path exists, where a rename would replace it
            except FileExistsError:
                return False
        return True

    def get(self, path: str) -> bytes | None:
        with self._storage_errors("get", path):
            try:
                return (self._folder / path).read_bytes()
            except FileNotFoundError:
                return None

    def size(self, path: str) -> int | None:
        with self._storage_errors("size", path):
            try:
                return (self._folder / path).stat().st_size
            except FileNotFoundError:
                return None

    def names(self, folder: str) -> Iterator[str]:
        at = self._folder / folder
        with self._storage_errors("list", folder):
            if at.is_dir():
                yield from (each.name for each in at.iterdir() if each.is_file() and not each.name.startswith("."))

    def objects(self, folder: str) -> Iterator[StoredObject]:
        with self._storage_errors("list", folder):
            for each in (self._folder / folder).rglob("*"):
                if each.is_file() and not each.name.startswith("."):
                    found = each.stat()
                    path = each.relative_to(self._folder).as_posix()
                    yield StoredObject(path=path, size=found.st_size, put_ms=found.st_mtime_ns // 1_000_000)

    def remove(self, path: str) -> None:
        with self._storage_errors("remove", path):
            (self._folder / path).unlink(missing_ok=True)

    def filesystem(self) -> "tuple[pyarrow.fs.FileSystem, str]":
        from pyarrow import fs

        return fs.LocalFileSystem(), f"{self._folder}/"

    @contextmanager
    def _unfinished_file(self, path: str, content: bytes | Path) -> Iterator[Path]:
        """A file with the content next to its final place. The end of the block removes it."""
        target = self._folder / path
        unfinished = target.parent / f"{_UNFINISHED}{secrets.token_hex(8)}"
        with self._storage_errors("put", path):
            target.parent.mkdir(parents=True, exist_ok=True)
            try:
                if isinstance(content, Path):
                    shutil.copyfile(content, unfinished)
                else:
                    unfinished.write_bytes(content)
                yield unfinished
            finally:
                unfinished.unlink(missing_ok=True)

    @contextmanager
    def _storage_errors(self, operation: str, path: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise PenstockError(ErrorCode.STORAGE_UNAVAILABLE, f"{operation} of {self.uri(path)}: {error}") from error


class S3ResultStore:
    """ResultStore in a bucket.

    If the driver repeats a `put_new` after a lost answer, that repeat may find the object of the first try.
    """

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

    def put(self, path: str, content: bytes) -> None:
        self._call("put_object", path, Key=self._prefix + path, Body=content)

    def put_new(self, path: str, content: bytes | Path) -> bool:
        if isinstance(content, Path):
            with content.open("rb") as body:
                return self._put_new(path, body)
        return self._put_new(path, content)

    def get(self, path: str) -> bytes | None:
        found = self._find("get_object", path)
        return None if found is None else bytes(found["Body"].read())

    def size(self, path: str) -> int | None:
        found = self._find("head_object", path)
        return None if found is None else int(found["ContentLength"])

    def names(self, folder: str) -> Iterator[str]:
        prefix = self._prefix + folder
        yield from (each["Key"].removeprefix(prefix) for each in self._listed(folder, Delimiter="/"))

    def objects(self, folder: str) -> Iterator[StoredObject]:
        for each in self._listed(folder):
            put_ms = int(each["LastModified"].timestamp() * 1_000)
            yield StoredObject(path=each["Key"].removeprefix(self._prefix), size=int(each["Size"]), put_ms=put_ms)

    def remove(self, path: str) -> None:
        self._call("delete_object", path, Key=self._prefix + path)

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

    def _listed(self, folder: str, **how: Any) -> Iterator[Any]:
        more: dict[str, Any] = {}
        while True:
            answer = self._call("list_objects_v2", folder, Prefix=self._prefix + folder, **how, **more)
            yield from answer.get("Contents", ())
            if not answer.get("IsTruncated"):
                return
            more = {"ContinuationToken": answer["NextContinuationToken"]}

    def _put_new(self, path: str, body: Any) -> bool:
        # During another put of the path, S3 answers ConditionalRequestConflict, which raises: that put may still fail.
        taken = ("PreconditionFailed", "412")
        answer = self._call("put_object", path, nothing_if=taken, Key=self._prefix + path, Body=body, IfNoneMatch="*")
        return answer is not None

    def _find(self, operation: str, path: str) -> Any:
        key = self._prefix + path
        missing = ("NoSuchKey", "404")
        try:
            return self._call(operation, path, nothing_if=missing, Key=key)
        except PenstockError:
            # S3 also refuses a missing object to a role that may list some prefixes only. So list: an object is the
            # first of all keys that begin with its own key.
            first = self._call("list_objects_v2", path, Prefix=key, MaxKeys=1).get("Contents", ())
            if any(each["Key"] == key for each in first):
                raise
            return None

    def _call(self, operation: str, path: str, *, nothing_if: tuple[str, ...] = (), **arguments: Any) -> Any:
        from botocore.exceptions import BotoCoreError, ClientError

        try:
            return getattr(self._client, operation)(Bucket=self._bucket, **arguments)
        except ClientError as error:
            if error.response.get("Error", {}).get("Code") in nothing_if:
                return None
            raise self._unavailable(operation, path, error) from error
        except BotoCoreError as error:
            raise self._unavailable(operation, path, error) from error

    def _unavailable(self, operation: str, path: str, error: Exception) -> PenstockError:
        return PenstockError(ErrorCode.STORAGE_UNAVAILABLE, f"{operation} of {self.uri(path)}: {error}")
