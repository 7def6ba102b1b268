"""The write of an item whose `version` rises by one with each write: it expects the version before its own."""

from collections.abc import Sequence

from penstock_core.storage.item import ConditionalPut, ConditionalUpdate, Item, number, rewriting

FIRST_VERSION = 1


def versioned_write(item: Item, version: int, *, optional: Sequence[str] = ()) -> ConditionalPut | ConditionalUpdate:
    """Puts the first version where there is no item, and rewrites the version before any other one.

    So a write that comes late, or a second time, changes nothing. `optional` are attributes that an item may lack.
    """
    if version == FIRST_VERSION:
        return ConditionalPut(item=item, condition="attribute_not_exists(pk)")
    return rewriting(item, "version = :seen_version", {":seen_version": number(version - 1)}, optional=optional)
