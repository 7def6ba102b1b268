"""A client that was made before fork() says so at once in the child, and does nothing there at its end."""

import json
import subprocess
import sys

import pytest

from tests.support.child_process import bare_environment, child_process

FORKED = """
import asyncio, json, os, sys, threading
from penstock import ForkedError
from penstock_handlers.edge import json_api
from penstock.testing import MemoryPenstock

service = MemoryPenstock()
service.create_topic("t")
producer = service.producer(linger_ms=600_000, transactional_id="id")
consumer = service.consumer("t", group_id="g", fetch_wait_ms=10)
sent = producer.send("t", b"of the parent")
consumer.poll(timeout_ms=0)
async_producer, async_consumer = service.async_producer(), service.async_consumer("t", group_id="g")

def refusal(call):
    try:
        call()
    except ForkedError:
        return "refused"
    return "done"

# A thread of the parent may hold a lock at the fork, and is not there to release it.
# A service in this process has locks of its own, which HTTP would not bring along: this thread holds the shared one.
with producer._sender.lock, consumer._fetcher.lock, json_api._resolving:
    reader, writer = os.pipe()
    child = os.fork()
if child == 0:
    told = {
        "send": refusal(lambda: producer.send("t", b"v")),
        "flush": refusal(producer.flush),
        "transaction": refusal(producer.transaction),
        "poll": refusal(consumer.poll),
        "iteration": refusal(lambda: next(consumer)),
        "commit": refusal(consumer.commit),
        "subscribe": refusal(lambda: consumer.subscribe("t")),
        "async send": refusal(lambda: asyncio.run(async_producer.send("t", b"v"))),
        "async flush": refusal(lambda: asyncio.run(async_producer.flush())),
        "async poll": refusal(lambda: asyncio.run(async_consumer.poll())),
        "async iteration": refusal(lambda: asyncio.run(anext(async_consumer))),
        # Its own service too: a thread of the parent may hold a lock of `service` in the middle of a call.
        "own client": refusal(lambda: MemoryPenstock().admin().list_topics()),
    }
    producer.close()
    consumer.close()
    asyncio.run(async_producer.close())
    asyncio.run(async_consumer.close())
    os.write(writer, json.dumps(told).encode())
    sys.exit(0)  # not os._exit: what runs at an exit must not hang either
os.close(writer)
told = open(reader).read()
assert os.waitpid(child, 0)[1] == 0
producer.close()
assert sent.result().offset == 0
assert len(service.records("t")) == 1
service.close()
print(told)
"""


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(__import__("os"), "fork"), reason="this system has no fork")
def test_clients_of_the_parent_refuse_at_once_in_a_forked_child_and_end_without_harm() -> None:
    with child_process(
        [sys.executable, "-c", FORKED],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=bare_environment(),
    ) as process:
        written, errors = process.communicate()
    assert process.returncode == 0, errors.decode()
    told = json.loads(written)
    assert told.pop("own client") == "done"
    assert set(told.values()) == {"refused"}, told
