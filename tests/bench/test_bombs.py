import pytest

from bench.bombs import NOW_MS, READERS, measure
from penstock_core.limits import MIB
from penstock_core.records.codec import NewRecord, encode
from penstock_core.records.record_batch import Compression


@pytest.mark.parametrize("reader", READERS)
def test_reader_passes_small_bombs_and_tells_its_memory(reader: str) -> None:
    row = measure(reader, encode([NewRecord(NOW_MS, b"bomb", bytes(8 * MIB))], Compression.ZSTD), 2)
    assert row["reader"] == reader
    assert float(str(row["peak_mib"])) >= float(str(row["before_mib"])) > 0
