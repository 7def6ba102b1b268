"""Values that the tests of several items share, and the size of an item as DynamoDB counts it."""

from hypothesis import strategies as st

from penstock_core import limits
from penstock_core.ids import Offset, Partition, PartitionKey, TopicId

KEY = PartitionKey(TopicId("00ff"), Partition(7))
OFFSETS = st.integers(0, limits.OFFSET_MAX).map(Offset)
TIMES_MS = st.integers(-1, 2**62)
COUNTS = st.integers(0, 2**62)
