"""ArchiveStore on the archive bucket: large segments arrive in parts, so that none is in memory as a whole."""

import base64
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError
from crc32c import crc32c

from penstock_broker.adapters.s3 import S3SegmentStore
from penstock_broker.ports import ARCHIVE
from penstock_core.errors import PenstockError
from penstock_core.ids import SegmentId
from penstock_core.keys import segment_key
from penstock_core.limits import MIB

PART_BYTES = 8 * MIB  # S3 takes parts of 5 MiB to 5 GiB, the last may be smaller


class S3ArchiveStore(S3SegmentStore):
    """ArchiveStore."""

    def __init__(self, client: Any, bucket: str) -> None:
        super().__init__(client, bucket, ARCHIVE)

    def upload(self, segment_id: SegmentId, chunks: Iterable[bytes]) -> None:
        parts = _parts(chunks)
        first = next(parts, b"")
        second = next(parts, None)
        if second is None:
            self.put(segment_id, first, crc32c(first))
            return
        where = {"Bucket": self._bucket, "Key": segment_key(segment_id)}
        upload = self._call(segment_id, "create_multipart_upload", **where, ChecksumAlgorithm="CRC32C")
        where["UploadId"] = upload["UploadId"]
        try:
            done = [
                self._upload_part(segment_id, where, number, part)
                for number, part in enumerate(chain((first, second), parts), start=1)
            ]
            self._call(segment_id, "complete_multipart_upload", **where, MultipartUpload={"Parts": done})
        except PenstockError:
            self._abort(where)
            raise

    def _upload_part(self, segment_id: SegmentId, where: dict[str, Any], number: int, part: bytes) -> dict[str, Any]:
        checksum = base64.b64encode(crc32c(part).to_bytes(4, "big")).decode()
        answer = self._call(segment_id, "upload_part", **where, PartNumber=number, Body=part, ChecksumCRC32C=checksum)
        return {"PartNumber": number, "ETag": answer["ETag"], "ChecksumCRC32C": checksum}

    def _abort(self, where: dict[str, Any]) -> None:
        """As well as it can be done: the bucket's lifecycle removes what is left."""
        try:
            self._client.abort_multipart_upload(**where)
        except (ClientError, BotoCoreError):
            return

    def _call(self, segment_id: SegmentId, operation: str, **arguments: Any) -> Any:
        try:
            return getattr(self._client, operation)(**arguments)
        except (ClientError, BotoCoreError) as error:
            raise self._unavailable("store", segment_id, error) from error


def _parts(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """The same bytes in pieces of `PART_BYTES`, the last of what is left."""
    gathered: list[bytes] = []
    size = 0
    for chunk in chunks:
        gathered.append(chunk)
        size += len(chunk)
        if size >= PART_BYTES:
            joined = b"".join(gathered)
            whole = size - size % PART_BYTES
            for start in range(0, whole, PART_BYTES):
                yield joined[start : start + PART_BYTES]
            gathered, size = [joined[whole:]], size - whole
    if size:
        yield b"".join(gathered)
