"""Measures the typed archive: JSON records of about 1 KB with 12 columns, in one process, without Spark.

Untyped and typed runs alternate, each from the log to a committed table. A first pair warms the process. The bar is
25 MB of values for each second of CPU.
"""

import json
import random
import tempfile
import time
from pathlib import Path

import click

from penstock_core.records.codec import NewRecord, encode
from penstock_core.records.record_batch import Compression
from penstock_core.zones.zone_state import Acks
from penstock_service.records.produce import produce
from penstock_spark.archive.archive_table import TableKind
from penstock_spark.archive.archiving import Sizes
from tests.glue_jobs.archived_topic import START_MS, ArchivedTopic
from tests.support.service import entry

BAR_MB = 25
BATCH = 500
SIZES = Sizes(group_bytes=64 * 2**20, commit_bytes=8 * 2**30)
_TEXT = {"type": "string"}
SCHEMA = {
    "type": "object",
    "required": ["id"],
    "properties": {
        "id": {"type": "integer"},
        "customer": _TEXT,
        "paid": {**_TEXT, "format": "decimal", "precision": 12, "scale": 2},
        "at": {**_TEXT, "format": "date-time"},
        "due": {**_TEXT, "format": "date"},
        "quantity": {"type": "integer"},
        "weight": {"type": "number"},
        "express": {"type": "boolean"},
        "country": _TEXT,
        "address": {"type": "object", "properties": {"street": _TEXT, "zip": _TEXT}},
        "tags": {"type": "array", "items": _TEXT},
        "note": _TEXT,
    },
}


@click.command(help=__doc__)
@click.option("--records", default=60_000, show_default=True)
@click.option("--runs", default=4, show_default=True)
def main(records: int, runs: int) -> None:
    chance = random.Random(1)
    values = [_value(number, chance) for number in range(records)]
    for run in range(runs + 1):
        speeds = {name: _run(values, schema) for name, schema in (("untyped", None), ("typed", SCHEMA))}
        told = ", ".join(f"{name} {speed:.1f}" for name, speed in speeds.items())
        click.echo(f"{'warm-up' if run == 0 else f'run {run}'}: MB of values per CPU second: {told}")
        if run and speeds["typed"] < BAR_MB:
            raise SystemExit(f"below the bar of {BAR_MB} MB")


def _value(number: int, chance: random.Random) -> bytes:
    return json.dumps(
        {
            "id": number,
            "customer": f"customer-{chance.randrange(10**6)}",
            "paid": f"{chance.randrange(10**6) / 100:.2f}",
            "at": f"2026-11-21T10:{number // 60 % 60:02}:{number % 60:02}.123Z",
            "due": "2026-11-21",
            "quantity": chance.randrange(100),
            "weight": chance.random() * 10,
            "express": bool(number % 2),
            "country": chance.choice(["DE", "FR", "US"]),
            "address": {"street": f"street {chance.randrange(1_000)}", "zip": str(chance.randrange(99_999))},
            "tags": [f"t{chance.randrange(50)}" for _ in range(4)],
            "note": "".join(chance.choices("abcdefghij klmnop", k=600)),
        }
    ).encode()


def _run(values: list[bytes], schema: object) -> float:
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as folder:
        archived = ArchivedTopic(folder=Path(folder), kind=TableKind.ICEBERG)
        for start in range(0, len(values), BATCH):
            batch = [NewRecord(START_MS, b"key", value) for value in values[start : start + BATCH]]
            produce(archived.instance, [entry(archived.topic, 0, encode(batch, Compression.NONE))], Acks.QUORUM)
        began = time.process_time()
        result = archived.archive(SIZES, schema=None if schema is None else ("json", json.dumps(schema)))
        took_s = time.process_time() - began
    if (result.records, result.unfit_records) != (len(values), 0):
        raise SystemExit(f"{result.records} records of {len(values)}, {result.unfit_records} unfit")
    return sum(map(len, values)) / took_s / 1_000_000


if __name__ == "__main__":
    main()
