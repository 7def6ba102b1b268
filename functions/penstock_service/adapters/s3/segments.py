"""SegmentStore on one zone's bucket. The bucket may be a directory bucket or an ordinary one.

The session of a directory bucket: keys for five minutes that sign every call to it (S3's CreateSession).

botocore keeps a session and renews it in one thread before it ends. But it opens the first one in every thread that
finds none: eight puts on a new client would send eight calls (measured with botocore 1.44). `open` sends one.
"""

import base64
import re
import threading
from collections.abc import Callable, Sequence
from typing import Any, Protocol, runtime_checkable

from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.ids import SegmentId, ZoneName
from penstock_core.storage.keys import KeyLayout, segment_key
from penstock_service.adapters.dynamodb.driver_errors import AnsweredError, DriverError
from penstock_service.ports.segments import ListedKeys

_IS_CONFLICT = "is_conflict"
# S3 says so only if the caller may list the bucket. If not, it answers AccessDenied, which may mean anything.
_MISSING = "NoSuchKey"
_DIRECTORY_BUCKET = re.compile(r".+--xa?-s3")  # a bucket, or an access point of one


class S3SegmentStore:
    """SegmentStore: the port documents its methods.

    botocore's retries may be on, because a repeated put meets its own object. `client` gives the client at each call.
    """

    earlier = None

    def __init__(self, client: Callable[[], Any], bucket: str, zone: str, layout: KeyLayout = KeyLayout.SPREAD) -> None:
        self._client = client
        self._bucket = bucket
        self._zone = ZoneName(zone)
        self.layout = layout
        self._session = BucketSession(bucket)

    @property
    def zone(self) -> ZoneName:
        return self._zone

    def open(self) -> None:
        """Opens the session of a directory bucket, unless it is open, so that no later call waits for that.

        One CreateSession for a directory bucket, no call for another one. Raises STORAGE_UNAVAILABLE.
        """
        try:
            self._s3()
        except DriverError as error:
            raise self._failed("open a session", error) from error

    def put(self, segment_id: SegmentId, body: bytes, crc32c: int) -> None:
        try:
            self._put(segment_id, body, crc32c, IfNoneMatch="*")
        except PenstockError as error:
            # An earlier try of this very put is still under way: no other put has this id. So its bytes are the same.
            if not error.facts.get(_IS_CONFLICT):
                raise
            self._put(segment_id, body, crc32c)

    def overwrite(self, segment_id: SegmentId, body: bytes, crc32c: int) -> None:
        self._put(segment_id, body, crc32c)

    def get(self, segment_id: SegmentId, position: int, length: int) -> bytes:
        try:
            answer = self._s3().get_object(
                Bucket=self._bucket,
                Key=segment_key(segment_id, self.layout),
                Range=f"bytes={position}-{position + length - 1}",
            )
            data: bytes = answer["Body"].read()
        except DriverError as error:
            if not _is(error, "InvalidRange"):  # the object ends before `position`
                raise self._unavailable("read", segment_id, error) from error
            data = b""
        if len(data) != length:
            raise PenstockError(
                ErrorCode.CORRUPT_SEGMENT,
                f"zone {self._zone} holds {len(data)} of {length} bytes from {position} of segment {segment_id.hex()}",
            )
        return data

    def get_whole(self, segment_id: SegmentId) -> bytes | None:
        try:
            answer = self._s3().get_object(Bucket=self._bucket, Key=segment_key(segment_id, self.layout))
            data: bytes = answer["Body"].read()
        except DriverError as error:
            if _is(error, _MISSING):
                return None
            raise self._unavailable("read", segment_id, error) from error
        return data

    def _put(self, segment_id: SegmentId, body: bytes, crc32c: int, **condition: str) -> None:
        try:
            self._s3().put_object(
                Bucket=self._bucket,
                Key=segment_key(segment_id, self.layout),
                Body=body,
                ChecksumCRC32C=base64.b64encode(crc32c.to_bytes(4, "big")).decode(),
                **condition,
            )
        except DriverError as error:
            if _is(error, "ConditionalRequestConflict"):
                raise self._failed(f"store segment {segment_id.hex()}", error, **{_IS_CONFLICT: True}) from error
            # No other put has this id, so an earlier attempt of this put has left the object.
            if not _is(error, "PreconditionFailed"):
                raise self._unavailable("store", segment_id, error) from error

    def list_folders(self) -> Sequence[str]:
        folders: list[str] = []
        start: dict[str, str] = {}
        while True:
            try:
                answer = self._s3().list_objects_v2(Bucket=self._bucket, Delimiter="/", **start)
            except DriverError as error:
                raise self._failed("list its folders", error) from error
            folders += (each["Prefix"] for each in answer.get("CommonPrefixes", ()))
            if "NextContinuationToken" not in answer:
                return folders
            start = {"ContinuationToken": answer["NextContinuationToken"]}

    def list_keys(self, prefix: str, token: str | None) -> ListedKeys:
        start = {} if token is None else {"ContinuationToken": token}
        try:
            answer = self._s3().list_objects_v2(Bucket=self._bucket, Prefix=prefix, **start)
        except DriverError as error:
            raise self._failed(f"list {prefix}", error) from error
        return ListedKeys(
            keys=[item["Key"] for item in answer.get("Contents", ())], next_token=answer.get("NextContinuationToken")
        )

    def delete(self, segment_ids: Sequence[SegmentId]) -> None:
        objects = [{"Key": segment_key(segment_id, self.layout)} for segment_id in segment_ids]
        try:
            answer = self._s3().delete_objects(Bucket=self._bucket, Delete={"Objects": objects, "Quiet": True})
        except DriverError as error:
            raise self._failed(f"delete {len(objects)} segments", error) from error
        if failed := answer.get("Errors"):
            first = f"{failed[0].get('Key')}: {failed[0].get('Message')}"
            raise self._failed(f"delete {len(failed)} of {len(objects)} segments", first)

    def _s3(self) -> Any:
        """The client, with which calls to this bucket need no session any more, or one that is open."""
        client = self._client()
        self._session.open(client)
        return client

    def _unavailable(self, verb: str, segment_id: SegmentId, error: DriverError) -> PenstockError:
        facts = {"is_missing": True} if _is(error, _MISSING) else {}
        return self._failed(f"{verb} segment {segment_id.hex()}", error, **facts)

    def _failed(self, what: str, error: object, **facts: bool) -> PenstockError:
        return PenstockError(ErrorCode.STORAGE_UNAVAILABLE, f"zone {self._zone} could not {what}: {error}", **facts)


