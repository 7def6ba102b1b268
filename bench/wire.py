"""Measures the CPU of one put to S3 without a network: what boto3 and Penstock spend until a request would leave.

The transport answers at once, so the figure has no TLS and no socket. Each figure is the least of several rounds. The
plain client is boto3's own: it sends `Expect: 100-continue`, and hashes each body for the signature.
"""

import time
from collections.abc import Callable

import boto3
import botocore.session
import click
from botocore.config import Config
from crc32c import crc32c

from bench.report.recording import Report, reported
from bench.report.result import Row
from penstock_core.ids import SegmentId
from penstock_core.limits import MIB
from penstock_service.adapters.aws import Storage, aws_instance, parse_zones
from penstock_service.adapters.botocore_drivers import BotocoreDriver
from penstock_service.adapters.s3.segments import S3SegmentStore
from penstock_service.adapters.storage_calls import StorageCalls
from penstock_service.ports.segments import SegmentStore
from tests.support.wire import Wire

PUTS = 20
_KEYS = {"aws_access_key_id": "key", "aws_secret_access_key": "secret", "region_name": "us-east-1"}
_NO_CHECKSUMS = Config(request_checksum_calculation="when_required", response_checksum_validation="when_required")


@click.command(help=__doc__)
@reported("wire")
@click.option("--rounds", default=15, show_default=True, help="How often each figure is measured.")
def main(report: Report, rounds: int) -> None:
    rows: list[Row] = []
    for client, make in (("boto3's own", _plain_store), ("Penstock's", _our_store)):
        for kind, bucket in (("ordinary", "zone-a"), ("directory", "zone-a--use1-az4--x-s3")):
            wire = Wire()
            store = make(wire, bucket)
            costs = {size: _put_ms(store, wire, size, rounds) for size in (1024, MIB)}
            rows.append(
                {
                    "client": client,
                    "bucket": kind,
                    "1 KiB CPU ms/put": round(costs[1024], 2),
                    "1 MiB CPU ms/put": round(costs[MIB], 2),
                }
            )
    report.show("puts", rows)


def _put_ms(store: SegmentStore, wire: Wire, size: int, rounds: int) -> float:
    body = bytes(size)
    checksum = crc32c(body)

    def put() -> None:
        store.put(SegmentId(b"s" * 16), body, checksum)

    put()  # opens a session
    return min(_cpu_ms(put, wire) for _ in range(rounds))


def _cpu_ms(call: Callable[[], None], wire: Wire) -> float:
    wire.requests.clear()
    started_s = time.process_time()
    for _ in range(PUTS):
        call()
    return (time.process_time() - started_s) * 1_000 / PUTS


def _our_store(wire: Wire, bucket: str) -> SegmentStore:
    # The function makes its sessions itself, so the wire has to come in before.
    make_session, botocore.session.get_session = botocore.session.get_session, wire.sessions()
    try:
        storage = Storage(
            topics_table="topics",
            log_table="log",
            groups_table="groups",
            repair_queue_url="",
            zones=parse_zones(f"a={bucket}"),
            archive="archive",
            region=_KEYS["region_name"],
            access_key=_KEYS["aws_access_key_id"],
            secret_key=_KEYS["aws_secret_access_key"],
        )
        return aws_instance(storage, StorageCalls()).stores.zones[0]
    finally:
        botocore.session.get_session = make_session


def _plain_store(wire: Wire, bucket: str) -> SegmentStore:
    session = boto3.session.Session(botocore_session=wire.sessions()(), **_KEYS)
    client = BotocoreDriver(session.client("s3", config=_NO_CHECKSUMS))
    return S3SegmentStore(lambda: client, bucket, "a")


if __name__ == "__main__":
    main()
