"""A directory bucket wants sessions of a caller who may have them, lists without order, and conflicts now and then."""

import json
import subprocess
from collections.abc import Callable
from typing import Any

import pytest
from botocore.credentials import Credentials
from botocore.exceptions import ClientError

from tests.localstack.like_aws.conftest import Emulated
from tests.localstack.like_aws.raw_calls import raw_call

pytestmark = pytest.mark.slow
BUCKET = "segments--use1-az4--x-s3"
ZONAL = f"{BUCKET}.s3express-use1-az4.us-east-1.amazonaws.com"
ON = "directory_buckets.conflict_share=0"


@pytest.fixture(scope="module", autouse=True)
def buckets(emulated: Emulated) -> None:
    emulated.hold(ON)
    s3 = emulated.client("s3")
    location = {"Location": {"Type": "AvailabilityZone", "Name": "use1-az4"}}
    kind = {"Bucket": {"Type": "Directory", "DataRedundancy": "SingleAvailabilityZone"}}
    s3.create_bucket(Bucket=BUCKET, CreateBucketConfiguration={**location, **kind})
    for name in ("penstock-zonea", "archive"):
        s3.create_bucket(Bucket=name)
    emulated.hold("none")


def user(emulated: Emulated, name: str, *statements: dict[str, Any]) -> tuple[str, str]:
    """The keys of a new IAM user who may do what the statements say."""
    iam = emulated.client("iam")
    iam.create_user(UserName=name)
    if statements:
        document = json.dumps({"Version": "2012-10-17", "Statement": list(statements)})
        iam.put_user_policy(UserName=name, PolicyName="only", PolicyDocument=document)
    key = iam.create_access_key(UserName=name)["AccessKey"]
    return key["AccessKeyId"], key["SecretAccessKey"]


def sessions_of(mode: str | None = None) -> dict[str, Any]:
    condition = {"Condition": {"StringEquals": {"s3express:SessionMode": mode}}} if mode else {}
    resource = f"arn:aws:s3express:us-east-1:000000000000:bucket/{BUCKET}"
    return {"Effect": "Allow", "Action": "s3express:CreateSession", "Resource": resource, **condition}


def refusal(call: Callable[[], Any]) -> tuple[int, str]:
    with pytest.raises(ClientError) as caught:
        call()
    return caught.value.response["ResponseMetadata"]["HTTPStatusCode"], caught.value.response["Error"]["Code"]


def test_boto3_makes_one_session_and_puts_reads_lists_and_deletes_in_it(under: Callable[[str], Emulated]) -> None:
    emulated = under(ON)
    s3 = emulated.client("s3", *user(emulated, "writer", sessions_of()))
    s3.put_object(Bucket=BUCKET, Key="a/key with + and é", Body=b"one", IfNoneMatch="*")
    assert s3.get_object(Bucket=BUCKET, Key="a/key with + and é")["Body"].read() == b"one"
    assert s3.head_object(Bucket=BUCKET, Key="a/key with + and é")["ContentLength"] == 3
    assert [each["Key"] for each in s3.list_objects_v2(Bucket=BUCKET, Prefix="a/")["Contents"]] == [
        "a/key with + and é"
    ]
    assert refusal(lambda: s3.put_object(Bucket=BUCKET, Key="a/key with + and é", Body=b"2", IfNoneMatch="*"))[0] == 412
    s3.delete_object(Bucket=BUCKET, Key="a/key with + and é")
    assert refusal(lambda: s3.get_object(Bucket=BUCKET, Key="a/key with + and é")) == (404, "NoSuchKey")
    assert emulated.counts()["directory_buckets: sessions"] == 1


def test_session_is_denied_to_a_user_without_the_right(under: Callable[[str], Emulated]) -> None:
    emulated = under(ON)
    everything_in_s3 = {"Effect": "Allow", "Action": "s3:*", "Resource": "*"}
    s3 = emulated.client("s3", *user(emulated, "stranger", everything_in_s3))
    assert refusal(lambda: s3.put_object(Bucket=BUCKET, Key="a/1", Body=b"")) == (403, "AccessDenied")
    assert emulated.counts()["directory_buckets: sessions denied"] == 1


def test_session_is_denied_when_its_request_is_signed_with_a_wrong_secret(under: Callable[[str], Emulated]) -> None:
    emulated = under(ON)
    key, _ = user(emulated, "forger", sessions_of())
    s3 = emulated.client("s3", key, "wrong")
    assert refusal(lambda: s3.list_objects_v2(Bucket=BUCKET)) == (403, "SignatureDoesNotMatch")


