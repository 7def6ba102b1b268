"""The first batches of a process, in several threads at once."""

import subprocess
import sys

import pytest

# The importer stops in the middle of aiokafka's circle of imports until the other thread has ended or stands still.
SCRIPT = """
import sys, threading

importers = set()

class Watch:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "aiokafka":
            importers.add(threading.get_ident())
        if name == "aiokafka.consumer.fetcher" and not second.is_alive():
            second.start()
            second.join(0.3)

sys.meta_path.insert(0, Watch())
from penstock_core.records.codec import record_bytes_max

second = threading.Thread(target=record_bytes_max, args=(b"k", b"v"))
record_bytes_max(b"k", b"v")
second.join()
assert importers == {threading.get_ident()}, importers
"""


@pytest.mark.slow
def test_one_thread_loads_the_codec_when_several_meet_their_first_batch() -> None:
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
