"""The files `.penstock/local.env` and `.penstock/jobs.env`, which name the local stack to programs near them.

A program looks for them in the working directory and its parents. Another user may have put one there, say into a
shared temporary folder, to receive your records and your session token or to run code of theirs. So a file counts only
if it and its folder are yours and no other user may write to them. It gives known names only, and its URLs lead to this
machine.
"""

import os
import stat
from collections.abc import Collection
from ipaddress import ip_address
from pathlib import Path
from urllib.parse import urlsplit

from penstock.errors import NotConfiguredError

FOLDER = Path(".penstock")
LOCAL_FUNCTION_ARNS = "arn:aws:lambda:us-east-1:000000000000:function:"  # of `penstock dev` and of the local stack
LOCAL_ENV_NAMES = (
    "PENSTOCK_URL",
    "PENSTOCK_FUNCTIONS",
    "AWS_ENDPOINT_URL",
    "AWS_REGION",
    "AWS_ACCESS_KEY_ID",
    "AWS_SECRET_ACCESS_KEY",
)
JOBS_ENV_NAMES = (
    "PENSTOCK_TOPICS_TABLE",
    "PENSTOCK_LOG_TABLE",
    "PENSTOCK_GROUPS_TABLE",
    "PENSTOCK_REPAIR_QUEUE_URL",
    "PENSTOCK_ZONES",
    "PENSTOCK_ARCHIVE",
    "PENSTOCK_RESULTS",
    "PENSTOCK_CATALOG",
    "AWS_ENDPOINT_URL",
    "AWS_REGION",
    "AWS_ACCESS_KEY_ID",
    "AWS_SECRET_ACCESS_KEY",
)
EMBEDDED_ENV_NAMES = (
    *JOBS_ENV_NAMES,
    "PENSTOCK_WAKE_UPS",
    "PENSTOCK_TIMERS",
    "PENSTOCK_INLINE_BYTES_MAX",
    "PENSTOCK_ACL_DEFAULT",
    "PENSTOCK_SUPER_PRINCIPALS",
)
_URL_NAMES = ("PENSTOCK_URL", "AWS_ENDPOINT_URL")
_OWN_WAY = "set PENSTOCK_URL and the AWS keys yourself, or work in a directory of your own"
_OTHERS_MAY_WRITE = stat.S_IWGRP | stat.S_IWOTH


def find_local_file(name: str) -> Path | None:
    """The file of that name in `.penstock` of the working directory or of the nearest parent that has one."""
    here = Path.cwd()
    paths = (folder / FOLDER / name for folder in (here, *here.parents))
    return next((path for path in paths if path.is_file()), None)


def read_local_file(path: Path, names: Collection[str]) -> dict[str, str]:
    """The values of `names` in the file's lines `NAME=value`. Other names are left out.

    Raises NotConfiguredError if the file or its folder is another user's, if other users may write to one of them, or
    if a URL in the file leads to another machine.
    """
    with path.open() as file:
        check_owner(path.parent, path.parent.stat(), _OWN_WAY)
        check_owner(path, os.fstat(file.fileno()), _OWN_WAY)
        lines = [line.strip().removeprefix("export ") for line in file]
    pairs = (line.partition("=") for line in lines if "=" in line and not line.startswith("#"))
    values = {name.strip(): value.strip().strip("\"'") for name, _, value in pairs}
    for name in _URL_NAMES:
        if name in values and not is_loopback(values[name]):
            raise NotConfiguredError(
                f"{path} gives {name}={values[name]!r:.100}: a file that was found may name this machine only; if you "
                f"trust that address, set {name} yourself"
            )
    return {name: values[name] for name in names if name in values}


def is_loopback(url: str) -> bool:
    """True if the URL leads to this machine."""
    try:
        host = urlsplit(url).hostname or ""
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


def check_owner(path: Path, found: os.stat_result, way_out: str) -> None:
    """Raises NotConfiguredError with the way out if the path is another user's, or if other users may write to it."""
    if not hasattr(os, "getuid"):
        return  # Windows has no such owners and modes
    if found.st_uid != os.getuid():
        raise NotConfiguredError(f"{path} belongs to another user (uid {found.st_uid}), so it is not used: {way_out}")
    if found.st_mode & _OTHERS_MAY_WRITE:
        raise NotConfiguredError(
            f"other users may write to {path}, so it is not used: if its content is yours, run `chmod go-w {path}`"
        )
