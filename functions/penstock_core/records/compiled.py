"""aiokafka's compiled codec. Only codec.py imports this module, at its first batch.

aiokafka's modules import each other in a circle. Two threads that load it at the same time fail with ImportError. This
module is loaded once, under Python's lock of it, so only one thread of a process loads aiokafka.
"""

from aiokafka.errors import CorruptRecordException
from aiokafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder

__all__ = ["CorruptRecordException", "DefaultRecordBatch", "DefaultRecordBatchBuilder"]
