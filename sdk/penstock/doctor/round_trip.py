"""A produce and fetch round trip on a topic of its own, which it deletes afterwards."""

import json
import statistics
from collections.abc import Sequence

from penstock.admin.admin import Admin
from penstock.consumer.fetch_call import fetch_answer
from penstock.doctor.finding import Finding, Timing, Verdict, remedy_of
from penstock.doctor.recorder import RecordingTransport
from penstock.errors import AccessDeniedError
from penstock.http.client import Client
from penstock.http.http_message import BATCHES_TYPE, JSON_TYPE, HttpRequest
from penstock.producer.producer import Producer
from penstock.producer.settings import ProducerOptions
from penstock.system import new_nonce
from penstock_core.errors import PenstockError
from penstock_core.limits import KIB
from penstock_core.records.codec import decode

CHECK = "round trip"
TOPIC_PREFIX = "penstock-doctor-"
RECORDS = 30
VALUE_BYTES = KIB
_RETENTION_MS = 3_600_000  # if the doctor is killed, its records go by themselves
_DELIVERY_TIMEOUT_MS = 30_000
_ONE_BY_ONE: ProducerOptions = {"linger_ms": 0, "compression_type": "none"}
_ADMIN_ACTION = "execute-api:Invoke on POST and DELETE /v1/topics*, /v1/produce and /v1/fetch"


def round_trip(transport: RecordingTransport) -> tuple[list[Finding], list[Timing]]:
    """Send `RECORDS` records of 1 KiB one by one, read each back, and compare.

    It takes two requests per record, and three more. Nothing is left behind, unless the last finding says so.
    """
    topic = f"{TOPIC_PREFIX}{new_nonce()[:12]}"
    admin = Admin(transport=transport)
    try:
        admin.create_topic(topic, partitions=1, config={"retention_ms": _RETENTION_MS})
    except PenstockError as error:
        return [_failed("create a topic", error)], []
    findings: list[Finding] = []
    timings: list[Timing] = []
    try:
        findings, timings = _write_and_read(transport, topic)
    except PenstockError as error:
        findings = [_failed("write and read", error)]
    finally:
        findings += _delete(admin, topic)
    return findings, timings


def _write_and_read(transport: RecordingTransport, topic: str) -> tuple[list[Finding], list[Timing]]:
    values = [f"{number} ".encode().ljust(VALUE_BYTES, b"x") for number in range(RECORDS)]
    began = len(transport.exchanges)
    with Producer(
        transport=transport, linger_ms=0, compression_type="none", delivery_timeout_ms=_DELIVERY_TIMEOUT_MS
    ) as producer:
        offsets = [producer.send(topic, value, partition=0).result().offset for value in values]
    written = len(transport.exchanges)
    client = Client(transport)
    found = [_read(client, topic, offset) for offset in offsets]
    timings = [
        _timing("produce of 1 KiB", transport, "/v1/produce", began),
        _timing("fetch of 1 KiB", transport, "/v1/fetch", written),
    ]
    wrong = sum(1 for value, back in zip(values, found, strict=True) if value != back)
    if offsets != list(range(RECORDS)) or wrong:
        fact = f"{wrong} of {RECORDS} records came back changed, at offsets {offsets[0]} to {offsets[-1]}"
        return [Finding(check=CHECK, verdict=Verdict.MEND, fact=fact, remedy="open an issue with this report")], timings
    fact = f"{RECORDS} records of 1 KiB were written, and read back as they were"
    return [Finding(check=CHECK, verdict=Verdict.OK, fact=fact)], timings


def _read(client: Client, topic: str, offset: int) -> bytes | None:
    """The value at the offset, by one request that does not wait."""
    wanted = {"topic": topic, "partition": 0, "offset": offset, "max_bytes": VALUE_BYTES}
    request = HttpRequest(
        method="POST",
        path="/v1/fetch",
        headers={"Content-Type": JSON_TYPE, "Accept": BATCHES_TYPE},
        body=json.dumps({"partitions": [wanted], "max_bytes": VALUE_BYTES, "wait_ms": 0}).encode(),
        is_read=True,
        is_repeatable=True,
    )
    answer = fetch_answer(request, client.try_once(request), 1)
    records = {record.offset: record.value for record in decode(answer.body)}
    return records.get(offset)


def _delete(admin: Admin, topic: str) -> list[Finding]:
    try:
        admin.delete_topic(topic)
    except PenstockError as error:
        return [
            Finding(
                check=CHECK,
                verdict=Verdict.MEND,
                fact=f"the topic {topic} could not be deleted: {error}",
                remedy=f"penstock topics delete {topic} --yes",
            )
        ]
    return []


def _timing(request: str, transport: RecordingTransport, path: str, began: int) -> Timing:
    durations = [float(each.duration_ms) for each in transport.exchanges[began:] if each.path == path]
    return Timing(
        request=request,
        count=len(durations),
        p50_ms=round(statistics.median(durations), 1),
        p99_ms=round(_p99(durations), 1),
    )


def _p99(durations: Sequence[float]) -> float:
    """The 99th percentile; of fewer than a hundred, the longest."""
    return sorted(durations)[min(len(durations) - 1, int(len(durations) * 0.99))]


def _failed(what: str, error: PenstockError) -> Finding:
    if isinstance(error, AccessDeniedError):
        fact, remedy = f"you may not {what} here", remedy_of(error, f"needs {_ADMIN_ACTION}")
        return Finding(check=CHECK, verdict=Verdict.UNKNOWN, fact=fact, remedy=remedy)
    fact = f"could not {what}: {error}"
    return Finding(check=CHECK, verdict=Verdict.MEND, fact=fact, remedy="docs/how-to/troubleshoot.md has the code")
