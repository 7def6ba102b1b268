"""A schema registry with Confluent's HTTP API, for tests: a double, in a thread of this process.

It keeps what serializers ask for: subjects, versions, ids that are the same for the same schema, references, and the
error codes of the API. It judges no compatibility: `refused` names subjects that answer 409. No registry that one could
install here runs without a download of its own; Confluent's Python client is the foreign reader of this double.
"""

import base64
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote, urlsplit
from uuid import UUID

AUTH = ("ada", "sesame")


class SchemaRegistry:
    """The registry's state. `calls` are the requests that came, `outage` is a status that it answers with instead."""

    def __init__(self) -> None:
        self.url = ""
        self.calls: list[str] = []
        self.outage = 0
        self.needs_auth = False
        self.refused: set[str] = set()
        self.schemas: dict[int, dict[str, Any]] = {}
        self.subjects: dict[str, list[int]] = {}

    def register(self, subject: str, schema: dict[str, Any]) -> int:
        """The id of a schema under a subject, as a POST makes it."""
        kept = {"schema": schema["schema"], "schemaType": schema.get("schemaType", "AVRO")}
        if schema.get("references"):
            kept["references"] = schema["references"]
        known = [number for number, each in self.schemas.items() if each == kept]
        number = known[0] if known else len(self.schemas) + 1
        self.schemas[number] = kept
        versions = self.subjects.setdefault(subject, [])
        if number not in versions:
            versions.append(number)
        return number

    def answer(self, method: str, path: str, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        """Status and document of a request."""
        parts = [unquote(each) for each in path.strip("/").split("/")]
        if method == "POST" and parts[0] == "subjects" and parts[1] in self.refused:
            return 409, {"error_code": 409, "message": "Schema being registered is incompatible with an earlier schema"}
        if method == "POST" and parts[0] == "subjects" and len(parts) == 3:
            return self._told(self.register(parts[1], body), parts[1])
        if method == "POST" and parts[0] == "subjects":
            kept = {"schema": body["schema"], "schemaType": body.get("schemaType", "AVRO")}
            if parts[1] not in self.subjects:
                return 404, {"error_code": 40401, "message": f"Subject '{parts[1]}' not found."}
            for number in self.subjects[parts[1]]:
                if {name: self.schemas[number][name] for name in kept} == kept:
                    return self._told(number, parts[1])
            return 404, {"error_code": 40403, "message": "Schema not found"}
        if method == "GET" and parts[0] == "schemas" and parts[1] in ("ids", "guids"):
            found = self.schemas.get(int(parts[2]) if parts[1] == "ids" else UUID(parts[2]).int)
            return (200, found) if found else (404, {"error_code": 40403, "message": "Schema not found"})
        if method == "GET" and parts[0] == "subjects" and len(parts) == 4:
            versions = self.subjects.get(parts[1], [])
            at = len(versions) if parts[3] == "latest" else int(parts[3])
            if not 1 <= at <= len(versions):
                return 404, {"error_code": 40402, "message": "Version not found."}
            return self._told(versions[at - 1], parts[1])
        return 404, {"error_code": 404, "message": "HTTP 404 Not Found"}

    def _told(self, number: int, subject: str) -> tuple[int, dict[str, Any]]:
        version = self.subjects[subject].index(number) + 1
        kept = {name: value for name, value in self.schemas[number].items() if value != "AVRO"}
        return 200, {"subject": subject, "version": version, "id": number, "guid": str(UUID(int=number)), **kept}


@contextmanager
def running_registry() -> Iterator[SchemaRegistry]:
    """A registry on a free port of 127.0.0.1."""
    registry = SchemaRegistry()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self._answer("GET")

        def do_POST(self) -> None:
            self._answer("POST")

        def _answer(self, method: str) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            path = urlsplit(self.path).path
            registry.calls.append(f"{method} {path}")
            status, document = registry.outage, {"error_code": registry.outage, "message": "down"}
            proof = "Basic " + base64.b64encode(":".join(AUTH).encode()).decode()
            if registry.needs_auth and self.headers.get("Authorization") != proof:
                status, document = 401, {"error_code": 401, "message": "Unauthorized"}
            elif not registry.outage:
                status, document = registry.answer(method, path, json.loads(body or b"{}"))
            data = json.dumps(document).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/vnd.schemaregistry.v1+json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, name="schema-registry")
    thread.start()
    registry.url = f"http://127.0.0.1:{server.server_address[1]}"
    try:
        yield registry
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
