import json
from pathlib import Path
from typing import Any

import boto3
import pytest
from moto import mock_aws

from penstock.jobs import reports
from penstock.jobs.reports import read_report, report_in
from penstock_core.errors import ErrorCode
from tests.support.refusals import refused


def _line(uri: object, event: str = "result") -> str:
    return json.dumps({"event": event, "report": uri})


def _no_s3() -> Any:
    raise AssertionError("no call to S3")


@pytest.mark.parametrize("uri", ["s3://results/reports/report.html", "file:///tmp/a b/report-topics.html"])
def test_report_is_what_the_last_result_names(uri: str) -> None:
    assert report_in(["INFO begins", _line("s3://b/report.html"), _line(uri), "{", '"report"']) == uri


@pytest.mark.parametrize(
    "line",
    [
        _line("s3://b/secret.html"),
        _line("s3:///report.html"),
        _line("file://other/report.html"),
        _line("https://example.com/report.html"),
        _line("s3://b/report.html?versionId=1"),
        _line("s3://b/report.html", event="counting"),
        _line(None),
        _line(["report.html"]),
        '["report"]',
        '{"report',
    ],
)
def test_other_lines_name_no_report(line: str) -> None:
    assert report_in([line]) is None


def test_report_is_read_from_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "report.html"
    refused(ErrorCode.INVALID_NAME, lambda: read_report(f"file://{path}", _no_s3))
    path.write_bytes(b"<html>")
    assert read_report(f"file://{path}", _no_s3) == b"<html>"
    monkeypatch.setattr(reports, "CONSOLE_REPORT_BYTES_MAX", 5)
    refused(ErrorCode.INVALID_REQUEST, lambda: read_report(f"file://{path}", _no_s3))


def test_report_is_read_from_a_bucket() -> None:
    with mock_aws():
        s3: Any = boto3.client("s3", region_name="us-east-1")
        s3.create_bucket(Bucket="results")
        refused(ErrorCode.INVALID_NAME, lambda: read_report("s3://results/reports/report.html", lambda: s3))
        s3.put_object(Bucket="results", Key="reports/report.html", Body=b"<html>")
        assert read_report("s3://results/reports/report.html", lambda: s3) == b"<html>"
        refused(ErrorCode.INVALID_NAME, lambda: read_report("s3://missing/report.html", lambda: s3))
