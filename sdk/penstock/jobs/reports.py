"""The report of a run of `analyze`: where the run's log says that it is, and its text."""

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from penstock_core.errors import ErrorCode, PenstockError, shown
from penstock_core.limits import CONSOLE_REPORT_BYTES_MAX

REPORTS = ("report.html", "report-topics.html")


def report_in(lines: Iterable[str]) -> str | None:
    """The URI of the report that the last line of a run's log names, None if it names none. Other lines may be any."""
    found = None
    for line in lines:
        uri = _report_of(line)
        found = uri if uri is not None else found
    return found


def read_report(uri: str, s3: Callable[[], Any]) -> bytes:
    """The report at `s3://bucket/key` or `file:///path`.

    One GetObject, or one file. Raises INVALID_NAME if there is none, INVALID_REQUEST if it is larger than
    `CONSOLE_REPORT_BYTES_MAX`, and botocore's errors.
    """
    parts = urlsplit(uri)
    if parts.scheme == "s3":
        return _read_object(uri, s3(), parts.netloc, parts.path.lstrip("/"))
    try:
        with Path(unquote(parts.path)).open("rb") as file:
            return _bounded(uri, file.read(CONSOLE_REPORT_BYTES_MAX + 1))
    except OSError as error:
        raise _missing(uri) from error


def _report_of(line: str) -> str | None:
    if '"report"' not in line:
        return None
    try:
        event = json.loads(line)
    except ValueError:
        return None
    uri = event.get("report") if isinstance(event, dict) and event.get("event") == "result" else None
    if not isinstance(uri, str) or "?" in uri or "#" in uri:
        return None
    parts = urlsplit(uri)
    is_place = bool(parts.netloc) if parts.scheme == "s3" else parts.scheme == "file" and not parts.netloc
    return uri if is_place and parts.path.rpartition("/")[2] in REPORTS else None


def _read_object(uri: str, client: Any, bucket: str, key: str) -> bytes:
    from botocore.exceptions import ClientError  # 0.1 s, which other pages need not wait for

    try:
        body = client.get_object(Bucket=bucket, Key=key)["Body"]
    except ClientError as error:
        if error.response["Error"]["Code"] not in ("NoSuchKey", "NoSuchBucket"):
            raise
        raise _missing(uri) from error
    return _bounded(uri, bytes(body.read(CONSOLE_REPORT_BYTES_MAX + 1)))


def _bounded(uri: str, content: bytes) -> bytes:
    if len(content) > CONSOLE_REPORT_BYTES_MAX:
        raise PenstockError(
            ErrorCode.INVALID_REQUEST,
            f"{shown(uri)} is over {CONSOLE_REPORT_BYTES_MAX:,} bytes, which no report is: look at it by yourself",
        )
    return content


def _missing(uri: str) -> PenstockError:
    return PenstockError(ErrorCode.INVALID_NAME, f"there is no report at {shown(uri)} any more: run analyze again")
