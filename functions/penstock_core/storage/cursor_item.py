"""The item of a scheduled job's cursor. A job that runs out of time goes on from it in its next run.

```
topics table   pk "#cursors"   sk name of the job
cursor   S   a place that only the job understands
```
"""

from collections.abc import Mapping
from typing import Any

from penstock_core.formats import check_item
from penstock_core.storage import keys
from penstock_core.storage.item import Item


def cursor_key(job: str) -> Item:
    """The key of the job's cursor."""
    return {"pk": {"S": keys.CURSORS}, "sk": {"S": job}}


def cursor_item(job: str, cursor: str) -> Item:
    """The item to put when the job stops before it is done."""
    return {**cursor_key(job), "cursor": {"S": cursor}}


def parse_cursor(item: Mapping[str, Any]) -> str:
    """The job's cursor, the inverse of `cursor_item`."""
    check_item("cursor", item)
    return str(item["cursor"]["S"])
