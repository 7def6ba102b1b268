"""The proofs of bench/ on the deployed stack, shorter than the runs in docs/performance/. Each bench judges itself."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.end_to_end.local_stack import Stack

pytestmark = [pytest.mark.stack, pytest.mark.minutes]
CHECKOUT = Path(__file__).parents[2]


def test_ledger_balances_although_its_workers_are_killed(stack: Stack) -> None:
    _holds(stack, "bench.ledger", "--payments", "400", "--workers", "2", "--kills", "2")


def test_group_reads_every_record_although_its_consumers_are_killed(stack: Stack) -> None:
    _holds(stack, "bench.group_kills", "--records", "9000", "--records-per-s", "300", "--kills", "3")


def test_share_group_accepts_every_record_once_although_its_workers_are_killed(stack: Stack) -> None:
    _holds(stack, "bench.share_groups", "kills", "--records", "3000", "--workers", "6", "--kills", "6")


def test_slow_record_of_a_share_group_holds_up_its_key_only(stack: Stack) -> None:
    _holds(stack, "bench.share_groups", "slow-record", "--slow-s", "20", "--records-per-s", "50")


@pytest.mark.parametrize("sink", ["files", "topic"])
def test_stream_writes_each_offset_once_although_its_processes_are_killed(stack: Stack, sink: str) -> None:
    _holds(stack, "bench.spark.stream_kills", "--sink", sink, "--kills", "3")


@pytest.mark.parametrize("kind", ["static", "dynamic"])
def test_restarts_move_no_partition_that_need_not(stack: Stack, kind: str) -> None:
    _holds(stack, "bench.rolling_restart", "--kind", kind, "--members", "3", "--partitions", "6")


def _holds(stack: Stack, *command: str) -> None:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
    environment |= {
        "PENSTOCK_URL": stack.url,
        "AWS_REGION": stack.region,
        "AWS_ACCESS_KEY_ID": stack.access_key_id,
        "AWS_SECRET_ACCESS_KEY": stack.secret_access_key,
        "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
    }
    arguments = [sys.executable, "-m", *command, "--json"]
    done = subprocess.run(arguments, env=environment, cwd=CHECKOUT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