def test_reader_gets_a_session_that_reads_only(under: Callable[[str], Emulated]) -> None:
    emulated = under(ON)
    emulated.client("s3").put_object(Bucket=BUCKET, Key="a/read-only", Body=b"one")
    s3 = emulated.client("s3", *user(emulated, "reader", sessions_of("ReadOnly")))
    assert s3.get_object(Bucket=BUCKET, Key="a/read-only")["Body"].read() == b"one"
    assert refusal(lambda: s3.put_object(Bucket=BUCKET, Key="a/2", Body=b"")) == (403, "AccessDenied")
    assert refusal(lambda: s3.create_session(Bucket=BUCKET, SessionMode="ReadWrite")) == (403, "AccessDenied")


def test_call_without_a_session_is_refused(under: Callable[[str], Emulated]) -> None:
    emulated = under(ON)
    status, headers, body = raw_call(emulated.port, "s3express", "GET", f"/{BUCKET}/a/1")
    assert (status, headers["content-type"]) == (403, "application/xml")
    assert body.startswith(
        b'<?xml version="1.0" encoding="UTF-8"?>\n<Error><Code>AccessDenied</Code><Message>Access Denied</Message>'
    )


@pytest.mark.parametrize("change", ["body", "bucket"])
def test_session_does_not_serve_what_it_was_not_made_for(under: Callable[[str], Emulated], change: str) -> None:
    emulated = under(ON)
    s3 = emulated.client("s3")
    other = "other--use1-az5--x-s3"

    def spoil(request: Any, **_: Any) -> None:
        if change == "body" and request.method == "PUT":
            request.body = b"changed"
        if change == "bucket" and request.method == "PUT":
            request.url = request.url.replace(BUCKET, other)

    s3.meta.events.register("before-send.s3.PutObject", spoil)
    expected = {"body": (403, "SignatureDoesNotMatch"), "bucket": (403, "AccessDenied")}
    assert refusal(lambda: s3.put_object(Bucket=BUCKET, Key="a/1", Body=b"as sent")) == expected[change]


@pytest.mark.parametrize(("session_s", "status", "found"), [(300, 404, b"NoSuchKey"), (0, 400, b"ExpiredToken")])
def test_session_ends_in_its_time(under: Callable[[str], Emulated], session_s: int, status: int, found: bytes) -> None:
    emulated = under(f"{ON},directory_buckets.session_s={session_s}")
    _, _, answer = raw_call(emulated.port, "s3express", "GET", f"/{BUCKET}/?session=")
    key, secret, token = session_in(answer)
    headers = {"x-amz-s3session-token": token, "x-amz-content-sha256": "UNSIGNED-PAYLOAD"}
    path = f"/{BUCKET}/never-put"
    answered = raw_call(emulated.port, "s3express", "GET", path, b"", headers, Credentials(key, secret))
    assert answered[0] == status
    assert b"<Code>" + found in answered[2]


def session_in(answer: bytes) -> tuple[str, str, str]:
    """The access key id, secret and token of an answer to CreateSession."""
    text = answer.decode()
    names = ("AccessKeyId", "SecretAccessKey", "SessionToken")
    key, secret, token = (text.partition(f"<{name}>")[2].partition("<")[0] for name in names)
    return key, secret, token


def test_curl_reaches_the_zonal_host_name(under: Callable[[str], Emulated]) -> None:
    emulated = under(ON)
    key, secret = user(emulated, "curl", sessions_of())
    session = curl(emulated, f"http://{ZONAL}/?session=", key, secret)
    assert session.startswith(
        b'<?xml version="1.0" encoding="UTF-8"?>\n<CreateSessionResult xmlns="http://s3.amazonaws'
    )
    key, secret, token = session_in(session)
    header = f"x-amz-s3session-token: {token}"
    assert curl(emulated, f"http://{ZONAL}/z/1", key, secret, "-H", header, "-T", "-", data=b"zonal") == b""
    assert curl(emulated, f"http://{ZONAL}/z/1", key, secret, "-H", header) == b"zonal"
    assert emulated.client("s3").get_object(Bucket=BUCKET, Key="z/1")["Body"].read() == b"zonal"
    assert b"<Code>AccessDenied</Code>" in curl(emulated, f"http://{ZONAL}/z/1", key, secret)


def curl(emulated: Emulated, url: str, key: str, secret: str, *options: str, data: bytes = b"") -> bytes:
    """The answer to a signed request, whatever its status."""
    signed = ["--aws-sigv4", "aws:amz:us-east-1:s3express", "--user", f"{key}:{secret}", "--noproxy", "*"]
    unsigned_body = ["-H", "x-amz-content-sha256: UNSIGNED-PAYLOAD"]
    to = ["--connect-to", f"::127.0.0.1:{emulated.port}"]
    done = subprocess.run(
        ["curl", "-sS", *signed, *unsigned_body, *to, *options, url], input=data, capture_output=True, check=True
    )
    return done.stdout


