"""A front that makes ordinary buckets of the emulator behave as directory buckets of S3 Express One Zone.

Source: docs.aws.amazon.com/AmazonS3/latest/userguide/s3-express-differences.html, API_CreateSession.html,
API_ListObjectsV2.html and API_PutObject.html. A session's requests are checked by its own signature here, and then
reach the emulator as its root user's, for a session carries its permissions in itself.
"""

import re
import time
from collections import Counter
from dataclasses import dataclass, field
from random import Random
from typing import Any

from localstack.like_aws.aws_errors import s3_answer, s3_error
from localstack.like_aws.exchange import Answer, App, Request, ask
from localstack.like_aws.rules import DirectoryBuckets
from localstack.like_aws.sessions import READ_ONLY, READ_WRITE, Session, Sessions, is_signed_by

_SUFFIX = "--x-s3"
_ZONAL_HOST = re.compile(
    r"(?P<bucket>[a-z0-9.-]+--(?P<zone>[a-z0-9-]+)--x-s3)\.s3express-(?P=zone)\.[a-z0-9-]+\.amazonaws\.com(:\d+)?"
)
_CONTENTS = re.compile(rb"<Contents>.*?</Contents>", re.DOTALL)
_WRONG_SIGNATURE = (
    "The request signature we calculated does not match the signature you provided. Check your key and signing method."
)
_WRONG_PREFIX = (
    "This bucket does not support a prefix that does not end in a delimiter. Specify a prefix that ends with a "
    "delimiter and try again."
)
_WRONG_DELIMITER = (
    "This bucket does not support a delimiter other than '/'. Specify '/' for the delimiter and try again."
)
_ACCOUNT, _REGION = "000000000000", "us-east-1"


@dataclass(slots=True)
class DirectoryBucketFront:
    """Serves the calls to directory buckets, and what is left of their behaviour for other zones' buckets."""

    app: App
    counts: Counter[str]
    chance: Random
    _sessions: Sessions = field(default_factory=Sessions)

    async def serve(self, request: Request, settings: DirectoryBuckets) -> Answer:
        """The answer to a call of S3, as a directory bucket gives it."""
        bucket, key = bucket_and_key(request)
        if bucket.endswith(_SUFFIX) and not _is_control(request, key):
            if "session" in request.query and request.method == "GET":
                return self._create_session(request, bucket, settings)
            refusal = self._refusal(request, bucket)
            if refusal is not None:
                self.counts["directory_buckets: calls without a valid session"] += 1
                return refusal
            request = _by_path(request, bucket, key).as_root("s3")
        if re.search(settings.unordered_buckets, bucket) is None:
            return await ask(self.app, request)
        return await self._as_directory(request, key, settings)

    async def _as_directory(self, request: Request, key: str, settings: DirectoryBuckets) -> Answer:
        if request.method == "GET" and not key and request.query.get("list-type") == ["2"]:
            refusal = _refusal_of_list(request)
            if refusal is not None:
                self.counts["directory_buckets: lists refused"] += 1
                return refusal
            return self._shuffled(await ask(self.app, request))
        is_conditional = bool(request.header("if-none-match") or request.header("if-match"))
        if request.method == "PUT" and key and is_conditional and self.chance.random() < settings.conflict_share:
            self.counts["directory_buckets: conflicts"] += 1
            message = "The conditional request cannot succeed due to a conflicting operation against this resource."
            return s3_error(409, "ConditionalRequestConflict", message)
        return await ask(self.app, request)

    def _shuffled(self, answer: Answer) -> Answer:
        found = _CONTENTS.findall(answer.body)
        if len(found) < 2:
            return answer
        first, last = answer.body.index(found[0]), answer.body.rindex(found[-1]) + len(found[-1])
        self.chance.shuffle(found)
        body = answer.body[:first] + b"".join(found) + answer.body[last:]
        return Answer(status=answer.status, headers=answer.headers, body=body)

    def _create_session(self, request: Request, bucket: str, settings: DirectoryBuckets) -> Answer:
        """Makes a session if the caller's signature is right and its policies allow the mode."""
        wanted = request.header("x-amz-create-session-mode")
        if wanted not in ("", READ_WRITE, READ_ONLY):
            return s3_error(400, "InvalidRequest", f"x-amz-create-session-mode cannot be {wanted}")
        denied = None
        for mode in [wanted] if wanted else [READ_WRITE, READ_ONLY]:  # the mode that the caller may have
            denied = _denied(request, bucket, mode)
            if denied is None:
                self.counts["directory_buckets: sessions"] += 1
                return _told(self._sessions.make(bucket, mode, time.time(), settings.session_s))
        self.counts["directory_buckets: sessions denied"] += 1
        return denied or s3_error(403, "AccessDenied", "Access Denied")

    def _refusal(self, request: Request, bucket: str) -> Answer | None:
        token = request.header("x-amz-s3session-token")
        session = self._sessions.find(token) if token else None
        if session is None or session.bucket != bucket:
            return s3_error(403, "AccessDenied", "Access Denied")
        if session.ends_s <= time.time():
            return s3_error(400, "ExpiredToken", "The provided token has expired.")
        if not is_signed_by(session, request):
            message = _WRONG_SIGNATURE
            return s3_error(403, "SignatureDoesNotMatch", message)
        if session.mode == READ_ONLY and request.method not in ("GET", "HEAD"):
            return s3_error(403, "AccessDenied", "Access Denied")
        return None


