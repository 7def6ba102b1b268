"""The item of a scheduled job's cursor. A job that runs out of time goes on from it in its next run.

```
topics table   pk "#cursors"   sk name of the job
cursor   S   a place that only the job understands
```
"""

from penstock_core.storage import keys
from penstock_core.storage.item import Item


def cursor_key(job: str) -> Item:
    """The key of the job's cursor."""
    return {"pk": {"S": keys.CURSORS}, "sk": {"S": job}}


def cursor_item(job: str, cursor: str) -> Item:
    """The item to put when the job stops before it is done."""
    return {**cursor_key(job), "cursor": {"S": cursor}}