@pytest.mark.parametrize("bucket", [BUCKET, "penstock-zonea"])
def test_list_has_no_order_and_wants_a_prefix_that_ends_in_a_slash(
    under: Callable[[str], Emulated], bucket: str
) -> None:
    s3 = under(ON).client("s3")
    keys = [f"list/{number:02}" for number in range(20)]
    for key in keys:
        s3.put_object(Bucket=bucket, Key=key, Body=b"")
    found = [each["Key"] for each in s3.list_objects_v2(Bucket=bucket, Prefix="list/")["Contents"]]
    assert found != keys
    assert sorted(found) == keys
    assert refusal(lambda: s3.list_objects_v2(Bucket=bucket, Prefix="list/0")) == (400, "InvalidRequest")
    assert refusal(lambda: s3.list_objects_v2(Bucket=bucket, Prefix="list/", Delimiter="0")) == (400, "InvalidRequest")
    assert refusal(lambda: s3.list_objects_v2(Bucket=bucket, StartAfter="list/05"))[0] == 501


def test_pages_of_a_list_have_every_key_once(under: Callable[[str], Emulated]) -> None:
    s3 = under(ON).client("s3")
    keys = {f"pages/{number:02}" for number in range(25)}
    for key in keys:
        s3.put_object(Bucket="penstock-zonea", Key=key, Body=b"")
    pages = s3.get_paginator("list_objects_v2").paginate(
        Bucket="penstock-zonea", Prefix="pages/", PaginationConfig={"PageSize": 10}
    )
    found = [each["Key"] for page in pages for each in page["Contents"]]
    assert len(found) == 25
    assert set(found) == keys


def test_conditional_put_meets_a_conflict_and_stores_nothing(under: Callable[[str], Emulated]) -> None:
    emulated = under("directory_buckets.conflict_share=1")
    s3 = emulated.client("s3")
    for bucket in (BUCKET, "penstock-zonea"):
        with pytest.raises(ClientError) as caught:
            s3.put_object(Bucket=bucket, Key="c/1", Body=b"", IfNoneMatch="*")
        assert caught.value.response["ResponseMetadata"]["HTTPStatusCode"] == 409
        assert caught.value.response["Error"] == {
            "Code": "ConditionalRequestConflict",
            "Message": "The conditional request cannot succeed due to a conflicting operation against this resource.",
        }
        assert refusal(lambda bucket=bucket: s3.get_object(Bucket=bucket, Key="c/1")) == (404, "NoSuchKey")  # type: ignore[misc]
        s3.put_object(Bucket=bucket, Key="c/1", Body=b"")
    s3.put_object(Bucket="archive", Key="c/1", Body=b"", IfNoneMatch="*")
    assert emulated.counts()["directory_buckets: conflicts"] == 2


def test_conflicts_come_at_their_rate_and_by_seed(under: Callable[[str], Emulated]) -> None:
    drawn = []
    for seed in (1, 1, 2):
        port = under(f"directory_buckets.conflict_share=0.5,seed={seed}").port
        paths = [f"/penstock-zonea/rate/{number}" for number in range(30)]
        answers = [raw_call(port, "s3", "PUT", path, b"x", {"If-None-Match": "*"}) for path in paths]
        drawn.append([status == 409 for status, _, _ in answers])
    assert drawn[0] == drawn[1] != drawn[2]
    assert 5 < sum(drawn[0]) < 25


def test_ordinary_bucket_is_as_before(under: Callable[[str], Emulated]) -> None:
    s3 = under("directory_buckets.conflict_share=1").client("s3")
    keys = [f"plain/{number:02}" for number in range(20)]
    for key in keys:
        s3.put_object(Bucket="archive", Key=key, Body=b"", IfNoneMatch="*")
    assert [each["Key"] for each in s3.list_objects_v2(Bucket="archive", Prefix="plain/0")["Contents"]] == keys[:10]


def test_latency_holds_puts_and_gets_of_all_buckets(under: Callable[[str], Emulated]) -> None:
    emulated = under("latency,seed=4")
    s3 = emulated.client("s3")
    s3.put_object(Bucket="archive", Key="l/1", Body=b"x")
    s3.get_object(Bucket="archive", Key="l/1")
    s3.list_objects_v2(Bucket="archive")
    s3.delete_object(Bucket="archive", Key="l/1")
    assert emulated.counts() == {"latency: calls delayed": 3}
