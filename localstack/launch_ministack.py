"""Runs MiniStack with a compiled CRC-32C, and with one copy of the functions' code for all of their workers.
MiniStack's Python runs this file; nothing here may import Penstock.

Its own CRC-32C is pure Python at 5 MB/s, and every produce puts its segment three times: with the compiled one, the
local stack takes 12 times as many MB/s (docs/performance.md). What is checked, and the outcome, are the same.

It extracts 1,500 files for each worker, one worker per concurrent call. A group's consumers with their long polls are
many calls: removing all these files when the stack stopped took one to two minutes, and takes seconds now. A zip is
extracted once, and each worker's folder has links to what is in it. As on AWS, code is there to be read, not written.
"""

import hashlib
import os
import tempfile
import threading
import types
import zipfile

import crc32c
from ministack.app import main
from ministack.core import lambda_runtime
from ministack.services import s3

_extracting = threading.Lock()


class SharedZipFile(zipfile.ZipFile):
    """Extracts into one temporary folder per content, and puts links to what is in it where it is asked to extract."""

    def extractall(self, path: str) -> None:  # type: ignore[override]  # as the emulator calls it
        content = hashlib.sha256(repr([(entry.filename, entry.CRC) for entry in self.infolist()]).encode()).hexdigest()
        shared = os.path.join(tempfile.gettempdir(), f"code-{content[:16]}")
        with _extracting:
            if not os.path.exists(shared):
                unfinished = tempfile.mkdtemp(prefix="code-unfinished-")
                super().extractall(unfinished)
                os.rename(unfinished, shared)
        for name in os.listdir(shared):
            os.symlink(os.path.join(shared, name), os.path.join(path, name))


if s3._crc32c(b"123456789") != crc32c.crc32c(b"123456789"):
    raise RuntimeError("MiniStack's _crc32c is not what it was: see localstack/launch_ministack.py")
s3._crc32c = crc32c.crc32c
if lambda_runtime.zipfile is not zipfile:
    raise RuntimeError("MiniStack's lambda_runtime has no zipfile as it had: see localstack/launch_ministack.py")
lambda_runtime.zipfile = types.SimpleNamespace(**{**vars(zipfile), "ZipFile": SharedZipFile})
main()
