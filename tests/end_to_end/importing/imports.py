"""`penstock import` as a process of its own, with the keys of a user who may call the API and use queues."""

import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from tests.end_to_end.local_stack import Stack
from tests.support.child_process import bare_environment, child_process

# Chunks are small, so that a process dies between many of them, and hidden messages come again soon.
_PROGRAM = """
from penstock_import.copying import chunk
from penstock_import.queue import drain, sqs
chunk.IMPORT_CHUNK_RECORDS, drain.IMPORT_MESSAGES, sqs.IMPORT_VISIBILITY_S = 500, 10, 3
from penstock_import.command import import_
import_()
"""
_POLICY = {
    "Version": "2012-10-17",
    "Statement": [{"Effect": "Allow", "Action": ["execute-api:Invoke", "sqs:*"], "Resource": "*"}],
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Importer:
    """Starts imports into a stack."""

    environment: dict[str, str]

    @contextmanager
    def started(self, *arguments: str) -> Iterator["subprocess.Popen[Any]"]:
        """A running import. The end of the block kills it."""
        with child_process(self._command(arguments), env=self.environment, stdout=subprocess.DEVNULL) as process:
            yield process

    def run(self, *arguments: str) -> dict[str, Any]:
        """Run an import to its end. Returns its last event."""
        done = subprocess.run(
            self._command(arguments), env=self.environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        return found

    def _command(self, arguments: Sequence[str]) -> list[str]:
        return [sys.executable, "-c", _PROGRAM, *arguments, "--json"]


def importer_for(stack: Stack, user: str) -> Importer:
    """An importer with the keys of a new user."""
    key, secret = stack.create_user(user, _POLICY)
    return Importer(
        environment={
            **bare_environment(),
            "PENSTOCK_URL": stack.url,
            "AWS_ENDPOINT_URL": stack.endpoint_url,
            "AWS_REGION": stack.region,
            "AWS_DEFAULT_REGION": stack.region,
            "AWS_ACCESS_KEY_ID": key,
            "AWS_SECRET_ACCESS_KEY": secret,
        }
    )
