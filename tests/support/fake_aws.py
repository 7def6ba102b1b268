"""Lambda's Invoke and STS's GetCallerIdentity on a socket of this machine, with signatures checked as AWS does.

It runs the real handlers on the instance of a stage. So a client of the transport `lambda` meets everything but AWS's
own code: the event on the wire, the alias, IAM's refusal, the proof and the authority that tells whose it is.
"""

import json
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from types import SimpleNamespace
from typing import Any
from urllib.parse import unquote

from penstock.configuration import Configuration, StaticCredentials
from penstock.http.sigv4 import Keys, Scope, SignatureRefused, check_signature, read_claim
from penstock.transports.functions_place import FunctionsAccess
from penstock_core.direct.function_arn import FunctionsPlace, parse_functions_place
from penstock_handlers.edge.access.direct_call import direct_call
from penstock_handlers.edge.entry import answer_direct
from penstock_handlers.router import SERVES
from penstock_service.adapters.sts import StsIdentities
from penstock_service.instance.instance import Instance
from penstock_service.instance.proven_callers import ProvenCallers

ACCOUNT = "111122223333"
REGION = "eu-central-1"
SKEW_S_MAX = 900  # of STS
_POLL_S = 0.01  # between two looks whether to stop
_INVOCATIONS = "/2015-03-31/functions/"
Fault = Callable[[Callable[[], "Told"]], "Told"]


@dataclass(frozen=True)
class Told:
    """An answer: status, body, and headers on top of the usual ones."""

    status: int
    body: bytes
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class FakeKey:
    """An access key: its secret, whose it is, and the ARNs that its policies let it invoke, None for all."""

    keys: Keys
    arn: str
    may_invoke: frozenset[str] | None = None