def bucket_and_key(request: Request) -> tuple[str, str]:
    """The bucket and key of a call to S3, by its zonal host name or its path. A call to the bucket has the key ""."""
    zonal = _ZONAL_HOST.fullmatch(request.header("host"))
    if zonal is not None:
        return zonal["bucket"], request.path.lstrip("/")
    bucket, _, key = request.path.lstrip("/").partition("/")
    return bucket, key


def _by_path(request: Request, bucket: str, key: str) -> Request:
    """The request with its bucket in the path, as the emulator wants it."""
    if _ZONAL_HOST.fullmatch(request.header("host")) is None:
        return request
    return request.moved(f"/{bucket}/{key}", f"/{bucket}{request.raw_path}")


def _is_control(request: Request, key: str) -> bool:
    """True for calls that AWS serves at the regional endpoint, with IAM credentials: make and remove a bucket.

    boto3 with an endpoint of its own sends these in a session, too. AWS has no such case.
    """
    return not key and request.method in ("PUT", "DELETE") and not request.header("x-amz-s3session-token")


def _refusal_of_list(request: Request) -> Answer | None:
    [prefix] = request.query.get("prefix", [""])
    [delimiter] = request.query.get("delimiter", ["/"])
    if prefix and not prefix.endswith("/"):
        message = _WRONG_PREFIX
        return s3_error(400, "InvalidRequest", message)
    if delimiter != "/":
        message = _WRONG_DELIMITER
        return s3_error(400, "InvalidRequest", message)
    if "start-after" in request.query:
        return s3_error(501, "NotImplemented", "A header you provided implies functionality that is not implemented.")
    return None


def _denied(request: Request, bucket: str, mode: str) -> Answer | None:
    """The refusal of a session, by the emulator's own check of signatures and policies. None if it is allowed."""
    from ministack.core import iam_evaluator, router  # only the emulator has it

    iam_evaluator.pin_signed_request(request.method, request.raw_path, request.query, request.scope["headers"])
    iam_evaluator.pin_signed_body(request.body)
    caller = router.extract_access_key_id({"authorization": request.header("authorization")}, None)
    resource = f"arn:aws:s3express:{_REGION}:{_ACCOUNT}:bucket/{bucket}"
    result: Any = iam_evaluator.enforce(
        caller, "s3express:CreateSession", "s3express", _REGION, resource, {"s3express:SessionMode": mode}
    )
    if result is None:
        return None
    code = getattr(result, "code", "")
    return s3_error(403, code or "AccessDenied", str(getattr(result, "message", "")) or "Access Denied")


def _told(session: Session) -> Answer:
    ends = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(session.ends_s))
    credentials = (
        f"<SessionToken>{session.token}</SessionToken><SecretAccessKey>{session.secret_access_key}</SecretAccessKey>"
        f"<AccessKeyId>{session.access_key_id}</AccessKeyId><Expiration>{ends}</Expiration>"
    )
    namespace = "http://s3.amazonaws.com/doc/2006-03-01/"
    return s3_answer(
        200, f'<CreateSessionResult xmlns="{namespace}"><Credentials>{credentials}</Credentials></CreateSessionResult>'
    )
