"""The store of jobs' results: a folder and a bucket behave alike, and a reader never finds half an object."""

import os
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.stub import Stubber
from moto import mock_aws

from penstock_core.errors import ErrorCode, PenstockError
from penstock_spark.result_store import FolderResultStore, ResultStore, S3ResultStore, open_results, results_uri
from tests.glue_jobs.storages import SOME_STORAGE

STORAGE = replace(SOME_STORAGE, region="us-east-1", access_key="test", secret_key="test")


@pytest.fixture(params=["folder", "bucket"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[ResultStore]:
    """An empty store."""
    if request.param == "folder":
        yield FolderResultStore(tmp_path / "some" / "folder")
        return
    with mock_aws():
        boto3.client("s3", region_name="us-east-1").create_bucket(Bucket="results")
        yield S3ResultStore(STORAGE, "results", "some/prefix")


def test_object_is_put_read_and_replaced(store: ResultStore) -> None:
    assert store.get("runs/1.json") is None
    assert store.size("runs/1.json") is None
    for content in (b"first", b"the second"):
        store.put("runs/1.json", content)
        assert store.get("runs/1.json") == content
        assert store.size("runs/1.json") == len(content)


def test_first_put_of_a_new_object_wins(store: ResultStore, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"of a file")
    assert store.put_new("a/plan", file)
    assert not store.put_new("a/plan", b"of another")
    assert store.get("a/plan") == b"of a file"


def test_names_are_of_the_objects_right_in_a_folder(store: ResultStore) -> None:
    assert list(store.names("runs/")) == []
    for path in ("runs/2", "runs/1", "runs/below/3", "runs-4", "5"):
        store.put(path, b"x")
    assert sorted(store.names("runs/")) == ["1", "2"]
    assert sorted(store.names("")) == ["5", "runs-4"]


def test_objects_are_all_below_a_folder_with_size_and_time_and_go(store: ResultStore) -> None:
    before_ms = time.time() * 1_000
    for path in ("runs/2", "runs/below/3", "runs-4"):
        store.put(path, b"xy")

    found = sorted(store.objects("runs/"), key=lambda each: each.path)

    assert [(each.path, each.size) for each in found] == [("runs/2", 2), ("runs/below/3", 2)]
    assert all(before_ms - 1_000 <= each.put_ms <= time.time() * 1_000 for each in found)
    for _ in range(2):
        store.remove("runs/2")
    assert [each.path for each in store.objects("runs/")] == ["runs/below/3"]
    assert store.get("runs/2") is None


def test_names_go_on_behind_a_page(monkeypatch: pytest.MonkeyPatch) -> None:
    with mock_aws():
        boto3.client("s3", region_name="us-east-1").create_bucket(Bucket="results")
        store = S3ResultStore(STORAGE, "results", "")
        for number in range(5):
            store.put(f"runs/{number}", b"x")
        listed = store._client.list_objects_v2
        monkeypatch.setattr(store._client, "list_objects_v2", lambda **given: listed(**given, MaxKeys=2))
        assert sorted(store.names("runs/")) == ["0", "1", "2", "3", "4"]


@pytest.mark.parametrize("put", ["put", "put_new"])
def test_put_that_fails_leaves_what_was_there(put: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = FolderResultStore(tmp_path)
    store.put("runs/1.json", b"whole")

    def full(path: Path, data: bytes) -> int:
        path.touch()
        raise OSError(f"no space left for {len(data)} bytes")

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(PenstockError, match=r"put of file:///.*/runs/1.json: no space left") as failed:
        getattr(store, put)("runs/1.json", b"half")
    assert failed.value.code is ErrorCode.STORAGE_UNAVAILABLE
    assert store.get("runs/1.json") == b"whole"
    assert os.listdir(tmp_path / "runs") == ["1.json"]


def test_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"in the way")
    with pytest.raises(PenstockError, match=r"put of file:///.*/file/a: .*File exists"):
        FolderResultStore(tmp_path / "file").put("a", b"x")
    with mock_aws(), pytest.raises(PenstockError, match=r"put_object of s3://nobody-s/a: .*NoSuchBucket") as refused:
        S3ResultStore(STORAGE, "nobody-s", "").put("a", b"x")
    assert refused.value.code is ErrorCode.STORAGE_UNAVAILABLE


@pytest.mark.parametrize(("operation", "asked"), [("get", "get_object"), ("size", "head_object")])
@pytest.mark.parametrize("is_there", [False, True])
def test_refusal_means_missing_only_where_the_list_says_so(is_there: bool, operation: str, asked: str) -> None:
    store = S3ResultStore(STORAGE, "results", "reports")
    listed: dict[str, Any] = {"Contents": [{"Key": "reports/a" if is_there else "reports/ab"}]}
    with Stubber(store._client) as stubber:
        stubber.add_client_error(asked, "AccessDenied", http_status_code=403)
        stubber.add_response("list_objects_v2", listed, {"Bucket": "results", "Prefix": "reports/a", "MaxKeys": 1})
        if not is_there:
            assert getattr(store, operation)("a") is None
            return
        with pytest.raises(PenstockError, match=r"s3://results/reports/a: .*AccessDenied") as refused:
            getattr(store, operation)("a")
        assert refused.value.code is ErrorCode.STORAGE_UNAVAILABLE


@pytest.mark.parametrize(
    ("uri", "called"),
    [
        ("s3://bucket/pre/fix/", "s3://bucket/pre/fix/a"),
        ("s3://bucket", "s3://bucket/a"),
        ("/data/out#1", "file:///data/out#1/a"),
        ("file:///data", "file:///data/a"),
    ],
)
def test_place_is_a_bucket_s_prefix_or_a_folder(uri: str, called: str) -> None:
    assert open_results(uri, STORAGE).uri("a") == called


@pytest.mark.parametrize("uri", ["gs://bucket/lake", "s3:///lake", "s3://", "", "https://host/path", "/data?x"])
def test_place_is_refused_when_it_is_neither_bucket_nor_folder(uri: str) -> None:
    with pytest.raises(PenstockError, match="is no place for results: give s3://bucket/prefix or the path"):
        open_results(uri, STORAGE)


def test_results_go_into_the_bucket_for_results_unless_another_place_is_given() -> None:
    stored = replace(STORAGE, results="results")
    assert results_uri(None, stored, "lake") == "s3://results/lake"
    assert results_uri("/data", stored, "lake") == "/data"
    with pytest.raises(PenstockError, match="give --output s3://bucket/prefix or a folder, or --results BUCKET"):
        results_uri(None, STORAGE, "lake")
