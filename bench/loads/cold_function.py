"""Loads one handler as a new function instance does, and prints the cost as JSON.

`python cold_function.py NAME` imports only the standard library before it starts its clock. It imports the handler,
which makes the storage clients in Lambda. It sends no call.
"""

import importlib
import json
import resource
import sys
import time


def main(function: str) -> None:
    wall_s, cpu_s = time.perf_counter(), time.process_time()
    importlib.import_module(f"penstock_handlers.{function}")
    cost = {
        "cpu_s": time.process_time() - cpu_s,
        "wall_s": time.perf_counter() - wall_s,
        "modules": len(sys.modules),
        "peak_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }
    print(json.dumps(cost))


if __name__ == "__main__":
    main(sys.argv[1])
