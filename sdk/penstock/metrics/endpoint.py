"""An HTTP endpoint that answers Prometheus at `/metrics`."""

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from penstock.endpoint.listening import REFUSAL, is_foreign
from penstock.metrics.collector import Collector
from penstock.metrics.exposition import CONTENT_TYPE
from penstock_core.errors import PenstockError
from penstock_core.limits import METRICS_REQUESTS_MAX

logger = logging.getLogger("penstock.metrics")

PATH = "/metrics"
_REQUEST_S_MAX = 10.0  # for a request to arrive: an idle connection must not hold a thread


def answer(collector: Collector, path: str) -> tuple[HTTPStatus, str, str]:
    """Status, content type and body of a GET. A service that cannot be read is 503, and the body tells why."""
    if path.partition("?")[0] != PATH:
        return HTTPStatus.NOT_FOUND, "text/plain; charset=utf-8", f"metrics are at {PATH}\n"
    try:
        return HTTPStatus.OK, CONTENT_TYPE, collector.text()
    except PenstockError as error:
        logger.warning("the service cannot be read: %s", error)
        return HTTPStatus.SERVICE_UNAVAILABLE, "text/plain; charset=utf-8", f"{error}\n"


class MetricsServer(ThreadingHTTPServer):
    """Serves one collector. It listens from the start on; `serve_forever` answers, and `shutdown` ends that."""

    daemon_threads = True

    def __init__(self, collector: Collector, host: str, port: int) -> None:
        """Raises OSError if the address cannot be taken."""
        self.collector = collector
        self._room = threading.BoundedSemaphore(METRICS_REQUESTS_MAX)
        super().__init__((host, port), _Handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Answer in a thread; refuse the connection if too many are open."""
        if self._room.acquire(blocking=False):
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Answer, in the thread."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._room.release()

    @property
    def url(self) -> str:
        """The place that Prometheus scrapes."""
        host, port = str(self.server_address[0]), self.server_address[1]
        return f"http://[{host}]:{port}{PATH}" if ":" in host else f"http://{host}:{port}{PATH}"

    @contextmanager
    def in_background(self) -> Iterator[None]:
        """Answers in a thread until the block ends, then closes the server."""
        thread = threading.Thread(target=self.serve_forever, name="penstock-metrics", daemon=True)
        with self:
            thread.start()
            try:
                yield
            finally:
                self.shutdown()
                thread.join()


class _Handler(BaseHTTPRequestHandler):
    server_version = "penstock"
    sys_version = ""
    timeout = _REQUEST_S_MAX
    server: MetricsServer

    def do_GET(self) -> None:
        if is_foreign(str(self.server.server_address[0]), self.headers.get("Host", "")):
            status, content_type, text = HTTPStatus.FORBIDDEN, "text/plain; charset=utf-8", f"{REFUSAL}\n"
        else:
            status, content_type, text = answer(self.server.collector, self.path)
        body = text.encode()
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Cache-Control", "no-store")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the name that the base class has
        logger.debug(format, *args)
