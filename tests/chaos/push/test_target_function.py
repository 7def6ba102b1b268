"""The function that is a target runs from its package alone, and its answer names records as AWS's mappings do."""

import base64
import json
import os
import subprocess
import sys
import zipfile
from io import BytesIO
from pathlib import Path
from typing import Any

from tests.chaos.push.recording_target import CONTROL, control
from tests.chaos.push.targets import packed
from tests.chaos.push.test_recording_target import GOOD, NAMED_POISON
from tests.history.format import Handling
from tests.history.model.operations import read_operations

_RUN = """
import json, sys
from tests.chaos.push.target_function import handler
print(json.dumps(handler(json.load(sys.stdin), None)))
"""


def invoked(folder: Path, *names: str) -> dict[str, Any]:
    """The answer of the packed function, in a process that has nothing else."""
    with zipfile.ZipFile(BytesIO(packed())) as archive:
        archive.extractall(folder / "code")
    control(folder / CONTROL, {})
    records = [
        {"topic": "pushed", "partition": 2, "offset": offset, "value": base64.b64encode(name.encode()).decode()}
        for offset, name in enumerate(names, start=5)
    ]
    done = subprocess.run(
        [sys.executable, "-S", "-c", _RUN],
        cwd=folder / "code",
        env={
            **{"PATH": os.environ["PATH"], "CHAOS_FOLDER": str(folder)},
            **{"CHAOS_SUBSCRIPTION": "in-order", "CHAOS_IS_ORDERED": "yes"},
        },
        input=json.dumps({"records": {"pushed-2": records}}),
        capture_output=True,
        text=True,
        check=True,
    )
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def test_function_names_what_it_cannot_handle_and_tells_its_history(tmp_path: Path) -> None:
    answer = invoked(tmp_path, GOOD[0], NAMED_POISON)
    assert answer == {"batchItemFailures": [{"itemIdentifier": {"partition": "pushed-2", "offset": 6}}]}
    [history] = tmp_path.glob("in-order.*.history.jsonl")
    [operation] = read_operations(history.read_bytes().splitlines())
    assert operation.ops == (Handling(("pushed", 2), ((5, GOOD[0]),), (6,)),)
