"""The payment ledger of bench/ledger.py on the deployed stack: its workers are killed, and it balances."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.end_to_end.local_stack import Stack

pytestmark = [pytest.mark.stack, pytest.mark.minutes]


def test_ledger_balances_although_its_workers_are_killed(stack: Stack) -> None:
    command = [sys.executable, "-m", "bench.ledger", "--payments", "400", "--workers", "2", "--kills", "2", "--json"]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
    environment |= {
        "PENSTOCK_URL": stack.url,
        "AWS_REGION": stack.region,
        "AWS_ACCESS_KEY_ID": stack.access_key_id,
        "AWS_SECRET_ACCESS_KEY": stack.secret_access_key,
    }
    checkout = Path(__file__).parents[2]
    done = subprocess.run(command, env=environment, cwd=checkout, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
