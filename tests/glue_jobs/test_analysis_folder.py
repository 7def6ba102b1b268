"""Where results are kept: both kinds of folder do the same, and half a file is never seen."""

from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.stub import Stubber

from penstock_broker.adapters.aws import Storage
from penstock_core.errors import ErrorCode, PenstockError
from penstock_spark.analysis import folder as folder_module
from penstock_spark.analysis.folder import Folder, open_folder


@pytest.fixture(params=["local", "s3"])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Folder:
    """An empty one."""
    storage: Storage = request.getfixturevalue("storage")
    return open_folder(f"s3://{storage.archive}/some/prefix/" if request.param == "s3" else f"{tmp_path}/out", storage)


def test_file_is_put_read_replaced_and_listed(folder: Folder) -> None:
    assert folder.get("hours/hour=1/hour.parquet") is None
    assert list(folder.names("hours/")) == []
    for name in ("hours/hour=2/hour.parquet", "hours/hour=1/hour.parquet", "report.html"):
        folder.put(name, b"first")
        folder.put(name, b"second")
        assert folder.get(name) == b"second"
    assert list(folder.names("hours/")) == ["hours/hour=1/hour.parquet", "hours/hour=2/hour.parquet"]
    assert list(folder.names("hours/hour=2")) == ["hours/hour=2/hour.parquet"]


def test_put_that_fails_leaves_what_was_there(
    tmp_path: Path, storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = open_folder(str(tmp_path), storage)
    folder.put("runs/run.json", b"whole")

    def full(path: Path, data: bytes) -> int:
        path.touch()
        raise OSError("no space left")

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(OSError, match="no space"):
        folder.put("runs/run.json", b"half")
    assert folder.get("runs/run.json") == b"whole"
    assert [path.name for path in (tmp_path / "runs").iterdir()] == ["run.json"]


@pytest.mark.parametrize("is_there", [False, True])
def test_refusal_means_missing_only_where_the_list_says_so(
    is_there: bool, storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = boto3.client("s3", region_name="us-east-1", aws_access_key_id="k", aws_secret_access_key="s")
    listed: dict[str, Any] = {"Contents": [{"Key": "reports/a"}]} if is_there else {}
    stubber = Stubber(client)
    stubber.add_client_error("get_object", "AccessDenied", http_status_code=403)
    stubber.add_response("list_objects_v2", listed, {"Bucket": "results", "Prefix": "reports/a"})
    stubber.activate()
    monkeypatch.setattr(folder_module, "_s3", lambda storage: client)
    folder = open_folder("s3://results/reports", storage)
    if not is_there:
        assert folder.get("a") is None
        return
    with pytest.raises(PenstockError, match=r"s3://results/reports/a: .*AccessDenied") as refused:
        folder.get("a")
    assert refused.value.code is ErrorCode.STORAGE_UNAVAILABLE
