"""DynamoDB and S3 that answer at once, over TLS on this machine, from what a stage has stored.

An update changes nothing and returns the item as it is, so each append meets the same head. A put is read and dropped.
"""

import base64
import json
import ssl
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from zlib import crc32

import trustme

HOST = "127.0.0.1"
JsonItem = Mapping[str, Any]


class NullAws(ThreadingHTTPServer):
    """The server. `items` have base64 for bytes, by table; `objects` are by key."""

    daemon_threads = True
    request_queue_size = 64

    def __init__(self, items: Mapping[str, list[JsonItem]], objects: Mapping[str, bytes]) -> None:
        super().__init__((HOST, 0), _Handler)
        self.items = {
            (table, item["pk"]["S"], item["sk"]["S"]): item for table, stored in items.items() for item in stored
        }
        self.objects = objects


@contextmanager
def null_aws(
    items: Mapping[str, list[JsonItem]], objects: Mapping[str, bytes], folder: Path
) -> Iterator[dict[str, str]]:
    """Runs the server. Yields the variables that send botocore's clients, and Penstock's, to it."""
    authority = trustme.CA()
    bundle = folder / "authority.pem"
    authority.cert_pem.write_to_path(str(bundle))
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("localhost").configure_cert(context)
    server = NullAws(items, objects)
    server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield {"AWS_ENDPOINT_URL": f"https://localhost:{server.server_port}", "AWS_CA_BUNDLE": str(bundle)}
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: NullAws

    def log_message(self, *_: object) -> None:
        """Says nothing."""

    def do_POST(self) -> None:
        asked = json.loads(self._body())
        operation = self.headers["X-Amz-Target"].rpartition(".")[2]
        content = json.dumps(self._answer(operation, asked)).encode()
        self._send(200, content, {"Content-Type": "application/x-amz-json-1.0", "x-amz-crc32": str(crc32(content))})

    def do_PUT(self) -> None:
        self._body()
        self._send(200, b"", {"ETag": '"1"'})

    def do_GET(self) -> None:
        body = self.server.objects[self.path.partition("?")[0].split("/", 2)[2]]
        first, _, last = self.headers["Range"].removeprefix("bytes=").partition("-")
        part = body[int(first) : int(last) + 1]
        self._send(206, part, {"Content-Range": f"bytes {first}-{last}/{len(body)}", "ETag": '"1"'})

    def _answer(self, operation: str, asked: Mapping[str, Any]) -> dict[str, Any]:
        if operation == "UpdateItem":
            item = self._item(asked["TableName"], asked["Key"])
            return {"Attributes": item} if item is not None and "ReturnValues" in asked else {}
        if operation in ("PutItem", "TransactWriteItems"):
            return {}
        if operation == "GetItem":
            item = self._item(asked["TableName"], asked["Key"])
            return {} if item is None else {"Item": item}
        if operation == "BatchGetItem":
            found = {
                table: [item for key in wanted["Keys"] if (item := self._item(table, key)) is not None]
                for table, wanted in asked["RequestItems"].items()
            }
            return {"Responses": found, "UnprocessedKeys": {}}
        if operation == "Query":
            items = self._queried(asked)
            return {"Items": items, "Count": len(items)}
        raise LookupError(f"{operation} has no answer here")

    def _queried(self, asked: Mapping[str, Any]) -> list[JsonItem]:
        """What lies under a key, or between two sort keys of it. No other condition has an answer."""
        condition, _, _ = asked["KeyConditionExpression"].partition(" AND sk BETWEEN :first AND :last")
        name = condition.removeprefix("pk = ")
        values = {each: value["S"] for each, value in asked["ExpressionAttributeValues"].items()}
        if name not in values:
            raise LookupError(f"{condition!r} has no answer here")
        first, last = (values[":first"], values[":last"]) if len(values) == 3 else ("", chr(0x10FFFF))
        keys = sorted(self.server.items, reverse=not asked.get("ScanIndexForward", True))
        inside = [key for key in keys if key[:2] == (asked["TableName"], values[name]) and first <= key[2] <= last]
        return [self.server.items[key] for key in inside][: asked.get("Limit")]

    def _item(self, table: str, key: JsonItem) -> JsonItem | None:
        return self.server.items.get((table, key["pk"]["S"], key["sk"]["S"]))

    def _body(self) -> bytes:
        return self.rfile.read(int(self.headers["Content-Length"]))

    def _send(self, status: int, content: bytes, headers: Mapping[str, str]) -> None:
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(content))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)


def from_base64(stored: Mapping[str, Any]) -> dict[str, bytes]:
    """The objects of a stage's record, by key."""
    return {key: base64.b64decode(entry["body"]) for key, entry in stored["objects"].items()}
