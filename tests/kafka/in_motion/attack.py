"""Consumers of every kind in one group, killed and added for a minute, with two gateways of which one is killed."""

import random
import signal
import threading
import time
from collections import Counter

from penstock import Admin, Producer
from tests.kafka.in_motion.group_member import KINDS
from tests.kafka.in_motion.motion import Motion
from tests.support.deadlines import until

PARTITIONS = 18
TOPIC = "in-motion"
_SECONDS = 60.0


def attack(motion: Motion) -> None:
    """Writes, kills and adds. Fails unless each record was handed out, and the lag is 0 in the end.

    The topic exists, and is empty. The environment, or the working directory, names the service.
    """
    chance = random.Random(7)
    motion.start_gateway()
    motion.start_gateway()
    for kind in KINDS * 3:
        motion.start_member(kind)
    writer = _Writer()
    ends_s = time.monotonic() + _SECONDS
    gateway_dies_s = time.monotonic() + _SECONDS / 2
    while time.monotonic() < ends_s:
        threading.Event().wait(chance.uniform(2, 5))
        motion.stop_member(chance.choice(motion.members), chance.choice([signal.SIGKILL, signal.SIGTERM]))
        if time.monotonic() > gateway_dies_s and motion.gateways[0].poll() is None:
            motion.gateways[0].kill()
            motion.addresses.pop(0)
    writer.stop()
    admin = Admin()

    def lags() -> list[int | None]:
        return [each.lag for each in admin.describe_group(motion.group).partitions]

    until(lambda: len(lags()) == PARTITIONS and not any(lag != 0 for lag in lags()), shown=lags, deadline_s=120)
    noted = Counter(map(int, motion.noted()))
    assert sorted(noted) == [*range(writer.sent)]
    print(f"{writer.sent} records, {noted.total() - writer.sent} handed out again, {motion.started} consumers")


class _Writer:
    """Writes numbers until it is told to stop."""

    def __init__(self) -> None:
        self.sent = 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._write)
        self._thread.start()

    def _write(self) -> None:
        with Producer() as producer:
            while not self._stop.wait(0.2):
                for _ in range(20):
                    producer.send(TOPIC, key=str(self.sent).encode(), value=str(self.sent).encode())
                    self.sent += 1
                producer.flush()

    def stop(self) -> None:
        """Returns once all is written."""
        self._stop.set()
        self._thread.join()
