"""An HTTPS endpoint that books each order of a subscription once, however often its record is delivered.

    PENSTOCK_WEBHOOK_SECRET=whsec_… python examples/webhook_receiver.py 8080

- It verifies the signature over the bytes of the request, before it reads them. A forged or replayed request gets 401.
- An order and the place of its record are written in one database transaction. So a record that comes again changes
  nothing.
- A record that cannot be booked is named in the answer. In ordered mode the service then delivers from that record on.

Put it behind a proxy that speaks TLS, because a subscription delivers to https:// addresses only.
"""

import json
import os
import sqlite3
import sys
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

from penstock import AccessDeniedError, InvalidError, webhook
from penstock.webhook import WebhookRecord

BODY_BYTES_MAX = 16 * 2**20


class Orders:
    """The receiver's database."""

    def __init__(self, path: str) -> None:
        self._database = sqlite3.connect(path, check_same_thread=False)
        with self._database:
            self._database.execute("CREATE TABLE IF NOT EXISTS orders (id TEXT, cents INTEGER)")
            self._database.execute(
                "CREATE TABLE IF NOT EXISTS seen (topic TEXT, partition INTEGER, offset INTEGER, "
                "PRIMARY KEY (topic, partition, offset))"
            )

    def book(self, record: WebhookRecord) -> None:
        """Books the record's order, unless it is booked. Raises if the record is no order, and books nothing."""
        with self._database:
            place = (record.topic, record.partition, record.offset)
            if self._database.execute("INSERT OR IGNORE INTO seen VALUES (?, ?, ?)", place).rowcount == 0:
                return
            order = json.loads(record.value or b"null")
            self._database.execute("INSERT INTO orders VALUES (?, ?)", (order["id"], order["cents"]))

    def booked(self) -> list[tuple[str, int]]:
        """Id and cents of each order, in the order of their booking."""
        return self._database.execute("SELECT id, cents FROM orders ORDER BY rowid").fetchall()


def make_server(address: tuple[str, int], secret: str, orders: Orders) -> HTTPServer:
    """The endpoint. It takes one request at a time."""

    class Receiver(BaseHTTPRequestHandler):
        timeout = 30  # seconds that it waits for the rest of a request

        def do_POST(self) -> None:
            length = self.headers.get("content-length", "")
            if not length.isdecimal() or int(length) > BODY_BYTES_MAX:
                return self._answer(413, {"error": f"give a content-length of at most {BODY_BYTES_MAX}"})
            body = self.rfile.read(int(length))
            try:
                delivery = webhook.verify(secret, self.headers, body)
            except AccessDeniedError as error:
                return self._answer(401, {"error": error.message})
            except InvalidError as error:
                return self._answer(400, {"error": error.message})
            for record in delivery.records:
                try:
                    orders.book(record)
                except Exception as error:
                    self.log_error("offset %d cannot be booked: %r", record.offset, error)
                    return self._answer(200, webhook.failure_answer([record]))
            return self._answer(200, webhook.failure_answer([]))

        def _answer(self, status: int, document: dict[str, Any]) -> None:
            body = json.dumps(document).encode()
            self.send_response(status)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    return HTTPServer(address, Receiver)


if __name__ == "__main__":
    own_secret = os.environ["PENSTOCK_WEBHOOK_SECRET"]
    make_server(("127.0.0.1", int(sys.argv[1])), own_secret, Orders("orders.db")).serve_forever()
