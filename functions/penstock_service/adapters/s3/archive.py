"""ArchiveStore on the archive bucket: uploads large segments in parts, so that no segment is in memory as a whole."""

import base64
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from typing import Any

from crc32c import crc32c

from penstock_core.errors import PenstockError
from penstock_core.ids import SegmentId
from penstock_core.limits import ARCHIVE_PART_BYTES
from penstock_core.storage.keys import segment_key
from penstock_service.adapters.dynamodb.driver_errors import DriverError
from penstock_service.adapters.s3.segments import S3SegmentStore
from penstock_service.ports.segments import ARCHIVE


class S3ArchiveStore(S3SegmentStore):
    """ArchiveStore: the port documents its methods."""

    def __init__(self, client: Callable[[], Any], bucket: str) -> None:
        super().__init__(client, bucket, ARCHIVE)

    def upload(self, segment_id: SegmentId, chunks: Iterable[bytes]) -> None:
        parts = _parts(chunks)
        first = next(parts, b"")
        second = next(parts, None)
        if second is None:
            self.put(segment_id, first, crc32c(first))
            return
        where = {"Bucket": self._bucket, "Key": segment_key(segment_id, self.layout)}
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
        """Removes the parts, if S3 answers. If it does not, the bucket's lifecycle removes them."""
        try:
            self._s3().abort_multipart_upload(**where)
        except DriverError:
            return

    def _call(self, segment_id: SegmentId, operation: str, **arguments: Any) -> Any:
        try:
            return getattr(self._s3(), operation)(**arguments)
        except DriverError as error:
            raise self._unavailable("store", segment_id, error) from error


def _parts(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """The same bytes in pieces of `ARCHIVE_PART_BYTES`; the last piece may be smaller."""
    gathered: list[bytes] = []
    size = 0
    for chunk in chunks:
        gathered.append(chunk)
        size += len(chunk)
        if size >= ARCHIVE_PART_BYTES:
            joined = b"".join(gathered)
            whole = size - size % ARCHIVE_PART_BYTES
            for start in range(0, whole, ARCHIVE_PART_BYTES):
                yield joined[start : start + ARCHIVE_PART_BYTES]
            gathered, size = [joined[whole:]], size - whole
    if size:
        yield b"".join(gathered)
