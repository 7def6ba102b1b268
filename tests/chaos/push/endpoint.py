"""The endpoint of several subscriptions: a process of its own, which the run kills and freezes.

It verifies each delivery by its signature. On the stage `local` the service delivers to endpoints of this machine, and
without TLS (docs/adr/0042).
"""

import json
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

from penstock import webhook
from tests.chaos.clients.clients import Target
from tests.chaos.clients.stop_file import StopFile
from tests.chaos.push.recording_target import CONTROL, GivenRecord, RecordingTarget, TargetFailedError
from tests.history.recorder import Recorder

HOST = "127.0.0.1"
SECRET = "whsec_" + "QUFB" * 8


def run_endpoint(target: Target, port: int, life: str, stop: StopFile) -> None:
    """A process's entry: serve until `stop`. The path of a request names the subscription."""
    name = f"endpoint.{life}"
    with target.recorder(name) as recorder, _Server((HOST, port), _handler(target, name, recorder)) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        while not stop.wait(1.0):
            continue
        server.shutdown()
        thread.join()


def url_of(port: int, subscription: str) -> str:
    """The address of the subscription's endpoint."""
    return f"http://{HOST}:{port}/{subscription}"


class _Server(ThreadingHTTPServer):
    """It ends when each request has its answer."""

    daemon_threads = False
    allow_reuse_address = True


def _handler(target: Target, process: str, recorder: Recorder) -> type[BaseHTTPRequestHandler]:
    @cache
    def target_of(subscription: str) -> RecordingTarget:
        return RecordingTarget(
            recorder=recorder,
            process=process,
            subscription=subscription,
            is_ordered=True,
            control=target.folder / CONTROL,
        )

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            status, answer = _answered(target_of(self.path.strip("/")), self.headers, body)
            self.send_response(status)
            self.send_header("content-length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, *_arguments: Any) -> None:
            """Nothing: the history tells what came."""

    return Handler


def _answered(target: RecordingTarget, headers: Any, body: bytes) -> tuple[int, bytes]:
    """The status and the body of the answer."""
    delivery = webhook.verify(SECRET, headers, body)
    by_place = {((each.topic, each.partition), each.offset): each for each in delivery.records}
    try:
        refused = target.handle([GivenRecord(place=place, value=each.value) for place, each in by_place.items()])
    except TargetFailedError as error:
        return 422 if "record" in str(error) else 503, str(error).encode()
    return 200, json.dumps(webhook.failure_answer([by_place[place] for place in refused])).encode()
