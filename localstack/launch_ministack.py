"""Runs MiniStack behind a check of its requests, with a compiled CRC-32C, and with one copy of the functions' code.

MiniStack's Python runs this file; nothing here may import Penstock. request_guard.py has the check, and
event_api_types.py the CloudFormation types that MiniStack lacks. event_policies.py lets policies decide about wake-ups.
resource_policies.py lets policies of queues and event buses mean what they mean on AWS, and disabled_mappings.py lets a
disabled mapping say so. token_checks.py lets an API check tokens, and a stack call another one.
like_aws/ has rules of AWS that the emulator lacks. All of them are off until `penstock local up --like-aws` switches
some on.

MiniStack's own CRC-32C is pure Python at 5 MB/s, and every produce puts its segment three times. With the compiled one,
the local stack takes 12 times as many MB/s (commit 0daf8ee). The check and its outcome stay the same.

MiniStack extracts 1,500 files for each worker, and starts a worker per concurrent call. The consumers of a group with
their long polls are many calls, and the removal of all these files took one to two minutes when the stack stopped. This
launcher extracts a zip once and fills the folder of each worker with links to it, so the removal takes seconds. As on
AWS, functions may read their code and must not write it.
"""

import hashlib
import importlib
import os
import sys
import tempfile
import threading
import types
import zipfile
from functools import partial
from pathlib import Path

import crc32c
from ministack import app as ministack_app
from ministack.core import iam_actions, iam_evaluator, lambda_runtime
from ministack.services import apigateway, appsync_events, eventbridge, lambda_svc, s3, sts
from ministack.services.cloudformation import provisioners

_extracting = threading.Lock()
_BATCHES_AT_ONCE = 100


class SharedZipFile(zipfile.ZipFile):
    """Extracts a zip once, into a temporary folder per content. `extractall` puts links to that folder's entries."""

    def extractall(self, path: str) -> None:  # type: ignore[override]  # as the emulator calls it
        """Put links to the extracted entries into the folder `path`."""
        content = hashlib.sha256(repr([(entry.filename, entry.CRC) for entry in self.infolist()]).encode()).hexdigest()
        shared = os.path.join(tempfile.gettempdir(), f"code-{content[:16]}")
        with _extracting:
            if not os.path.exists(shared):
                unfinished = tempfile.mkdtemp(prefix="code-unfinished-")
                super().extractall(unfinished)
                os.rename(unfinished, shared)
        for name in os.listdir(shared):
            os.symlink(os.path.join(shared, name), os.path.join(path, name))


def _ours(name: str) -> types.ModuleType:
    """A module of this folder. An isolated Python does not find it, and must find nothing else of the checkout."""
    checkout = str(Path(__file__).resolve().parent.parent)
    sys.path.append(checkout)
    try:
        return importlib.import_module(f"localstack.{name}")
    finally:
        sys.path.remove(checkout)


if s3._crc32c(b"123456789") != crc32c.crc32c(b"123456789"):
    raise RuntimeError("MiniStack's _crc32c is not what it was: see localstack/launch_ministack.py")
s3._crc32c = crc32c.crc32c
if lambda_runtime.zipfile is not zipfile:
    raise RuntimeError("MiniStack's lambda_runtime has no zipfile as it had: see localstack/launch_ministack.py")
lambda_runtime.zipfile = types.SimpleNamespace(**{**vars(zipfile), "ZipFile": SharedZipFile})
if lambda_svc._ESM_SQS_DEFAULT_CONCURRENCY != 5:
    raise RuntimeError("MiniStack's queues do not start five batches at once: see localstack/launch_ministack.py")
lambda_svc._ESM_SQS_DEFAULT_CONCURRENCY = _BATCHES_AT_ONCE
_ours("event_api_types").add_event_api_types(provisioners._RESOURCE_HANDLERS, appsync_events)
_ours("event_policies").add_event_policies(appsync_events, iam_evaluator)
_ours("disabled_mappings").tell_disabled_mappings(provisioners._RESOURCE_HANDLERS, lambda_svc)
_ours("resource_policies").add_resource_policies(iam_actions, iam_evaluator, eventbridge)
token_checks = _ours("token_checks")
token_checks.add_token_checks(apigateway)
token_checks.share_sessions(sts, os.environ.get("PENSTOCK_SESSIONS"))
ministack_app.app = _ours("request_guard").guarded(
    _ours("like_aws.layer").around(ministack_app.app), partial(token_checks.takes_token, apigateway)
)
os.umask(0o077)  # the emulator's state has secrets
ministack_app.main()
