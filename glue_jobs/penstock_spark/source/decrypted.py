"""A topic's values in the clear, for a DataFrame whose reader has the right to (docs/how-to/encrypt.md)."""

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

from penstock_core.errors import ErrorCode, PenstockError

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

    from penstock.encryption import Encryption, Keys

_NEEDED = ("key", "value", "headers", "topic", "partition", "offset")


def decrypted(frame: "DataFrame", keys: "Keys") -> "DataFrame":
    """The frame with the values that their senders encrypted, and without the header that says so.

    Other rows pass. The columns are those of a read with `includeHeaders`, and any of yours. Each task asks once for
    each data key that it meets. `keys` travel to the workers, which need `cryptography` and, for KMS, the right to
    decrypt. A value that does not decrypt fails the query, and the error names its place. Raises INVALID_CONFIG for a
    frame without those columns.
    """
    if missing := [name for name in _NEEDED if name not in frame.columns]:
        raise PenstockError(
            ErrorCode.INVALID_CONFIG,
            f"the frame has no column {missing[0]!r}: decrypt what a read with the option includeHeaders returns",
        )
    return frame.mapInArrow(_opening(keys), frame.schema)


def _opening(keys: "Keys") -> "Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]":
    def opened(batches: "Iterable[pa.RecordBatch]") -> "Iterator[pa.RecordBatch]":
        from penstock.encryption import Encryption  # the jobs, which share this package, need none of it

        encryption = Encryption(keys)
        for batch in batches:
            yield _opened(batch, encryption)

    return opened


def _opened(batch: "pa.RecordBatch", encryption: "Encryption") -> "pa.RecordBatch":
    import pyarrow as pa

    values, headers = [], []
    for row in batch.select([*_NEEDED]).to_pylist():
        pairs = None if row["headers"] is None else [(each["key"], each["value"]) for each in row["headers"]]
        try:
            value, left = encryption.decrypt(row["value"], key=row["key"], headers=pairs or ())
        except PenstockError as error:
            place = f"offset {row['offset']} of {row['topic']}[{row['partition']}]"
            raise PenstockError(error.code, f"{place}: {error.message}") from error
        values.append(value)
        # Spark has null for a record without headers.
        headers.append([{"key": name, "value": each} for name, each in left] or None)
    columns = {"value": values, "headers": headers}
    arrays = [
        pa.array(columns[field.name], type=field.type) if field.name in columns else batch.column(field.name)
        for field in batch.schema
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=batch.schema)
