"""What a reset did to the offset of one partition, for groups and for share groups."""

from dataclasses import dataclass

from penstock_core.ids import Offset


@dataclass(frozen=True, slots=True, kw_only=True)
class ResetOffset:
    """The offset before the reset, None if there was none, and after it (in a dry run: after it would be done)."""

    old_offset: Offset | None
    new_offset: Offset
