"""The session of a directory bucket: keys for five minutes that sign every call to it (S3's CreateSession).

botocore keeps a session and renews it in one thread before it ends. But it opens the first one in every thread that
finds none: eight puts on a new client would send eight calls (measured with botocore 1.44). `open` sends one.
"""

import re
import threading
from typing import Any, Protocol, runtime_checkable

_DIRECTORY_BUCKET = re.compile(r".+--xa?-s3")  # a bucket, or an access point of one


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
