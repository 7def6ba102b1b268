"""A sample of the mutants is found. `python -m tests.mutants` judges all of them."""

import subprocess
import sys

from tests.support.child_process import bare_environment, child_process

SAMPLE = 20


def test_sample_of_mutants_is_found() -> None:
    command = [sys.executable, "-m", "tests.mutants", "--sample", str(SAMPLE)]
    with child_process(
        command, env=bare_environment(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        said, _ = process.communicate()
    assert process.returncode == 0, said
    assert said.count("found in") > SAMPLE // 2
