"""`penstock kafka` as a process of its own, in front of the deployed stack."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from subprocess import PIPE, Popen
from typing import Any

from tests.end_to_end.local_stack import Stack
from tests.support.child_process import bare_environment, child_process

_PROGRAM = "from penstock_kafka.command import kafka; kafka()"


@contextmanager
def gateway_process(stack: Stack, port: int) -> Iterator["Popen[Any]"]:
    """The process, once it serves. It is killed at the end of the block, if it has not ended."""
    environment = {
        **bare_environment(),
        "PATH": os.environ["PATH"],
        "PENSTOCK_URL": stack.url,
        "AWS_REGION": stack.region,
        "AWS_ACCESS_KEY_ID": stack.access_key_id,
        "AWS_SECRET_ACCESS_KEY": stack.secret_access_key,
    }
    command = [sys.executable, "-c", _PROGRAM, "--listen", f"127.0.0.1:{port}"]
    with child_process(command, deadline_s=300, env=environment, stdout=PIPE, text=True) as process:
        assert process.stdout is not None
        assert "Kafka clients are served" in process.stdout.readline()
        yield process
