"""Handles events with examples/lambda_producer.py as a new function instance does, and prints the cost as JSON.

`python -m bench.loads.cold_producer RECORDS EVENTS` imports only the standard library before it starts its clock. Each
event has RECORDS messages. The topic and the service come from the environment.
"""

import json
import sys
import time
from pathlib import Path
from statistics import median

MESSAGE = "x" * 100


def main(records: int, events: int) -> None:
    wall_s, cpu_s = time.perf_counter(), time.process_time()
    from examples.lambda_producer import handler

    imported_s, imported_cpu_s = time.perf_counter() - wall_s, time.process_time() - cpu_s
    event = {"Records": [{"messageId": str(number), "body": MESSAGE} for number in range(records)]}
    times_ms = []
    for _ in range(events):
        begun_s = time.perf_counter()
        if handler(event, None)["batchItemFailures"]:
            raise RuntimeError("a record was not stored")
        times_ms.append((time.perf_counter() - begun_s) * 1_000)
    cost = {
        "import_s": imported_s,
        "import_cpu_s": imported_cpu_s,
        "first_ms": times_ms[0],
        "later_ms": median(times_ms[1:]),
        "peak_mib": _peak_mib(),
    }
    print(json.dumps(cost))


def _peak_mib() -> float:
    """Not `getrusage`, which counts what the parent had when it started this process."""
    [line] = [line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM:")]
    return int(line.split()[1]) / 1024


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
