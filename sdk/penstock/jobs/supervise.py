"""`python -m penstock.jobs.supervise FOLDER COMMAND…`: runs the command and notes how it ended (see local.py).

The starter hands the folder's lock to this process. This process does not hand it to the command, so the lock ends with
this process.
"""

import json
import os
import subprocess
import sys
import time
from pathlib import Path


def main(folder: Path, command: list[str]) -> int:
    """Run the command, and return its exit code."""
    done = subprocess.run(command, check=False)  # noqa: S603 - the command of `penstock jobs run`
    ended = {"exit_code": done.returncode, "ended_at_ms": time.time_ns() // 1_000_000}
    (folder / "ended.new").write_text(json.dumps(ended))
    os.replace(folder / "ended.new", folder / "ended.json")
    return done.returncode


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2:]))