class FakeAws:
    """Both services on one port. `invoked` records the ARN of each invocation that IAM let through, in order."""

    def __init__(self) -> None:
        self.keys: dict[str, FakeKey] = {}
        self.invoked: list[str] = []
        self.denied: list[str] = []
        self.identified = 0
        self.lambda_faults: list[Fault] = []
        self.sts_faults: list[Fault] = []
        self._instances: dict[str, Instance] = {}
        self._numbers = count(1)
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        threading.Thread(target=lambda: self._server.serve_forever(_POLL_S), daemon=True, name="fake-aws").start()
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def close(self) -> None:
        """Stop serving."""
        self._server.shutdown()
        self._server.server_close()

    def key(self, arn: str, may_invoke: frozenset[str] | None = None, *, token: str | None = None) -> FakeKey:
        """A new access key of that principal."""
        number = next(self._numbers)
        made = FakeKey(Keys(f"AKIAFAKE{number:012d}", f"secret-{number}", token), arn, may_invoke)
        self.keys[made.keys.access_key] = made
        return made

    def stage(self, instance: Instance, name: str = "penstock", account: str = ACCOUNT) -> FunctionsPlace:
        """A stage whose functions run on the instance, with a memory of callers of its own."""
        place = parse_functions_place(f"arn:aws:lambda:{REGION}:{account}:function:{name}")
        callers = ProvenCallers(StsIdentities(self.url), instance.clock, name, place.arn)
        self._instances[place.arn] = replace(instance, proven_callers=callers)
        return place

    def instance_of(self, place: FunctionsPlace) -> Instance:
        """The instance behind the stage, which also knows its functions."""
        return self._instances[place.arn]

    def access(self, place: FunctionsPlace, key: FakeKey) -> FunctionsAccess:
        """The stage, as a client with that key knows it."""
        signer = Configuration(url=self.url, region=place.region, credentials=StaticCredentials(*key.keys))
        return FunctionsAccess(place=place, lambda_url=self.url, sts_url=self.url, signer=signer)

    def invoke(self, arn: str, payload: object) -> dict[str, Any]:
        """The result of a function, invoked by that ARN with any event."""
        stage = next(each for each in sorted(self._instances, key=len, reverse=True) if arn.startswith(f"{each}-"))
        function = arn.removeprefix(f"{stage}-").partition(":")[0].replace("-", "_")
        context = SimpleNamespace(invoked_function_arn=arn, aws_request_id="request-1")
        call = direct_call(payload, context)
        assert call is not None
        _, result = answer_direct(SERVES[function], call, self._instances[stage])
        return {**result, "headers": {**result["headers"], "Server-Timing": "total;dur=1"}}

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        fake = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length", "0")))
                is_invoke = self.path.startswith(_INVOCATIONS)
                faults = fake.lambda_faults if is_invoke else fake.sts_faults
                serve = fake._invocation if is_invoke else fake._identity

                def usual() -> Told:
                    return serve(self.path, [*self.headers.items()], body)

                told = faults.pop(0)(usual) if faults else usual()
                if told.status == 0:  # no answer
                    self.close_connection = True
                    return
                self.send_response(told.status)
                for name, value in {**told.headers, "Content-Length": str(len(told.body))}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(told.body)

            def log_message(self, *_: object) -> None:
                pass

        return Handler

    def _invocation(self, path: str, headers: list[tuple[str, str]], body: bytes) -> Told:
        try:
            key = self._signer("lambda", path, headers, body)
        except SignatureRefused as refused:
            return lambda_error(403, "InvalidSignatureException", str(refused))
        arn = unquote(path.removeprefix(_INVOCATIONS).partition("/")[0])
        if key.may_invoke is not None and arn not in key.may_invoke:
            self.denied.append(arn)
            return lambda_error(403, "AccessDeniedException", f"User: {key.arn} is not authorized")
        self.invoked.append(arn)
        return Told(200, json.dumps(self.invoke(arn, json.loads(body))).encode())

    def _identity(self, path: str, headers: list[tuple[str, str]], body: bytes) -> Told:
        self.identified += 1
        assert body == b"Action=GetCallerIdentity&Version=2011-06-15"
        try:
            key = self._signer("sts", path, headers, body)
        except SignatureRefused as refused:
            return sts_error(403, "SignatureDoesNotMatch", str(refused))
        return Told(200, f"<GetCallerIdentityResult><Arn>{key.arn}</Arn></GetCallerIdentityResult>".encode())

    def _signer(self, service: str, path: str, headers: list[tuple[str, str]], body: bytes) -> FakeKey:
        """The key that has signed the request, within 15 minutes."""
        scope = Scope(region=REGION, service=service)
        date = next(value for name, value in headers if name.lower() == "x-amz-date")
        signed_s = datetime.strptime(date, "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC).timestamp()
        claim = read_claim(scope, headers, signed_s)
        key = self.keys.get(claim.access_key)
        if key is None:
            raise SignatureRefused("no such key")
        check_signature(claim, key.keys, scope, "POST", path, headers, body)
        if abs(datetime.now(UTC).timestamp() - signed_s) > SKEW_S_MAX:
            raise SignatureRefused("Signature expired")
        return key


def lambda_error(status: int, name: str, message: str = "no", **headers: str) -> Told:
    """An error of Lambda's API."""
    told = {"x-amzn-ErrorType": name, **{key.replace("_", "-"): value for key, value in headers.items()}}
    return Told(status, json.dumps({"Type": "User", "message": message}).encode(), told)


def sts_error(status: int, code: str, message: str = "no") -> Told:
    """An error of STS."""
    text = f"<ErrorResponse><Error><Code>{code}</Code><Message>{message}</Message></Error></ErrorResponse>"
    return Told(status, text.encode())


def always(told: Told) -> Fault:
    """A fault: this answer in place of the service's, which does nothing."""
    return lambda _: told


def lost(serve: Callable[[], Told]) -> Told:
    """A fault: the service does it, and its answer is lost."""
    serve()
    return Told(0, b"")