def _is(error: DriverError, code: str) -> bool:
    """True if S3 answered with this code."""
    return isinstance(error, AnsweredError) and error.code == code


def is_directory_bucket(bucket: str) -> bool:
    """Tells by its name whether the bucket, or the access point, asks for sessions."""
    return _DIRECTORY_BUCKET.fullmatch(bucket) is not None


@runtime_checkable
class OpensSessions(Protocol):
    """A client of S3 that can open a session by itself."""

    def open_session(self, bucket: str) -> None:
        """Opens the session of a directory bucket."""


class BucketSession:
    """The first session of one bucket. Safe for use by several threads."""

    def __init__(self, bucket: str) -> None:
        self._bucket = bucket
        self._is_open = not is_directory_bucket(bucket)
        self._opening = threading.Lock()

    def open(self, client: Any) -> None:
        """Opens the session, unless it is open: one CreateSession, while other threads wait.

        An ordinary bucket has none, and costs no call. Raises what the client raises; the next call then tries again.
        """
        if self._is_open:
            return
        with self._opening:
            if not self._is_open:
                if isinstance(client, OpensSessions):
                    client.open_session(self._bucket)
                else:  # To sign a URL, botocore needs the session, and sends nothing else.
                    client.generate_presigned_url("get_object", Params={"Bucket": self._bucket, "Key": "session"})
                self._is_open = True
